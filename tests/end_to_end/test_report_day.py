"""A day of the real appliance with every fate a message can have, and its report by the real pipeline: the tables are what the
next hops got and what the core itself counted, and it balances. With --long: one file of events less, and it does not."""

from __future__ import annotations

import asyncio
import itertools
import re
import shutil
import smtplib
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from mailcore.lab.lab import Lab
from tests.appliance.accounts.sample_users import client_of
from tests.appliance.markup import markup_of
from tests.end_to_end.appliance import Appliance
from tests.end_to_end.reporting import Gold, Told, delivered, gold_of, ordered, waypost_report, with_more
from tests.events.reading import rows
from tests.eventually import PATIENCE_S
from tests.running.running_core import RunningCore, Sections, route_to, running

# On a busy machine half a minute is lived, and Java starts. All tests may use the database, so that pytest-django, which
# puts those that do in front, does not part them: the day would be lived twice.
pytestmark = [pytest.mark.timeout(1800), pytest.mark.django_db]
ENDS = ("delivered", "bounced", "expired", "deleted")
HOPS = {
    "good": "accept",
    "grey": "greylist(1)",
    "bad": "reject(bad*@bad.example, 550)",
    "never": "reject(*@never.example, 451)",
    "slow": "reject(*@slow.example, 450)",
    "dead": "dead_for(9999)",
    "author": "accept",
}
REFUSALS = ("450", "451", "550")  # of recipients
LIFETIME_S = 10.0
WAITING = 3  # recipients at the end: two of scheduled mail, one of a dead host


def zone_of_noon() -> str:
    """A zone in which it is about noon: no day ends in the middle of a test."""
    shift = 12 - datetime.now(UTC).hour
    return f"Etc/GMT{-shift:+d}" if shift else "UTC"


def quick(zone: str) -> Sections:
    return {
        "queue": {"segment_bytes": 1 << 16},
        "receiver": {"message_size_limit": 100_000},
        "scheduler": {"maximal_queue_lifetime": LIFETIME_S, "bounce_queue_lifetime": LIFETIME_S},
        "export": {"enabled": True, "interval_s": 0.2, "window_interval_s": 1},
        "reports": {"zone": zone, "spark_master": "local[2]"},
    }


@dataclass
class Lived:
    """A home in which a day was lived, and what others know of it."""

    home: Path
    day: date
    sent: Counter[str]  # recipients accepted from outside
    refused: int  # at the door
    got: dict[str, Counter[str]]  # by destination, recipients
    not_taken: dict[str, int]  # by destination, recipients
    counters: dict[str, int]  # the core's own
    size: dict[str, Any]
    deleted: int  # recipients that can still be undeleted
    fates: dict[str, str]  # queue ids
    config: Path
    good: Told
    report: Gold


@dataclass
class Lossy:
    """The same day without one of its event files."""

    told: Told
    report: Gold
    lost: set[str]  # queue ids that ended in the file that was taken away
    touched: set[str]  # those with any event in it
    stretch: str


def refuse_two(core: RunningCore) -> None:
    with smtplib.SMTP("127.0.0.1", core.port, timeout=PATIENCE_S) as client:
        client.ehlo("client.example")
        assert client.mail("a@sender.example", ["SIZE=99999999"])[0] == 552
        assert client.mail("a@sender.example")[0] == 250
        assert client.rcpt("no address at all@")[0] >= 500
        client.rset()


async def live(directory: Path) -> Lived:
    zone = zone_of_noon()
    async with Lab([f"{name}={behaviour}:127.0.0.1:0" for name, behaviour in HOPS.items()]) as lab:
        routes = {f"{hop.name}.example": route_to(lab, number) for number, hop in enumerate(lab.hops)}
        async with running(directory, lab, quick(zone), routes=routes) as core:
            first = await Appliance.ask(core, "export", "--cut", "--ids")
            assert first["recipients"] == 0
            lived = await _mail(core, lab)
            last = await Appliance.ask(core, "export", "--cut", "--ids")
            size = await core.size()
            deleted = sum(item["recipient_count"] for item in await core.listed(lane="deleted"))
            assert last["recipients"] == size["recipients"] + deleted, "the lanes were read as the core counts them"
            day = datetime.now(ZoneInfo(zone)).date()
            good = await waypost_report(core.config, day)
            counters = (await core.ask("state"))["counters"]
            report = gold_of(core.home, f"day={day}")
        return Lived(
            home=core.home, day=day, got=delivered(lab), counters=counters, size=size, deleted=deleted,
            config=core.config, good=good, report=report,
            not_taken={
                f"smtp:[{hop.address[0]}]:{hop.address[1]}": sum(hop.counters.refused.get(code, 0) for code in REFUSALS)
                for hop in lab.hops
            },
            **lived,
        )  # fmt: skip


async def _mail(core: RunningCore, lab: Lab) -> dict[str, Any]:
    fates: dict[str, str] = {}
    sent: Counter[str] = Counter()

    async def send(fate: str, *recipients: str) -> str:
        sent.update(recipients)
        fates[fate] = await core.send(*recipients, data=b"Subject: x\r\n\r\n" + fate.encode() + b"\r\n")
        return fates[fate]

    never = await send("expired", "a@never.example", "b@never.example", "a@good.example")
    await send("bounced", "bad1@bad.example", "fine@bad.example", "c@good.example")
    await send("deferred", "a@grey.example", "b@grey.example")
    for number in range(5):
        await send(f"delivered {number}", f"r{number}@good.example", "everybody@good.example")
    await core.until_removed(fates["bounced"], fates["deferred"], fates["delivered 4"])
    await Appliance.ask(core, "export", "--now")
    held = await send("held", "a@slow.example")
    await ordered(core, "hold", held)
    await core.until_in(held, "hold")
    later = await send("added", "b@slow.example")
    await with_more(core, later, "added@good.example", "added@grey.example")
    gone = await send("deleted", "c@slow.example", "d@slow.example")
    await ordered(core, "delete", gone)
    await asyncio.to_thread(refuse_two, core)
    fates["injected"] = await core.inject("a@good.example", "b@grey.example")
    fates["scheduled"] = await core.inject("x@good.example", "y@good.example", not_before=time.time() + 3600)
    await lab.hop("slow").set_behaviour("accept")
    await ordered(core, "release", held)
    await core.until_removed(never, held, later, fates["injected"])
    await Appliance.ask(core, "export", "--now")
    fates["waits"] = await core.send("a@dead.example", "r0@good.example")
    sent.update(["a@dead.example", "r0@good.example"])
    await ordered(core, "hold", fates["waits"])

    async def rest() -> bool:
        return bool((await core.size())["recipients"] == WAITING)

    await core.eventually(rest, "everything else to be over")
    return {"fates": fates, "sent": sent, "refused": 2}


def _take_away_a_file(events: Path) -> tuple[set[str], set[str], str]:
    """Of the journal, one in the middle in which somebody came to an end: who, who else is in it, and which stretch it was."""
    files = sorted(events.glob("dt=*/journal.*.parquet"), key=lambda path: int(path.name.split(".")[1]))
    journal = [row for row in rows(events) if row["lane"] == "journal"]
    for file, following in itertools.pairwise(files[1:]):
        begin, end = (int(path.name.split(".")[1]) for path in (file, following))
        there = [row for row in journal if begin <= row["offset"] < end]
        lost = {row["queue_id"] for row in there if row.get("status") in ENDS}
        if lost:
            file.unlink()
            return lost, {row["queue_id"] for row in there}, f"journal from {begin} to {end}"
    raise AssertionError(f"none of {files} holds an end")


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Lived:
    return asyncio.run(live(tmp_path_factory.mktemp("day")))


@pytest.fixture(scope="module")
def lossy(lived: Lived) -> Iterator[Lossy]:
    """Makes the report again without a file of events, while the core is stopped; then puts the file back."""
    kept = lived.home / "kept"
    shutil.copytree(lived.home / "events", kept)
    lost, touched, stretch = _take_away_a_file(lived.home / "events")
    told = asyncio.run(waypost_report(lived.config, lived.day))
    yield Lossy(told, gold_of(lived.home, f"day={lived.day}"), lost, touched, stretch)
    shutil.rmtree(lived.home / "events")
    kept.rename(lived.home / "events")


def test_made_at_a_terminal_it_shows_how_far_it_is_and_ends_with_its_words(lived: Lived) -> None:
    assert lived.good.status == 0, lived.good
    assert re.search(r"█+·* +\d+% ", lived.good.terminal), "a bar"
    assert "counting" in lived.good.terminal
    assert re.search(rf"^{lived.day}: So far, from \d\d:\d\d to \d\d:\d\d: It balances\.$", lived.good.output, re.M)


def test_it_says_what_the_next_hops_got(lived: Lived) -> None:
    report = lived.report
    assert report.by("destinations", "destination", "delivered") == {
        name: got.total() for name, got in lived.got.items()
    }
    assert report.total["delivered"] == sum(got.total() for got in lived.got.values())
    refused = {name: count for name, count in lived.not_taken.items() if count}
    not_taken = Counter(report.by("destinations", "destination", "deferred"))
    not_taken.update(report.by("destinations", "destination", "bounced"))
    assert {name: count for name, count in not_taken.items() if name in refused} == refused
    wanted = lived.sent + Counter(["a@good.example", "b@grey.example", "x@good.example", "y@good.example"])
    told = report.by("recipients", "recipient", "messages")
    bounces = {name: count for name, count in told.items() if name not in wanted}
    assert told == wanted | bounces
    assert bounces == {"author@sender.example": report.total["messages_bounce"]}
    arrived = {row["queue_id"] for row in rows(lived.home / "events") if row["kind"] == "accepted"}
    assert set(lived.fates.values()) <= arrived


def test_it_says_what_the_core_counted_itself(lived: Lived) -> None:
    total, counters = lived.report.total, lived.counters
    for status, untried in (("delivered", ""), ("deferred", "put_off"), ("bounced", "returned"), ("expired", "")):
        assert total[status] > 0, status
        assert total[status] + total.get(untried, 0) == counters[f"recipients_{status}"], status
    assert total["messages"] == counters["accepted"]
    assert total["recipients"] == counters["recipients_accepted"]
    assert total["recipients_added"] == counters["recipients_added"]
    assert total["refused"] == lived.refused
    balance = lived.report.balance
    assert balance["accepted"] == counters["recipients_accepted"]
    assert balance["queued_at_start"] == 0
    assert balance["queued_at_end"] == lived.size["recipients"] + lived.deleted
    assert (lived.deleted, lived.size["recipients"]) == (2, WAITING)
    assert balance["difference"] == 0


def page(report: Gold, day: date, settings: Any, root: Path) -> str:
    """Returns the page of a report, whichever of the day's reports is the current one."""
    (root / "gold").mkdir()
    (root / "gold" / f"day={day}").symlink_to(report.directory)
    settings.REPORTS_DIRECTORY = root
    answer = client_of("viewer").get(f"/reports/day/{day}/")
    assert answer.status_code == 200
    return markup_of(answer)


def test_the_page_says_the_same(lived: Lived, settings: Any, tmp_path: Path) -> None:
    text = page(lived.report, lived.day, settings, tmp_path)
    assert 'class="balance notice success"' in text
    for name, label in (("messages", "messages accepted"), ("delivered", "delivered"), ("bounced", "bounced"),
                        ("expired", "expired"), ("refused", "refused at SMTP time")):  # fmt: skip
        figure = f'<span class="figure">{lived.report.total[name]}</span><span class="label">{label}</span>'
        assert figure in text, figure
    assert f"queued at the end <b>{lived.report.balance['queued_at_end']}</b>" in text


@pytest.mark.long
def test_without_one_file_of_events_it_is_red_and_names_messages_and_stretch(
    lived: Lived, lossy: Lossy, settings: Any, tmp_path: Path
) -> None:
    assert lossy.told.status == 1, lossy.told
    assert "It does not balance: " in lossy.told.output
    named = {each["queue_id"] for each in lossy.report.balance["suspects"]}
    assert lossy.lost <= named <= lossy.touched, "who waits is told from who was lost"
    for queue_id in lossy.lost:
        assert queue_id in lossy.told.terminal
    assert f"missing from the event files: {lossy.stretch}" in lossy.told.terminal
    assert ".parquet" in lossy.told.terminal
    text = page(lossy.report, lived.day, settings, tmp_path)
    assert 'class="balance notice error" role="alert"' in text
    assert "It does not balance: " in text
    for queue_id in lossy.lost:
        assert queue_id in text
    assert lossy.stretch in text
