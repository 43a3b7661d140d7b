"""A made-up week of mail with its reports, to look at: ``python -m bench.made_week HOME``.

Eight quiet days with more mail by day than by night, and a last one on which a provider turns mail away, a list of dead
addresses bounces and one host is dead. Events and cuts are written below HOME, then each day's report is made by the pipeline
itself. ``bench.screens`` takes its pictures of it.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

from appliance.pipeline.build_day import ReportBuilder
from appliance.pipeline.days import Day
from appliance.pipeline.run import make
from appliance.pipeline.session import end, start
from appliance.pipeline.store import Store
from tests.appliance.pipeline.sample_events import BOUNCED, DEFERRED, DELIVERED, SampleMail

__all__ = ["make_week"]

DAYS = 8
A_DAY = 6_000  # messages
BIG = {"bigmail.example": 30, "postbox.example": 18, "webmail.example": 12, "university.example": 6, "city.example": 4}
SMALL = 60  # further domains, fewer and fewer mails each
HOSTS = {"bigmail.example": "mx.bigmail.example", "webmail.example": "mx2.bigmail.example"}  # one provider
SLOW, DEAD = "postbox.example", "city.example"  # on the last day
GREYLISTED = (
    "450",
    "4.7.1",
    "450 4.7.1 <{to}>: too many messages from 192.0.2.25, slow down; see https://postbox.example/help",
)
UNKNOWN = ("bounced", "5.1.1", "550 5.1.1 <{to}>: Recipient address rejected: User unknown")
NO_ROUTE = ("deferred", "4.4.1", "connect to mx.city.example[198.51.100.9]:25: Connection timed out")
RETRY_S = (300, 600, 1_200, 2_400, 4_000)
SENDERS = (
    ("news@shop.example", 30),
    ("invoices@shop.example", 12),
    ("no-reply@tickets.example", 9),
    ("lists@club.example", 8),
)


@dataclass
class Week:
    last: date
    zone: str = "Europe/Vienna"
    seed: int = 7
    sample: SampleMail = field(default_factory=SampleMail)

    def __post_init__(self) -> None:
        self._random = Random(self.seed)
        self._names = [*BIG, *(f"company{number}.example" for number in range(SMALL))]
        self._weights = [*BIG.values(), *(20 / (number + 2) for number in range(SMALL))]
        self._due: list[tuple[float, int, Any]] = []
        self._order = itertools.count()

    def begin(self, day: date) -> float:
        return datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(self.zone)).timestamp()

    def write(self, events: Path) -> list[date]:
        days = [self.last - timedelta(days=back) for back in range(DAYS - 1, -1, -1)]
        self.sample.cut(events, self.begin(days[0]), ids=True)
        for day in days:
            midnight = self.begin(day + timedelta(days=1))
            self._plan(day)
            while self._due and self._due[0][0] < midnight:
                at, _, step = heapq.heappop(self._due)
                step(at)
            self.sample.cut(events, midnight, ids=True)
            self.sample.write(events)
        return days

    def _at(self, at: float, step: Any) -> None:
        heapq.heappush(self._due, (at, next(self._order), step))

    def _plan(self, day: date) -> None:
        begin, weekend = self.begin(day), 0.45 if day.weekday() >= 5 else 1.0
        for hour in range(24):
            busy = 0.25 + max(0.0, math.sin((hour - 5) / 15 * math.pi)) * (2.2 if hour == 9 else 1.3)
            for _ in range(int(A_DAY / 24 * busy * weekend * self._random.uniform(0.9, 1.1))):
                self._at(begin + 3600 * hour + self._random.uniform(0, 3600), self._arrive)
            for _ in range(self._random.randrange(2, 9)):
                self._at(begin + 3600 * hour + self._random.uniform(0, 3600), self._refuse)
        for minute in range(0, 1440, 10):
            self._at(begin + 60 * minute, self._windows)

    def _trouble(self, at: float) -> bool:
        """On the last day from half past nine on."""
        return at > self.begin(self.last) + 9.5 * 3600

    def _arrive(self, at: float) -> None:
        random = self._random
        (domain,) = random.choices(self._names, self._weights)
        to = [f"user{random.randrange(400)}@{domain}" for _ in range(random.choice((1, 1, 1, 1, 2, 4)))]
        (sender,) = random.choices([*(name for name, _ in SENDERS), ""], [*(share for _, share in SENDERS), 41])
        sender = sender or f"person{random.randrange(120)}@office{random.randrange(9)}.example"
        queue_id = self.sample.accept(
            at, to, sender, size_bytes=int(random.lognormvariate(9.3, 1.2)),
            client_address=f"192.0.2.{random.randrange(10, 30)}",
        )  # fmt: skip
        dead_list = sender.startswith("news@") and self._trouble(at) and random.random() < 0.3
        self._at(at + random.uniform(0.01, 0.2), lambda now: self._attempt(queue_id, now, to, domain, dead_list, 0))

    def _attempt(self, queue_id: str, at: float, to: list[str], domain: str, dead_list: bool, tries: int) -> None:
        random, trouble = self._random, self._trouble(at)
        slow, dead = trouble and domain == SLOW, trouble and domain == DEAD
        again, verdicts = [], {}
        for number in range(len(to)):
            chance = random.random()
            if number not in self.sample.left.get(queue_id, ()):
                continue
            verdict = DELIVERED
            if dead:
                verdict = NO_ROUTE
            elif slow and chance < 0.6:
                verdict = ("deferred", "4.7.1", GREYLISTED[2].format(to=to[number]))
            elif chance < (0.5 if dead_list else 0.012):
                verdict = ("bounced", BOUNCED[1], UNKNOWN[2].format(to=to[number]))
            elif chance > 0.975 and tries == 0:
                verdict = DEFERRED
            verdicts[number] = verdict
            again += [number] if verdict[0] == "deferred" else []
        host = HOSTS.get(domain, f"mx.{domain}")
        delays = (at % 0.05, random.expovariate(40), random.expovariate(9), random.expovariate(3 if not slow else 0.2))
        relay = "none" if dead else f"{host}[198.51.100.{len(domain)}]:25"
        tls = (
            ""
            if domain.endswith("7.example")
            else "TLSv1.2 ECDHE-RSA-AES128-GCM-SHA256"
            if "9" in domain
            else "TLSv1.3 TLS_AES_256_GCM_SHA384"
        )
        self.sample.attempt(queue_id, at, verdicts, f"smtp:{domain}", relay, delays, tries, tls)
        if again:
            self.sample.replaced(queue_id, at, tries)
            wait = RETRY_S[min(tries, len(RETRY_S) - 1)]
            self._at(at + wait, lambda now: self._attempt(queue_id, now, to, domain, dead_list, tries + 1))
        else:
            self.sample.finish(queue_id, at)

    def _refuse(self, at: float) -> None:
        self.sample.refuse(at, f"203.0.113.{self._random.randrange(6)}")

    def _windows(self, at: float) -> None:
        for domain in BIG:
            trouble = self._trouble(at)
            dead = trouble and domain == DEAD
            window = 1.0 if dead else 3.2 if trouble and domain == SLOW else 20.0
            queued = sum(1 for _ in range(self._random.randrange(4))) + (
                300 if trouble and domain in (SLOW, DEAD) else 0
            )
            self.sample.window(
                at, f"smtp:{domain}", window, min(queued, int(window)), queued, at + 300 if dead else 0.0
            )


def make_week(home: Path, last: date, zone: str = "Europe/Vienna") -> list[date]:
    """Below ``home``: events, cuts, and the reports of its days. The days."""
    days = Week(last, zone).write(home / "events")
    store = Store(home / "reports")
    with store.locked():
        session = start("local[*]", store.root / "scratch")
        try:
            for day in days:
                print(
                    day,
                    make(
                        ReportBuilder(session, store, (home / "events").resolve(), lambda *_: None), Day(day, zone)
                    ).words,
                    flush=True,
                )
        finally:
            end(session)
    return days


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.made_week", description=__doc__.partition("\n")[0])
    parser.add_argument("home", type=Path, help="its events and reports go below it")
    parser.add_argument("--last", type=date.fromisoformat, help="the last day; default: yesterday")
    arguments = parser.parse_args(argv)
    make_week(arguments.home, arguments.last or datetime.now(UTC).date() - timedelta(days=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
