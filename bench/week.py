"""A week of the real appliance in some minutes, and its reports: ``python -m bench.week DIR [--zone Asia/Kolkata]``.

The whole appliance runs on a faked clock (libfaketime; the monotonic clock is real). A day has two parts: some seconds at ten
in the morning, and some seconds around midnight, until the exporter has counted the queue automatically. Then all processes are
killed until the next morning; on one day also while mail is sent. Queued mail waits from day to day. Next hops accept,
greylist, refuse, are dead for days; an operator holds, releases, deletes, adds.

Checks and prints: each day balances from midnight to midnight, and its end is the next day's beginning; the reports of the days
agree with the mail that the next hops got, and the week is the sum of its days. The portal can show DIR/home afterwards.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import shutil
import smtplib
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock_time
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from appliance.pipeline.build_day import ReportBuilder
from appliance.pipeline.days import Day, week_of
from appliance.pipeline.run import make
from appliance.pipeline.session import QUICK, end, start
from appliance.pipeline.store import Store
from bench.faked_clock import Clock, TimedCore
from mailcore.control.async_client import AsyncControlClient
from mailcore.lab.lab import Lab
from tests.end_to_end.reporting import Gold, gold_of, ordered, with_more
from tests.running.running_core import route_to

__all__ = ["Week", "faults", "live", "make_reports"]

HOPS = {
    "good": "accept",
    "grey": "greylist(1)",
    "bad": "reject(bad*@bad.example, 550)",
    "never": "reject(*@never.example, 451)",
    "slow": "slow(0.3, final, 0.5)",
    "late": "reject(*@late.example, 450)",
    "dead": "dead_for(9999)",
    "author": "accept",
}
WEIGHTS = {"good": 50, "grey": 15, "bad": 10, "slow": 15, "late": 6, "dead": 4}
SECTIONS: dict[str, dict[str, object]] = {
    "queue": {"segment_bytes": 1 << 16},
    "receiver": {"message_size_limit": 100_000},
    # In real seconds: a jump of the clock does not let mail expire (law: clock-jumps-harmless). A day is half a minute.
    "scheduler": {"maximal_queue_lifetime": 70.0, "bounce_queue_lifetime": 70.0},
    "export": {"enabled": True, "interval_s": 0.5, "window_interval_s": 2},
}
MORNING_S = 36_000.0
BEFORE_MIDNIGHT_S = 6.0
CUT_S = 10.0  # the exporter must have counted the queue this long after midnight
BY_DAY, BY_NIGHT = 40, 25  # messages; twice as many on the busy day
PATIENCE_S = 60.0
QUIET_S = 5.0  # longer than any retry takes
DAYS = 7
ADDED = (
    *("messages", "recipients", "recipients_added", "size_bytes", "attempts", "refused"),
    *("delivered", "deferred", "bounced", "put_off", "returned", "expired", "deleted"),
)


@dataclass
class Week:
    """Holds what was sent and what the next hops received, counted outside the appliance."""

    home: Path
    zone: str
    days: list[date]
    config: Path
    acknowledged: Counter[str] = field(default_factory=Counter)  # by day of the clock at the 250: messages over SMTP
    recipients: int = 0  # of these
    doubtful: int = 0  # messages under way when all was killed
    refused: int = 0
    injected: int = 0  # messages
    got: dict[str, set[tuple[str, str]]] = field(default_factory=dict)  # by destination: message, recipient
    by_day: dict[str, dict[str, int]] = field(default_factory=dict)  # destination, by day: how many of these came first
    near_midnight: Counter[str] = field(default_factory=Counter)  # by destination: may be counted on either day
    until: float = 0.0  # by the clock: the last cut
    beyond: Counter[str] = field(
        default_factory=Counter
    )  # by destination: mail that may have arrived after the last cut, such as a bounce

    def day_of(self, at: float) -> str:
        return datetime.fromtimestamp(at, ZoneInfo(self.zone)).date().isoformat()


def midnight(day: date, zone: str) -> float:
    return datetime.combine(day, clock_time(0), ZoneInfo(zone)).timestamp()


class Living:
    """Runs the week."""

    def __init__(self, week: Week, core: TimedCore, lab: Lab, seed: int) -> None:
        self.week, self.core, self.lab, self.clock = week, core, lab, core.clock
        self.random = random.Random(seed)
        self.numbers = itertools.count(1)
        self.kept: dict[str, str] = {}  # purpose -> queue id

    async def all_of_it(self) -> None:
        zone, days = self.week.zone, self.week.days
        self.clock.set(midnight(days[0], zone) - BEFORE_MIDNIGHT_S)
        await self.core.start()
        await self._cut_behind(midnight(days[0], zone))  # the first: here balances begin
        self.core.stop()
        for number, day in enumerate(days):
            self.clock.set(midnight(day, zone) + MORNING_S)
            await self.core.start()
            await self._before(number)
            busy = number == 3
            await self._mail(BY_DAY // 2 * (1 + busy))
            if busy:
                sending = asyncio.create_task(self._mail(BY_DAY))
                await asyncio.sleep(1.0)
                await self.core.again()
                await sending
            await self._mail(BY_DAY // 2)
            await self._after(number)
            following = day + timedelta(days=1)
            self.clock.set(midnight(following, zone) - BEFORE_MIDNIGHT_S)  # the core keeps running during this jump
            await asyncio.gather(
                self._mail(BY_NIGHT, BEFORE_MIDNIGHT_S + 4), self._cut_behind(midnight(following, zone))
            )
            print(f"{day}: {(await self.core.size())['recipients']} recipients stay queued", flush=True)
            if day == days[-1]:  # mail after the last midnight is counted, too
                await self._quiet()
                self.week.until = await self._cut_now()
            self.core.stop()
        await self.core.control.close()

    async def _cut_behind(self, begin: float) -> None:
        """Waits for the cut that the exporter makes automatically after midnight."""

        async def there() -> bool:
            names = [path.name for path in (self.week.home / "events" / "cuts").glob("[0-9]*Z.json")]
            times = [datetime.strptime(name, "%Y-%m-%dT%H%M%S.%fZ.json").replace(tzinfo=UTC) for name in names]
            return any(begin <= at.timestamp() < begin + CUT_S for at in times)

        await self.core.eventually(there, f"the cut at {datetime.fromtimestamp(begin, UTC)}")

    async def _cut_now(self) -> float:
        """Asks the exporter for a cut; returns its time on the faked clock."""
        exporter = AsyncControlClient(self.week.home / "run" / "exporter.sock", timeout_s=PATIENCE_S)
        try:
            return float((await exporter.call("cut"))["at"])
        finally:
            await exporter.close()

    async def _quiet(self) -> None:
        """Waits until no next hop has received mail for ``QUIET_S``."""
        before = -1
        while before != len(self.lab.messages):
            before = len(self.lab.messages)
            await asyncio.sleep(QUIET_S)

    async def _before(self, number: int) -> None:
        """Changes the next hops and releases held mail, before a day begins."""
        dead, late = self.lab.hop("dead"), self.lab.hop("late")
        if number in (2, 5):
            await dead.set_behaviour("accept" if number == 2 else "dead_for(9999)")
        await late.set_behaviour("accept" if number % 2 else HOPS["late"])
        for what, on in (("held 0", 2), ("held 4", 5)):
            if number == on and (item := await self.core.item(self.kept[what])) is not None:
                assert item["state"] == "held"
                await ordered(self.core, "release", self.kept[what])

    async def _after(self, number: int) -> None:
        """Acts as an operator in the morning."""
        core, week = self.core, self.week
        await asyncio.to_thread(self._refused_at_the_door)
        if number in (0, 4):
            held = self.kept[f"held {number}"] = await self._send_one("one@late.example", "one@good.example")
            await ordered(core, "hold", held)
        if number in (1, 2):
            gone = await self._send_one("gone@never.example", "gone2@never.example")
            await ordered(core, "delete", gone)
        if number == 3:
            more = await self._send_one("more@never.example")
            await with_more(core, more, "x@good.example", "y@grey.example")
        if number in (0, 1):
            await self._send_one("never@never.example", "also@good.example")  # expires some days later
        recipients = ["injected@good.example", "injected@grey.example"]
        await core.ask("inject_begin", sender="author@sender.example", recipients=recipients, not_before=None)
        await core.ask("inject_data", data=f"X-Ledger-Id: {next(self.numbers)}\r\n\r\n".encode())
        await core.ask("inject_end")
        week.injected += 1

    def _refused_at_the_door(self) -> None:
        with smtplib.SMTP("127.0.0.1", self.core.port, timeout=20) as client:
            client.ehlo("client.example")
            assert client.mail("a@sender.example", ["SIZE=99999999"])[0] == 552
        self.week.refused += 1

    async def _send_one(self, *recipients: str) -> str:
        """Sends a message and waits until the manager has it; at least one recipient must stay queued for a while."""
        queue_id = await asyncio.to_thread(self._send, recipients)
        await self.core.eventually(lambda: self.core.item(queue_id), f"the manager to hear of {queue_id}")
        return queue_id

    async def _mail(self, messages: int, seconds: float = 0.0) -> None:
        """Sends mixed messages, evenly over ``seconds``, or as fast as one client can."""
        began = time.monotonic()
        for number in range(messages):
            names = self.random.choices(list(WEIGHTS), list(WEIGHTS.values()), k=self.random.choice((1, 1, 1, 2)))
            recipients = {
                f"{'bad' if name == 'bad' else 'u'}{self.random.randrange(12)}@{name}.example" for name in names
            }
            await asyncio.to_thread(self._send, sorted(recipients))
            await asyncio.sleep(max(0.0, began + seconds * (number + 1) / messages - time.monotonic()))

    def _send(self, recipients: Sequence[str]) -> str:
        """Sends a message. Returns its queue id; "" if the outcome is not known: it is not sent again."""
        number = next(self.numbers)
        said = f"X-Ledger-Id: {number}\r\nSubject: {number}\r\n\r\n" + "x" * self.random.randrange(2_000) + "\r\n"
        client = self._handed_over(recipients)
        try:
            code, reply = client.data(said.encode())
            assert code == 250, reply
        except (OSError, smtplib.SMTPException):
            self.week.doubtful += 1
            return ""
        finally:
            client.close()
        self.week.acknowledged[self.week.day_of(self.clock.now())] += 1
        self.week.recipients += len(recipients)
        return reply.decode().split()[-1]

    def _handed_over(self, recipients: Sequence[str]) -> smtplib.SMTP:
        """Returns a session up to DATA; tries again while the receiver does not listen or is killed."""
        until = time.monotonic() + PATIENCE_S
        while True:
            client = smtplib.SMTP(timeout=20)
            try:
                client.connect("127.0.0.1", self.core.port)
                client.ehlo("client.example")
                assert client.mail("author@sender.example")[0] == 250
                assert all(client.rcpt(recipient)[0] == 250 for recipient in recipients)
                return client
            except (OSError, smtplib.SMTPException):
                client.close()
                assert time.monotonic() < until
                time.sleep(0.1)


def _count(week: Week, lab: Lab, clock: Clock) -> None:
    """Counts the mail that the next hops got; a message that came again after a kill counts once."""
    for hop in lab.hops:
        name = f"smtp:[{hop.address[0]}]:{hop.address[1]}"
        seen = week.got.setdefault(name, set())
        by_day: Counter[str] = Counter()
        for arrival in hop.messages:
            at = clock.of(arrival.at)
            for recipient in arrival.recipients:
                pair = (arrival.id if arrival.sender else arrival.sha256, recipient)
                by_day[week.day_of(at)] += pair not in seen
                week.beyond[name] += pair not in seen and at > week.until - 2
                week.near_midnight[name] += week.day_of(at - 2) != week.day_of(at + 2)
                seen.add(pair)
        week.by_day[name] = dict(by_day)


async def live(directory: Path, zone: str = "UTC", seed: int = 1) -> Week:
    """Runs the last whole week before today."""
    first = week_of(datetime.now(UTC).date() - timedelta(days=7)).first
    clock = Clock(directory / "clock")
    async with Lab([f"{name}={behaviour}:127.0.0.1:0" for name, behaviour in HOPS.items()], seed=seed) as lab:
        routes = {f"{hop.name}.example": route_to(lab, number) for number, hop in enumerate(lab.hops)}
        routes |= {"*": route_to(lab, 0), "sender.example": route_to(lab, len(lab.hops) - 1)}
        core = TimedCore(directory, routes, {**SECTIONS, "reports": {"zone": zone}}, clock)
        days = [first + timedelta(days=number) for number in range(DAYS)]
        week = Week(core.home, zone, days, core.config)
        try:
            await Living(week, core, lab, seed).all_of_it()
        finally:
            if core._process is not None:
                core.stop()
        _count(week, lab, clock)
    return week


def make_reports(week: Week) -> None:
    """Makes the reports with the pipeline, day by day; in one session, because a start takes seconds."""
    store = Store(week.home / "reports")
    with store.locked():
        session = start("local[*]", store.root / "scratch", QUICK)
        try:
            for day in (*week.days, week.days[-1] + timedelta(days=1)):
                told = make(
                    ReportBuilder(session, store, week.home / "events", lambda stage, share: None), Day(day, week.zone)
                )
                print(f"{day}: {told.words}", flush=True)
        finally:
            end(session)


def faults(week: Week) -> list[str]:
    """Returns what is wrong in the reports of the week."""
    days = {day.isoformat(): gold_of(week.home, f"day={day}") for day in week.days}
    found = [
        fault for day, report in zip(week.days, days.values(), strict=True) for fault in _of_a_day(week, day, report)
    ]
    for (name, before), (_, after) in itertools.pairwise(days.items()):
        if before.balance["queued_at_end"] != after.balance["queued_at_start"]:
            found.append(f"{name}: {before.balance['queued_at_end']} stay, and the next day begins with others")
    totals, by_destination = _sums(days.values())
    whole = gold_of(week.home, week_of(week.days[0]).name)
    found += _differences("the week against its days", whole.total, {name: totals[name] for name in ADDED})
    found += _differences(
        "the week's destinations", whole.by("destinations", "destination", "delivered"), by_destination
    )
    if whole.balance["balances"] is not True:
        found.append(f"the week: {whole.told['words']}")
    # The counts outside the appliance end with the last cut, some seconds after the last midnight.
    totals, by_destination = _sums([*days.values(), gold_of(week.home, f"day={week.days[-1] + timedelta(days=1)}")])
    for name, pairs in week.got.items():
        if not len(pairs) - week.beyond[name] <= by_destination[name] <= len(pairs):
            found.append(f"delivered in all: {name} {by_destination[name]}, not {len(pairs)}")
    more = totals["messages_smtp"] - week.acknowledged.total()
    if not 0 <= more <= week.doubtful:
        found.append(f"{totals['messages_smtp']} messages accepted; {week.acknowledged.total()} had their 250")
    came = totals["recipients"] - totals["recipients_added"] - totals["messages_bounce"] - 2 * week.injected
    if came != week.recipients and not week.doubtful:
        found.append(f"{came} recipients accepted, {week.recipients} had their 250")
    found += _differences("told", totals, {"refused": week.refused, "messages_local": week.injected})
    for name in ("bounced", "expired", "deleted", "deferred"):
        if not totals[name]:
            found.append(f"nothing was {name} in the whole week")
    return found


def _sums(reports: Iterable[Gold]) -> tuple[Counter[str], Counter[str]]:
    totals: Counter[str] = Counter()
    by_destination: Counter[str] = Counter()
    for report in reports:
        totals.update(
            {
                name: report.total[name]
                for name in (*ADDED, *(f"messages_{each}" for each in ("smtp", "local", "bounce")))
            }
        )
        by_destination.update(report.by("destinations", "destination", "delivered"))
    return totals, by_destination


def _of_a_day(week: Week, day: date, report: Gold) -> list[str]:
    name, balance = day.isoformat(), report.balance
    found = [] if report.told["words"] == "It balances." else [f"{name}: {report.told['words']}"]
    for which, cut in (("begin", day), ("end", day + timedelta(days=1))):
        at, wanted = balance.get(which) or 0.0, midnight(cut, week.zone)
        if not wanted - 1 <= at < wanted + CUT_S:  # one just before it may be nearer
            found.append(f"{name}: its {which} is {at - wanted:.1f} s from midnight")
    delivered = report.by("destinations", "destination", "delivered")
    for destination, by_day in week.by_day.items():
        apart = abs(delivered.get(destination, 0) - by_day.get(name, 0))
        if apart > week.near_midnight[destination]:
            found.append(f"{name}: {destination} got {by_day.get(name, 0)}, told {delivered.get(destination, 0)}")
    apart = abs(report.total["messages_smtp"] - week.acknowledged[name])
    if apart > week.doubtful + 1:  # a 250 on its way at midnight
        found.append(f"{name}: {report.total['messages_smtp']} accepted, {week.acknowledged[name]} had their 250")
    return found


def _differences(what: str, found: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    return [
        f"{what}: {name} {found.get(name)}, not {value}" for name, value in wanted.items() if found.get(name) != value
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--zone", default="UTC", help="the time zone whose midnights begin the days")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    shutil.rmtree(given.directory / "home", ignore_errors=True)
    week = asyncio.run(live(given.directory.absolute(), given.zone, given.seed))
    make_reports(week)
    wrong = faults(week)
    for fault in wrong:
        print(f"WRONG {fault}")
    print(f"{week.acknowledged.total()} messages in {DAYS} days; to see them: ./run --config {week.config}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
