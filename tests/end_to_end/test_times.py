"""FUTURERELEASE and DELIVERBY from client to next hop: held until then, returned or reported then, also over kills."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from mailcore.config.esmtp import Esmtp
from mailcore.config.listeners import Listener
from mailcore.envelope import Status
from mailcore.receiver.requests import Settled, settle
from tests.deliverer.scripted_server import ScriptedServer
from tests.deliverer.scripted_server import serving as next_hop
from tests.end_to_end.test_dsn import report, rest, something_waits
from tests.end_to_end.test_extension import Appliance
from tests.eventually import eventually

WITH = ("PIPELINING", "DSN", "DELIVERBY 5", "FUTURERELEASE 99 2027-01-15T08:00:00Z")
MAIL = b"MAIL FROM:<author@sender.example> "


class Submission(Appliance):
    """An appliance whose clients are our own users."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self.receiving.server.start([self._listener], Listener(purpose="submission", tls="none", auth="off"))

    async def take(self, parameters: bytes, *recipients: bytes) -> list[bytes]:
        return await self.accept(
            b"EHLO client.example", MAIL + parameters, *(recipients or (b"RCPT TO:<b@example.org>",)), b"DATA",
            b"Subject: x\r\n\r\nHello.\r\n.",
        )  # fmt: skip


async def test_a_message_is_held_until_its_time_also_over_kills(tmp_path: Path) -> None:
    appliance = Submission(tmp_path)
    begun = time.time()
    replies = await appliance.take(b"HOLDFOR=4")
    assert b"250-FUTURERELEASE 2592000 20" in replies[1]
    assert replies[-1].startswith(b"250 2.0.0 Ok: queued")
    appliance.start_manager()
    for _ in range(3):
        await eventually(lambda: appliance.deliverers.manager.context.counters.get("replaced"))
        await appliance.deliverers.manager._checkpoint()
        assert not appliance.deliverers.waiting
        appliance.home.kill()
        appliance.start_manager()
        appliance.deliverers.manager.context.counters["replaced"] = 1

    async def due() -> bool:
        await appliance.deliverers.manager._checkpoint()
        return bool(appliance.deliverers.waiting)

    await eventually(due, look_every_s=0.05)
    released = time.time()
    assert begun + 4 <= released < begun + 7
    async with next_hop(ScriptedServer(keywords=WITH)) as hop:
        result = await appliance.deliver(await appliance.entry(), hop)
        assert hop.sessions[0].lines[1] == "MAIL FROM:<author@sender.example>", "it is not held a second time"
    assert [verdict.status for verdict in result.verdicts] == [Status.DELIVERED]
    assert await rest(appliance) == []
    await appliance.close()


@pytest.mark.parametrize(
    ("parameters", "reply"),
    [(b"HOLDFOR=x", b"501 5.5.4"), (b"HOLDFOR", b"501 5.5.4"), (b"HOLDFOR=1 HOLDFOR=1", b"501 5.5.4"),
     (b"HOLDFOR=1 HOLDUNTIL=2030-01-01T00:00:00Z", b"501 5.5.4"), (b"HOLDUNTIL=tomorrow", b"501 5.5.4"),
     (b"HOLDFOR=2592001", b"501 5.5.4"), (b"HOLDUNTIL=2999-01-01T00:00:00Z", b"501 5.5.4"), (b"BY=60", b"501 5.5.4"),
     (b"BY=59;R", b"555 5.5.4"), (b"BY=60;R BY=60;R", b"501 5.5.4"), (b"BY=-1;R", b"501 5.5.4"), (b"BY=60;RX", b"501 5.5.4"),
     (b"HOLDFOR=99 BY=60;R", b"501 5.5.4")],
)  # fmt: skip
async def test_a_wrong_time_is_refused_and_the_transaction_is_not_begun(
    tmp_path: Path, parameters: bytes, reply: bytes
) -> None:
    appliance = Submission(tmp_path)
    replies = await appliance.accept(b"EHLO c", MAIL + parameters, b"RCPT TO:<b@example.org>", MAIL, b"RSET")
    assert replies[2].startswith(reply)
    assert replies[3].startswith(b"503 5.5.1")
    assert replies[4].startswith(b"250")
    await eventually(lambda: not appliance.receiving.server.sessions)
    appliance.receiving.close()


async def test_a_client_of_the_mx_cannot_have_mail_held(tmp_path: Path) -> None:
    appliance = Appliance(tmp_path)
    replies = await appliance.accept(b"EHLO c", MAIL + b"HOLDFOR=5", MAIL + b"BY=60;N")
    assert b"FUTURERELEASE" not in replies[1]
    assert (replies[2][:9], replies[3][:9]) == (b"555 5.5.4", b"250 2.1.0")
    await eventually(lambda: not appliance.receiving.server.sessions)
    appliance.receiving.close()


async def test_mail_to_be_returned_goes_only_where_it_would_be_returned_and_with_what_is_left(tmp_path: Path) -> None:
    appliance = Submission(tmp_path)
    await appliance.take(b"BY=90;r")
    appliance.start_manager()
    work = await appliance.entry()
    async with next_hop(ScriptedServer(keywords=("PIPELINING",))) as without:
        refused = await appliance.deliver(work, without)
        assert without.messages == []
    assert [(verdict.status, verdict.dsn) for verdict in refused.verdicts] == [(Status.BOUNCED, "5.3.3")]
    (bounce,) = await rest(appliance)
    assert bounce.groups["b@example.org"]["Status"] == "5.3.3"
    await appliance.take(b"BY=90;r")
    appliance.deliverers.manager.durable("incoming.1", appliance.receiving.writer.durable)
    async with next_hop(ScriptedServer(keywords=WITH)) as hop:
        await appliance.deliver(await appliance.entry(), hop)
        (line,) = [line for line in hop.sessions[0].lines if line.startswith("MAIL")]
    assert line.startswith("MAIL FROM:<author@sender.example> BY=")
    assert 80 <= int(line.partition("BY=")[2].removesuffix(";R")) <= 90
    assert await rest(appliance) == []
    await appliance.close()


@pytest.mark.parametrize(("parameter", "keywords", "told"), [
    (b"BY=90;NT", WITH, True), (b"BY=90;N", WITH, False), (b"BY=90;N", ("PIPELINING", "DSN"), True),
])  # fmt: skip
async def test_the_sender_hears_where_it_was_passed_on(
    tmp_path: Path, parameter: bytes, keywords: tuple[str, ...], told: bool
) -> None:
    appliance = Submission(tmp_path)
    await appliance.take(parameter, b"RCPT TO:<b@example.org>", b"RCPT TO:<never@example.org> NOTIFY=NEVER")
    appliance.start_manager()
    async with next_hop(ScriptedServer(keywords=keywords)) as hop:
        await appliance.deliver(await appliance.entry(), hop)
    found = await rest(appliance)
    assert [sorted(each.groups) for each in found] == ([["b@example.org"]] if told else [])
    assert all(each.groups["b@example.org"]["Action"] == "relayed" for each in found)
    await appliance.close()


@pytest.mark.parametrize(("mode", "action"), [("R", "failed"), ("N", "delayed")])
async def test_when_the_time_is_over_the_mail_is_returned_or_its_sender_is_warned_once(
    tmp_path: Path, mode: str, action: str
) -> None:
    appliance = Submission(tmp_path)
    for context in appliance.receiving.server._contexts.values():
        context.esmtp = Esmtp(deliver_by_min_s=1)
    begun = time.time()
    await appliance.take(b"BY=3;%b" % mode.encode())
    appliance.start_manager()
    notices, tries = [], 0
    async with next_hop(ScriptedServer({"RCPT": b"450 4.2.0 Later\r\n"}, keywords=WITH)) as hop:
        while time.time() < begun + 8 and await something_waits(appliance):
            entry = appliance.deliverers.waiting[0]
            if entry.sender:
                tries += 1
                result = await appliance.deliver(await appliance.entry(), hop)
                if mode == "R":
                    assert time.time() < begun + 5
                    assert result.verdicts[0].status in (Status.DEFERRED, Status.BOUNCED)
                await appliance.settled()
                appliance.home.kill()
                appliance.start_manager()
            else:
                notices.append((time.time(), report(entry)))
                appliance.deliverers.answer()
    ((at, notice),) = notices
    assert begun + 2.5 <= at <= begun + 6
    assert notice.groups["b@example.org"]["Action"] == action
    assert tries >= 2
    appliance.home.kill()
    appliance.receiving.close()


async def test_mail_for_a_host_that_is_never_reached_is_returned_in_time(tmp_path: Path) -> None:
    appliance = Submission(tmp_path)
    for context in appliance.receiving.server._contexts.values():
        context.esmtp = Esmtp(deliver_by_min_s=1)
    begun = time.time()
    await appliance.take(b"BY=2;R")
    appliance.start_manager()
    while await something_waits(appliance) and appliance.deliverers.waiting[0].sender:
        assert time.time() < begun + 6, "it is tried for as long as mail without BY"
        appliance.deliverers.answer(lambda number: Status.DEFERRED)
    bounce = report(appliance.deliverers.waiting[0])
    assert (bounce.groups["b@example.org"]["Action"], bounce.groups["b@example.org"]["Status"]) == ("failed", "4.4.7")
    appliance.deliverers.answer()
    await appliance.settled()
    await appliance.close()


async def test_a_priority_is_passed_on_and_only_trusted_clients_set_one(tmp_path: Path) -> None:
    appliance = Appliance(tmp_path)
    commands = (b"EHLO c", MAIL + b"MT-PRIORITY=10", MAIL + b"MT-PRIORITY=1 MT-PRIORITY=1", MAIL + b"MT-PRIORITY")
    replies = await appliance.accept(
        *commands, MAIL + b"MT-PRIORITY=-4", b"RCPT TO:<b@example.org>", b"DATA", b"x\r\n."
    )
    assert b"250-MT-PRIORITY\r\n" in replies[1]
    assert [reply[:3] for reply in replies[2:]] == [b"501", b"501", b"501", b"250", b"250", b"354", b"250"]
    appliance.start_manager()
    work = await appliance.entry()
    assert work.options == (("MT-PRIORITY", "-4"),)
    async with next_hop(ScriptedServer(keywords=("PIPELINING", "MT-PRIORITY MIXER"))) as hop:
        await appliance.deliver(work, hop)
        assert hop.sessions[0].lines[1] == "MAIL FROM:<author@sender.example> MT-PRIORITY=-4"
    await appliance.settled()
    await appliance.close()
    assert settle({"MT-PRIORITY": 9}, Esmtp(), 0.0, None) == Settled(0.0, ())
    assert settle({"MT-PRIORITY": 9}, Esmtp(), 0.0, 9) == Settled(0.0, (("MT-PRIORITY", "9"),), 9)
    assert settle({"MT-PRIORITY": 9}, Esmtp(), 0.0, 3) == Settled(0.0, (("MT-PRIORITY", "3"),), 3)
    assert settle({"MT-PRIORITY": -9}, Esmtp(), 0.0, 0) == Settled(0.0, (("MT-PRIORITY", "-9"),), -9)
    assert settle({"MT-PRIORITY": 0}, Esmtp(), 0.0, 9) == Settled(0.0, ())
