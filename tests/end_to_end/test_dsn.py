"""RFC 3461 from client to next hop and back: what was asked for is passed on, or done here, once, also over kills."""

from __future__ import annotations

import asyncio
import random
import time
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest

from mailcore.config.settings import Bounce
from mailcore.dsn_request import NOTIFY_NEVER
from mailcore.frames import Deliver
from tests.bounce.report import Read
from tests.deliverer.scripted_server import ScriptedServer
from tests.deliverer.scripted_server import serving as next_hop
from tests.end_to_end.test_extension import Appliance
from tests.eventually import eventually

WITH_DSN = ("PIPELINING", "8BITMIME", "DSN")
WITHOUT_DSN = ("PIPELINING", "8BITMIME")
MAIL = b"MAIL FROM:<author@sender.example> RET=hdrs ENVID=QQ+2B1"
RECIPIENTS = {
    "all": b"NOTIFY=SUCCESS,FAILURE,DELAY ORCPT=rfc822;Old+2Bx@example.org",
    "never": b"NOTIFY=NEVER",
    "success": b"notify=success",
    "failure": b"NOTIFY=FAILURE",
    "plain": b"",
}


async def sent(tmp_path: Path, names: list[str], sender: bytes = MAIL) -> Appliance:
    """An appliance that took a message for these recipients, and has no manager yet."""
    appliance = Appliance(tmp_path)
    rcpt = [b"RCPT TO:<%b@example.org> %b" % (name.encode(), RECIPIENTS[name]) for name in names]
    replies = await appliance.accept(
        b"EHLO client.example", sender, *rcpt, b"DATA", b"Subject: notices\r\n\r\nThe body.\r\n."
    )
    assert b"250-DSN\r\n" in replies[1]
    assert [reply[:3] for reply in replies[2:]] == [*[b"250"] * (1 + len(names)), b"354", b"250"]
    return appliance


def report(notice: Deliver) -> Read:
    """The notice as its sender will read it, which goes out as RFC 3461 6.1 says."""
    assert (notice.sender, notice.recipients) == ("", ((0, "author@sender.example"),))
    assert (notice.options, notice.recipient_options) == ((), (NOTIFY_NEVER,))
    with Path(notice.path).open("rb") as file:
        file.seek(notice.offset)
        return Read(file.read(notice.length))


async def rest(appliance: Appliance) -> list[Read]:
    """All notices that are there, delivered: the queue is empty then."""
    found: list[Read] = []
    deliverers = appliance.deliverers
    await eventually(lambda: not deliverers.manager.context.queue.active)
    while await something_waits(appliance):
        found += [report(notice) for notice in deliverers.waiting]
        deliverers.answer()
    return found


async def something_waits(appliance: Appliance) -> bool:
    """Waits until an entry is given to a deliverer; False when the queue is empty."""
    deliverers = appliance.deliverers
    sizes = deliverers.manager.context.queue.sizes

    async def either() -> bool:
        if not deliverers.waiting:
            await deliverers.manager._checkpoint()  # what the manager wrote into its own lanes is read from then on
        return bool(deliverers.waiting) or not sizes.summary().recipients

    await eventually(either, look_every_s=0.05)
    return bool(deliverers.waiting)


async def test_a_next_hop_with_dsn_gets_all_of_it_unchanged_and_we_report_nothing(tmp_path: Path) -> None:
    appliance = await sent(tmp_path, list(RECIPIENTS))
    appliance.start_manager()
    work = await appliance.entry()
    async with next_hop(ScriptedServer(keywords=WITH_DSN)) as hop:
        result = await appliance.deliver(work, hop)
        assert hop.sessions[0].lines[1:7] == [
            "MAIL FROM:<author@sender.example> RET=hdrs ENVID=QQ+2B1",
            "RCPT TO:<all@example.org> NOTIFY=SUCCESS,FAILURE,DELAY ORCPT=rfc822;Old+2Bx@example.org",
            "RCPT TO:<never@example.org> NOTIFY=NEVER",
            "RCPT TO:<success@example.org> NOTIFY=success",
            "RCPT TO:<failure@example.org> NOTIFY=FAILURE",
            "RCPT TO:<plain@example.org>",
        ]
    assert {verdict.relayed_to for verdict in result.verdicts} == {""}
    assert await rest(appliance) == []
    await appliance.close()


async def test_a_next_hop_without_dsn_gets_none_of_it_and_success_is_reported_as_relayed(tmp_path: Path) -> None:
    appliance = await sent(tmp_path, list(RECIPIENTS))
    appliance.start_manager()
    work = await appliance.entry()
    async with next_hop(ScriptedServer(keywords=WITHOUT_DSN)) as hop:
        await appliance.deliver(work, hop)
        lines = hop.sessions[0].lines[1:7]
    assert lines == ["MAIL FROM:<author@sender.example>", *[f"RCPT TO:<{name}@example.org>" for name in RECIPIENTS]]
    (success,) = await rest(appliance)
    assert success.message["Subject"] == "Successful Mail Delivery Report"
    assert success.of_message["Original-Envelope-Id"] == "QQ+1"
    assert sorted(success.groups) == ["all@example.org", "success@example.org"]
    for fields in success.groups.values():
        assert (fields["Action"], fields["Status"]) == ("relayed", "2.0.0")
        assert fields["Remote-MTA"] == "dns; [127.0.0.1]"
        assert fields["Diagnostic-Code"] == "smtp; 250 2.0.0 Ok: queued as 4F"
        assert fields["Last-Attempt-Date"]
    assert success.groups["all@example.org"]["Original-Recipient"] == "rfc822;Old+x@example.org"
    assert success.returned.get_content_type() == "text/rfc822-headers"
    await appliance.close()


async def test_only_those_who_want_to_hear_of_a_failure_do_and_the_header_alone_comes_back(tmp_path: Path) -> None:
    appliance = await sent(tmp_path, list(RECIPIENTS))
    appliance.start_manager()
    work = await appliance.entry()
    async with next_hop(ScriptedServer({"RCPT": b"550 5.1.1 No such user\r\n"}, keywords=WITHOUT_DSN)) as hop:
        await appliance.deliver(work, hop)
    (failure,) = await rest(appliance)
    assert sorted(failure.groups) == ["all@example.org", "failure@example.org", "plain@example.org"]
    assert {fields["Action"] for fields in failure.groups.values()} == {"failed"}
    assert failure.returned.get_content_type() == "text/rfc822-headers", "RET=HDRS"
    assert b"The body." not in failure.raw
    await appliance.close()


@pytest.mark.parametrize("names", [["never"], ["success"], ["never", "success"]])
async def test_where_no_failure_is_to_be_reported_there_is_no_bounce(tmp_path: Path, names: list[str]) -> None:
    appliance = await sent(tmp_path, names)
    appliance.start_manager()
    work = await appliance.entry()
    async with next_hop(ScriptedServer({"RCPT": b"550 5.1.1 No such user\r\n"}, keywords=WITH_DSN)) as hop:
        await appliance.deliver(work, hop)
    assert await rest(appliance) == []
    await appliance.close()


async def test_a_null_sender_is_sent_nothing(tmp_path: Path) -> None:
    appliance = await sent(tmp_path, ["all", "success"], b"MAIL FROM:<> RET=FULL")
    appliance.start_manager()
    work = await appliance.entry()
    async with next_hop(ScriptedServer(keywords=WITHOUT_DSN)) as hop:
        await appliance.deliver(work, hop)
    assert await rest(appliance) == []
    await appliance.close()


@pytest.mark.parametrize("seed", [0, 1, pytest.param(2, marks=pytest.mark.long)])
async def test_each_success_and_failure_is_reported_once_over_kills_at_any_moment(tmp_path: Path, seed: int) -> None:
    """One recipient is passed on at once, two are deferred first; the manager is killed again and again."""
    rng = random.Random(seed)
    appliance = await sent(tmp_path, ["success", "all", "plain", "never"])
    appliance.start_manager()
    later = {f"{name}@example.org": b"450 4.2.0 Later\r\n" for name in ("all", "plain")}
    gone = {f"{name}@example.org": b"550 5.1.1 No\r\n" for name in ("plain", "never")}
    notices: dict[str, Read] = {}
    kills = tries = 0
    async with (
        next_hop(ScriptedServer(keywords=WITHOUT_DSN, refuse=later)) as first,
        next_hop(ScriptedServer(keywords=WITHOUT_DSN, refuse=gone)) as last,
    ):
        while await something_waits(appliance):
            deliverers = appliance.deliverers
            entry = deliverers.waiting[0]
            if entry.sender:
                tries += 1
                await appliance.deliver(await appliance.entry(), first if tries <= 2 else last)
            else:
                notices[entry.queue_id] = report(entry)
                deliverers.answer()
            for _ in range(rng.choice([0, 1, 2, 5, 20, 100])):
                await asyncio.sleep(0.002)
            if kills < 6 and rng.random() < 0.7:
                kills += 1
                appliance.home.kill()
                appliance.start_manager()
    assert kills >= 3
    told = [(address, fields["Action"]) for each in notices.values() for address, fields in each.groups.items()]
    assert sorted(told) == [
        ("all@example.org", "relayed"), ("plain@example.org", "failed"), ("success@example.org", "relayed"),
    ], f"seed {seed}, {kills} kills: {told}"  # fmt: skip
    await appliance.close()


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
async def test_a_sender_is_warned_of_a_delay_once_over_kills(tmp_path: Path, seed: int) -> None:
    """All is deferred until long after the warning; who does not want to hear of delays does not."""
    rng = random.Random(seed)
    appliance = await sent(tmp_path, list(RECIPIENTS), b"MAIL FROM:<author@sender.example> RET=FULL")
    appliance.bounce = Bounce(delay_warning_time=2)
    appliance.start_manager()
    begun = time.monotonic()
    notices: dict[str, Read] = {}
    tries = kills = 0
    later = ScriptedServer({"RCPT": b"450 4.2.0 Later\r\n"}, keywords=WITH_DSN)
    async with next_hop(later) as deferring, next_hop(ScriptedServer(keywords=WITH_DSN)) as last:
        while await something_waits(appliance):
            entry = appliance.deliverers.waiting[0]
            if entry.sender:
                tries += 1
                over = tries > 6 and time.monotonic() - begun > 5.0
                await appliance.deliver(await appliance.entry(), last if over else deferring)
            else:
                notices[entry.queue_id] = report(entry)
                appliance.deliverers.answer()
            await asyncio.sleep(rng.choice([0, 0.01, 0.2]))
            if kills < 5 and rng.random() < 0.5:
                kills += 1
                appliance.home.kill()
                appliance.start_manager()
    assert kills >= 2
    assert tries > 6
    (warning,) = notices.values()
    assert warning.message["Subject"] == "Delayed Mail (still being retried)"
    assert sorted(warning.groups) == ["all@example.org", "plain@example.org"]
    for fields in warning.groups.values():
        assert (fields["Action"], fields["Status"]) == ("delayed", "4.2.0")
        assert fields["Diagnostic-Code"] == "smtp; 450 4.2.0 Later"
        left_s = parsedate_to_datetime(fields["Will-Retry-Until"]).timestamp() - time.time()
        assert 4.9 * 86_400 < left_s <= 5 * 86_400, "the queue lifetime"
        assert fields["Last-Attempt-Date"]
    assert warning.returned.get_content_type() == "text/rfc822-headers", "of a delay, also with RET=FULL"
    await appliance.close()


async def test_a_bounce_that_is_late_warns_nobody(tmp_path: Path) -> None:
    appliance = await sent(tmp_path, ["all"], b"MAIL FROM:<>")
    appliance.bounce = Bounce(delay_warning_time=1)
    appliance.start_manager()
    tries = 0
    async with next_hop(ScriptedServer({"RCPT": b"450 4.2.0 Later\r\n"}, keywords=WITH_DSN)) as hop:
        while tries < 3 and await something_waits(appliance):
            assert {entry.queue_id for entry in appliance.deliverers.waiting} == {
                appliance.deliverers.waiting[0].queue_id
            }
            tries += 1
            await appliance.deliver(await appliance.entry(), hop)
    await appliance.settled()
    assert appliance.deliverers.manager.context.queue.sizes.summary().messages == 1, "only itself"
    await appliance.close()


@pytest.mark.parametrize("limit", [0, 1, 10_000])
async def test_a_message_above_the_limit_comes_back_as_its_header(tmp_path: Path, limit: int) -> None:
    appliance = await sent(tmp_path, ["plain"], b"MAIL FROM:<author@sender.example> RET=FULL")
    appliance.bounce = Bounce(bounce_size_limit=limit)
    appliance.start_manager()
    work = await appliance.entry()
    async with next_hop(ScriptedServer({"RCPT": b"550 5.1.1 No\r\n"})) as hop:
        await appliance.deliver(work, hop)
    (failure,) = await rest(appliance)
    whole = limit > work.length
    assert failure.returned.get_content_type() == ("message/rfc822" if whole else "text/rfc822-headers")
    assert (b"The body." in failure.raw) is whole
    assert b"Subject: notices" in failure.raw
    await appliance.close()


async def test_the_postmaster_reads_once_of_mail_without_a_sender(tmp_path: Path) -> None:
    """All of it is refused: the message, its bounce, and the report to the postmaster about it."""
    appliance = await sent(tmp_path, ["plain"])
    appliance.bounce = Bounce(double_bounce_recipient="postmaster@example.net")
    appliance.start_manager()
    ends: list[tuple[str, str]] = []
    async with next_hop(ScriptedServer({"RCPT": b"550 5.1.1 No\r\n"})) as hop:
        while await something_waits(appliance):
            work = await appliance.entry()
            ends.append((work.queue_id, work.recipients[0][1]))
            await appliance.deliver(work, hop)
    queue_id = ends[0][0]
    assert ends == [
        (queue_id, "plain@example.org"),
        (f"{queue_id}B0", "author@sender.example"),
        (f"{queue_id}D000000", "postmaster@example.net"),
    ]
    await appliance.close()


async def test_a_bad_value_is_refused(tmp_path: Path) -> None:
    appliance = Appliance(tmp_path)
    replies = await appliance.accept(
        b"EHLO client.example",
        *[b"MAIL FROM:<a@sender.example> " + bad for bad in (b"RET=HALF", b"RET", b"ENVID=a+0a", b"RET=FULL RET=FULL")],
        b"MAIL FROM:<a@sender.example> ENVID=" + b"x" * 100,
        *[
            b"RCPT TO:<b@example.org> " + bad
            for bad in (
                b"NOTIFY=NEVER,DELAY",
                b"NOTIFY=",
                b"ORCPT=b@example.org",
                b"ORCPT=rfc822;a+0D+0AX: y",
                b"RET=FULL",
            )
        ],
        b"RCPT TO:<b@example.org> NOTIFY=SUCCESS,FAILURE,DELAY ORCPT=rfc822;" + b"x" * 493,
    )
    assert [reply[:9] for reply in replies[2:]] == [
        *[b"501 5.5.4"] * 4, b"250 2.1.0", *[b"501 5.5.4"] * 4, b"555 5.5.4", b"250 2.1.5",
    ]  # fmt: skip
    await eventually(lambda: not appliance.receiving.server.sessions)
    appliance.receiving.close()
