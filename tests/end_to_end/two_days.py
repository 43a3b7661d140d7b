"""Two days of the real appliance on a faked clock, with every fate of mail and processes killed in between, and a ledger of it.

The ledger is kept outside: by the client (what got its 250, what is in doubt because the connection broke at the final dot),
by the operator (what was ordered) and by the next hops of the lab (what arrived). Each recipient has one fate, which its
domain or an order decides. A message in doubt is not sent again: if it was accepted, it has the fates of its recipients.

A kill and an order take turns, so that no order is lost with the process that was to carry it out; mail is under way at each
kill. The clock is set from the evening to just before midnight, and the core is stopped until the next morning.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import smtplib
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock_time
from pathlib import Path
from zoneinfo import ZoneInfo

from bench.faked_clock import Clock, TimedCore
from mailcore.lab.lab import Lab
from tests.end_to_end.appliance import Appliance
from tests.end_to_end.reporting import ordered, with_more
from tests.eventually import eventually
from tests.running.running_core import Sections, route_to

__all__ = ["DAYS", "ZONE", "Ledger", "Sent", "live"]

ZONE = "Asia/Kolkata"  # its days begin half an hour beside those of UTC, so that each lies in two directories
DAYS = [date(2026, 11, 20), date(2026, 11, 21)]
HOPS = {
    "good": "accept",
    "grey": "greylist(1)",
    "bad": "reject(bad*@bad.example, 550)",
    "never": "reject(*@never.example, 451)",
    "slow": "slow(0.5, final, 0.5)",
    "late": "reject(*@late.example, 450)",
    "dead": "dead_for(9999)",
    "other": "accept",
    "author": "accept",
}
WINDOW = 5
LIFETIME_S = 45.0  # in real seconds: time while the core is stopped does not count (law: clock-jumps-harmless)
SECTIONS: Sections = {
    "queue": {"segment_bytes": 1 << 16},
    "receiver": {"processes": 2, "message_size_limit": 1_000_000, "recipient_limit": 2_000, "tag_header": "X-Campaign"},
    "deliverer": {"processes": 2},
    "transports.smtp": {"destination_concurrency_limit": WINDOW},
    "scheduler": {"maximal_queue_lifetime": LIFETIME_S, "bounce_queue_lifetime": LIFETIME_S},
    "export": {"enabled": True, "interval_s": 0.5, "window_interval_s": 2},
    "reports": {"zone": ZONE},
}
VICTIMS = (
    *("manager", "deliverer.0", "everything", "receiver.0", "exporter"),
    *("manager", "deliverer.1", "supervisor", "receiver.1", "control"),
)
MANY = 1_100  # recipients of one message: more than one RECIPIENTS record holds
SPOOLED_BYTES = 300_000  # above inline_limit
BEFORE_MIDNIGHT_S = 6.0
CUT_S = 10.0  # the exporter counts the queue this long after midnight at the latest
PATIENCE_S = 60.0
AUTHOR = "author@sender.example"


@dataclass
class Sent:
    """A message of the client. ``fates``: the status of the row with which each recipient ends, "" if it stays queued."""

    id: str
    fates: dict[str, str]
    sender: str = AUTHOR
    acknowledged: bool = False
    queue_id: str = ""


@dataclass
class Ledger:
    """What client, operator and next hops know."""

    home: Path
    sent: dict[str, Sent] = field(default_factory=dict)
    refused: int = 0  # replies of 5xx at MAIL and RCPT
    injected: int = 0  # messages over the control socket, of one recipient each: delivered
    scheduled: int = 0  # of these kind, waiting beyond the end
    added: list[str] = field(default_factory=list)  # recipients that an operator added: delivered
    kills: list[str] = field(default_factory=list)
    got: list[tuple[str, str, str]] = field(default_factory=list)  # message, recipient, hop of each arrival, in order
    bounces: list[tuple[str, str]] = field(default_factory=list)  # digest, recipient of each bounce that arrived
    queued: int = 0  # recipients at the end, as the core counts them


def midnight(day: date) -> float:
    return datetime.combine(day, clock_time(0), ZoneInfo(ZONE)).timestamp()


def fate_of(recipient: str) -> str:
    name, _, domain = recipient.partition("@")
    if domain == "bad.example":
        return "bounced" if name.startswith("bad") else "delivered"
    return "expired" if domain in ("never.example", "dead.example") else "delivered"


class Life:
    """Lives the days."""

    def __init__(self, core: TimedCore, lab: Lab, ledger: Ledger, kills: int, messages: int, seed: int) -> None:
        self.core, self.lab, self.ledger, self.clock = core, lab, ledger, core.clock
        self.kills, self.messages = kills, messages
        self.random = random.Random(seed)
        self.numbers = itertools.count(1)
        self.victims = itertools.cycle(VICTIMS)

    async def all_of_it(self) -> None:
        self.clock.set(midnight(DAYS[0]) - BEFORE_MIDNIGHT_S)
        await self.core.start()
        await self._cut_behind(midnight(DAYS[0]))  # from here on it balances
        for day in DAYS:
            await self._stop()
            self.clock.set(midnight(day) + 36_000)
            await self.core.start()
            orders = self._orders(day)
            for _ in range(self.kills // len(DAYS)):
                await self._a_kill_under_load()
                await next(orders, self._nothing)()
            for order in orders:
                await order()
            self.clock.set(midnight(day + timedelta(days=1)) - BEFORE_MIDNIGHT_S)
            await asyncio.gather(self._mail(self.messages), self._cut_behind(midnight(day + timedelta(days=1))))
        await self._stop()
        # Behind the time in which what was deleted on the last day can be restored.
        self.clock.set(midnight(DAYS[-1] + timedelta(days=1)) + 46_800)
        await self.core.start()
        await self._rest()

    async def _nothing(self) -> None:
        pass

    async def _stop(self) -> None:
        await self.core.control.close()
        self.core.stop()

    # --- mail

    async def _a_kill_under_load(self) -> None:
        load = asyncio.create_task(self._mail(self.messages))
        await asyncio.sleep(self.random.uniform(0.1, 0.8))
        victim = next(self.victims)
        self.ledger.kills.append(victim)
        if victim == "everything":
            await self.core.again()
        else:
            await self.core.kill(victim)
        await load

    async def _mail(self, messages: int) -> None:
        """Sends messages of one to four recipients; some with data in the spool, one to very many."""
        names = ("good", "good", "good", "grey", "bad", "slow", "never", "dead")
        for number in range(messages):
            hops = self.random.choices(names, k=self.random.choice((1, 1, 2, 4)))
            who = self.random.choices(("bad", "u"), k=len(hops))
            recipients = {
                f"{name}{self.random.randrange(9)}@{hop}.example" for name, hop in zip(who, hops, strict=True)
            }
            sender = ("", AUTHOR, "bad-author@bad.example", AUTHOR)[number % 4]
            size = SPOOLED_BYTES if number % 5 == 0 else self.random.randrange(3_000)
            await self._send(*sorted(recipients), sender=sender, size=size)

    async def _send(self, *recipients: str, sender: str = AUTHOR, size: int = 100) -> Sent:
        sent = Sent(f"m{next(self.numbers)}", {each: fate_of(each) for each in recipients}, sender)
        self.ledger.sent[sent.id] = sent
        await asyncio.to_thread(self._deliver, sent, size)
        return sent

    def _deliver(self, sent: Sent, size: int) -> None:
        head = f"X-Ledger-Id: {sent.id}\r\nMessage-ID: <{sent.id}@ledger.example>\r\nX-Campaign: c{len(sent.id)}\r\n"
        client = self._handed_over(sent)
        try:
            code, reply = client.data(
                head.encode() + b"\r\n" + b"x" * 70 + b"\r\n" + (b"y" * 68 + b"\r\n") * (size // 70)
            )
            assert code == 250, reply
            sent.acknowledged, sent.queue_id = True, reply.decode().split()[-1]
        except (OSError, smtplib.SMTPException):
            pass  # in doubt
        finally:
            client.close()

    def _handed_over(self, sent: Sent) -> smtplib.SMTP:
        """A session up to DATA; tried again while the receiver is away."""
        until = time.monotonic() + PATIENCE_S
        while True:
            client = smtplib.SMTP(timeout=20)
            try:
                client.connect("127.0.0.1", self.core.port)
                client.ehlo("client.example")
                replies = [client.mail(sent.sender), *(client.rcpt(each) for each in sent.fates)]
                assert {code for code, _ in replies} == {250}, replies
                return client
            except (OSError, smtplib.SMTPException, AssertionError):
                client.close()
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)

    def _refused_at_the_door(self) -> None:
        with smtplib.SMTP("127.0.0.1", self.core.port, timeout=20) as client:
            client.ehlo("client.example")
            assert client.mail("a@sender.example", ["SIZE=99999999"])[0] == 552
            assert client.mail("a@sender.example")[0] == 250
            for _ in range(2):
                assert client.rcpt("no address at all@")[0] >= 500
            client.rset()
        self.ledger.refused += 3

    # --- the operator

    def _orders(self, day: date) -> Iterator[Callable[[], Awaitable[None]]]:
        """One for after each kill; the others follow."""
        yield from (self._hold_and_release, self._delete, self._return, self._reroute)
        yield from (self._add, self._suspend, self._inject, self._many)
        yield lambda: asyncio.to_thread(self._refused_at_the_door)
        if day == DAYS[0]:
            yield self._keep_held

    async def _waiting(self, recipient: str) -> Sent:
        """A message that an order finds in the queue."""
        while not (sent := await self._send(recipient)).acknowledged:
            pass
        await self.core.insist(lambda: self.core.until_in(sent.queue_id, "retry"))
        return sent

    async def _order(self, operation: str, sent: Sent, fate: str) -> None:
        await self.core.insist(lambda: ordered(self.core, operation, sent.queue_id))
        sent.fates = dict.fromkeys(sent.fates, fate)

    async def _hold_and_release(self) -> None:
        sent = await self._waiting("held@late.example")
        await self._order("hold", sent, "")
        await self.core.insist(lambda: self.core.until_in(sent.queue_id, "hold"))
        await self.lab.hop("late").set_behaviour("accept")
        await self._order("release", sent, "delivered")
        await self.core.until_removed(sent.queue_id)
        await self.lab.hop("late").set_behaviour(HOPS["late"])

    async def _keep_held(self) -> None:
        await self._order("hold", await self._waiting("kept@late.example"), "")

    async def _delete(self) -> None:
        await self._order("delete", await self._waiting("gone@late.example"), "deleted")

    async def _return(self) -> None:
        await self._order("bounce", await self._waiting("back@late.example"), "bounced")

    async def _reroute(self) -> None:
        sent = await self._waiting("moved@late.example")
        other = route_to(self.lab, list(HOPS).index("other"))

        async def moved() -> bool:
            return bool((await self.core.ask("reroute", queue_ids=[sent.queue_id], route=other))["changed"])

        await self.core.insist(lambda: self.core.eventually(moved, "the new route"))
        await self.core.until_removed(sent.queue_id)

    async def _add(self) -> None:
        sent = await self._waiting("first@never.example")
        more = [f"more{len(self.ledger.added)}@{domain}" for domain in ("good.example", "grey.example")]
        await self.core.insist(lambda: with_more(self.core, sent.queue_id, *more))
        self.ledger.added += more

    async def _suspend(self) -> None:
        host, port = self.lab.hop("slow").address
        destination = f"smtp:[{host}]:{port}"
        await self.core.insist(lambda: self.core.ask("suspend", destination=destination))
        await self._send("later@slow.example", "now@good.example")
        await asyncio.sleep(1.5)
        await self.core.insist(lambda: self.core.ask("resume", destination=destination))

    async def _inject(self) -> None:
        await self.core.insist(lambda: self.core.inject("injected@good.example"))
        self.ledger.injected += 1
        await self.core.insist(
            lambda: self.core.inject("later@good.example", not_before=self.clock.now() + 30 * 86_400)
        )
        self.ledger.scheduled += 1

    async def _many(self) -> None:
        await self._send(*(f"r{number}@good.example" for number in range(MANY)), size=SPOOLED_BYTES)

    # --- counting

    async def _cut_behind(self, begin: float) -> None:
        """Waits for the count that the exporter makes by itself after midnight."""

        def there() -> bool:
            names = [path.name for path in (self.ledger.home / "events" / "cuts").glob("[0-9]*Z.json")]
            times = [datetime.strptime(name, "%Y-%m-%dT%H%M%S.%fZ.json").replace(tzinfo=UTC) for name in names]
            return any(begin <= at.timestamp() < begin + CUT_S for at in times)

        await eventually(there, f"the count at {datetime.fromtimestamp(begin, UTC)}")

    async def _rest(self) -> None:
        """Until everything has its fate, and is exported and counted."""
        held = sum(fate == "" for sent in self.ledger.sent.values() for fate in sent.fates.values())
        waiting = held + self.ledger.scheduled

        async def rest() -> bool:
            self.ledger.queued = int((await self.core.size())["recipients"])
            return self.ledger.queued == waiting

        await self.core.insist(lambda: self.core.eventually(rest, f"only {waiting} recipients to be queued"))

        async def deleted() -> bool:
            return not await self.core.listed(lane="deleted")

        await self.core.insist(lambda: self.core.eventually(deleted, "deleted mail to be gone"))
        await asyncio.sleep(2.0)  # for what the next hops should not get any more
        await Appliance.ask(self.core, "export", "--cut")


async def live(directory: Path, kills: int, messages: int, seed: int = 1) -> Ledger:
    """``messages`` are sent around each kill and each midnight."""
    clock = Clock(directory / "clock" / "now")
    async with Lab([f"{name}={behaviour}:127.0.0.1:0" for name, behaviour in HOPS.items()], seed=seed) as lab:
        routes = {f"{hop.name}.example": route_to(lab, number) for number, hop in enumerate(lab.hops)}
        routes |= {"*": route_to(lab, 0), "sender.example": route_to(lab, len(lab.hops) - 1)}
        core = TimedCore(directory / "core", routes, SECTIONS, clock)
        ledger = Ledger(core.home)
        try:
            await Life(core, lab, ledger, kills, messages, seed).all_of_it()
        finally:
            await core.control.close()
            if core._process is not None:
                core.stop()
        for arrival in sorted(lab.messages, key=lambda each: each.at):
            for recipient in arrival.recipients:
                if arrival.id:
                    ledger.got.append((arrival.id, recipient, arrival.hop))
                elif not arrival.sender:
                    ledger.bounces.append((arrival.sha256, recipient))
    return ledger
