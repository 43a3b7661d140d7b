"""The CPU cost of the scheduler, alone and without a clock: ``python -m bench.scheduler [--short]``.

A pure ``Scheduler`` keeps a constant number of active messages: each finished message is replaced by a new one. Time is a
number that grows by ``STEP_S`` for each entry. Calls are timed in groups as the manager makes them: some verdicts are
reported, some messages admitted, then entries are selected until all deliveries have one. Prints CPU time, medians of several
rounds.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import random
import statistics
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import process_time

from mailcore.scheduler.entry import Entry
from mailcore.scheduler.parameters import Parameters, TransportParameters
from mailcore.scheduler.scheduler import Scheduler
from mailcore.supervisor.child import COLLECT_AFTER

__all__ = ["Cost", "Load", "main"]

WANTED_US = 40.0  # wanted: select + report at 20 000 active messages in 2 000 destinations
ACTIVE, DESTINATIONS = 20_000, 2_000
GROWTH_ACTIVE = (500, 2_000, 20_000, 64_000)
GROWTH_DESTINATIONS = (1, 20, 2_000, 20_000)
AT_ONCE = 100  # deliveries; a transport's process_limit
GROUP = 20  # verdicts that share a sync and so are reported in one turn of the manager's loop
STEP_S = 0.001
BULK_RECIPIENTS = 100_000
BROKEN_SHARE = 10  # one in 10 destinations refuses at a time
BROKEN_S = 5.0  # then other destinations refuse
NO_LIMIT = 1_000_000

Recipients = list[tuple[int, str, str]]


@dataclass(slots=True)
class Cost:
    """Holds the CPU seconds of one round, by call, and its number of entries."""

    entries: int = 0
    messages: int = 0  # admitted
    admit_s: float = 0.0
    select_s: float = 0.0
    report_s: float = 0.0
    read_s: float = 0.0  # wanted, and admit of a further batch
    defer_s: float = 0.0
    deferred: int = 0  # entries that defer gave

    @property
    def entry_us(self) -> float:
        return (self.select_s + self.report_s) * 1e6 / max(self.entries, 1)

    @property
    def admit_us(self) -> float:
        return self.admit_s * 1e6 / max(self.messages, 1)

    @property
    def other_us(self) -> float:
        return (self.read_s + self.defer_s) * 1e6 / max(self.entries + self.deferred, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """Describes the mail and the destinations of a measurement."""

    name: str
    active: int = ACTIVE
    destinations: int = DESTINATIONS
    window: int = 20  # the most deliveries at once to one destination
    at_once: int = AT_ONCE
    held: int = 0  # this number of destinations never finish a delivery
    sizes: int = 1  # messages have 1 to ``sizes`` recipients, each for another destination
    bulk: int = 0  # recipients of the one big message, an entry each
    broken: bool = False

    def parameters(self) -> Parameters:
        transport = TransportParameters(
            process_limit=self.at_once,
            initial_destination_concurrency=1 if self.broken else min(5, self.window),  # with 1, a failure is a cohort
            destination_concurrency_limit=self.window,
            destination_recipient_limit=1 if self.bulk else 50,
        )
        return Parameters(
            message_active_limit=NO_LIMIT,
            minimal_backoff_time=BROKEN_S / 2,
            transports={"smtp": transport},
            idle_destination_limit=1_000,
        )


@dataclass(slots=True)
class _Bulk:
    """Holds the big message; its recipients go to all destinations in turn."""

    queue_id: str
    left: int  # unread
    number: int = 0


@dataclass
class Load:
    """Holds a scheduler and the mail that keeps it busy."""

    mix: Mix
    seed: int = 1
    cost: Cost = field(default_factory=Cost)

    def __post_init__(self) -> None:
        mix = self.mix
        self.scheduler = Scheduler(mix.parameters())
        self._chance = random.Random(self.seed)
        self._names = [f"smtp:d{number}.example.org" for number in range(mix.destinations)]
        self._held = frozenset(self._names[: mix.held])
        self._now = 0.0
        self._number = 0
        self._new: list[tuple[str, Recipients]] = []  # not admitted yet
        self._left: dict[str, int] = {}  # queue id -> recipients without a verdict
        self._flying: deque[Entry] = deque()
        self._stuck = 0  # entries in flight to held destinations
        self._bulk: _Bulk | None = None
        if mix.bulk:
            self._admit_bulk()
        for number in range(mix.active - bool(mix.bulk)):
            self._new_message(number % mix.destinations)
        self._admit()
        self._select()

    def round(self, entries: int) -> Cost:
        """Selects ``entries`` entries, and returns their cost. Raises RuntimeError if none can be selected any more."""
        self.cost = Cost()
        while self.cost.entries < entries:
            before = self.cost.entries + self.cost.deferred
            self._turn()
            if self.cost.entries + self.cost.deferred == before and not self._flying:
                raise RuntimeError(f"{self.mix.name}: nothing is selected any more")
        return self.cost

    def _turn(self) -> None:
        """Makes the calls of one turn of the manager's loop."""
        ended = [self._flying.popleft() for _ in range(min(GROUP, len(self._flying)))]
        self._now += STEP_S * max(len(ended), 1)
        failures = [self._broken(entry.destination) for entry in ended]
        report, now = self.scheduler.report, self._now
        begun = process_time()
        for entry, failed in zip(ended, failures, strict=True):
            report(entry.number, entry.recipients, failed, now)
        self.cost.report_s += process_time() - begun
        self.cost.entries += len(ended)
        for entry in ended:
            self._ended(entry)
        self._admit()
        self._read()
        self._select()
        self._defer()

    def _broken(self, destination: str) -> bool:
        if not self.mix.broken:
            return False
        number = int(destination.partition(".")[0][6:])
        return (number + int(self._now / BROKEN_S)) % BROKEN_SHARE == 0

    def _ended(self, entry: Entry) -> None:
        left = self._left[entry.queue_id] - len(entry.recipients)
        if left:
            self._left[entry.queue_id] = left
            return
        del self._left[entry.queue_id]
        if self._bulk is not None and entry.queue_id == self._bulk.queue_id:
            self._admit_bulk()
        else:
            self._new_message(
                self._chance.randrange(self.mix.held, self.mix.destinations)
            )  # those held would only grow

    def _new_message(self, first: int) -> None:
        """For the destination of that number and the next ones."""
        self._number += 1
        queue_id = f"Q{self._number}"
        names = self._names
        self._left[queue_id] = count = self._chance.randint(1, self.mix.sizes)
        self._new.append(
            (queue_id, [(number, "smtp", names[(first + number) % len(names)]) for number in range(count)])
        )

    def _admit(self) -> None:
        new, self._new = self._new, []
        admit, now = self.scheduler.admit, self._now
        begun = process_time()
        for queue_id, recipients in new:
            admit(queue_id, 0, recipients, now)
        self.cost.admit_s += process_time() - begun
        self.cost.messages += len(new)

    def _admit_bulk(self) -> None:
        self._number += 1
        bulk = self._bulk = _Bulk(f"B{self._number}", self.mix.bulk)
        self._left[bulk.queue_id] = self.mix.bulk
        first = self._batch(bulk, self.scheduler.first_batch)
        self.scheduler.admit(bulk.queue_id, bulk.left, first, self._now)

    def _batch(self, bulk: _Bulk, most: int) -> Recipients:
        count = min(most, bulk.left)
        names = self._names
        batch = [(number, "smtp", names[number % len(names)]) for number in range(bulk.number, bulk.number + count)]
        bulk.number += count
        bulk.left -= count
        return batch

    def _read(self) -> None:
        begun = process_time()
        wanted = self.scheduler.wanted(self._now)
        self.cost.read_s += process_time() - begun
        for queue_id, count in wanted:
            bulk = self._bulk
            assert bulk is not None
            assert bulk.queue_id == queue_id  # no other has unread recipients
            batch = self._batch(bulk, count)
            begun = process_time()
            self.scheduler.admit(queue_id, bulk.left, batch, self._now)
            self.cost.read_s += process_time() - begun

    def _select(self) -> None:
        room = self.mix.at_once - len(self._flying) - self._stuck
        select, now = self.scheduler.select, self._now
        selected: list[Entry] = []
        begun = process_time()
        while len(selected) < room and (entry := select(now)) is not None:
            selected.append(entry)
        self.cost.select_s += process_time() - begun
        for entry in selected:
            if entry.destination in self._held:
                self._stuck += 1
            else:
                self._flying.append(entry)

    def _defer(self) -> None:
        """Mail of dead destinations is deferred without a try, and what is due again comes in its place."""
        defer, report, now = self.scheduler.defer, self.scheduler.report, self._now
        deferred: list[Entry] = []
        begun = process_time()
        while len(deferred) < GROUP and (deferral := defer(now)) is not None:
            report(deferral.entry.number, deferral.entry.recipients, False, now)
            deferred.append(deferral.entry)
        self.cost.defer_s += process_time() - begun
        self.cost.deferred += len(deferred)
        for entry in deferred:
            self._ended(entry)
        self._admit()


@dataclass(frozen=True, slots=True)
class Result:
    """Medians of some rounds of one mix; microseconds."""

    mix: str
    active: int
    destinations: int
    entry_us: float
    admit_us: float
    other_us: float

    def line(self) -> str:
        return (
            f"{self.mix:34}{self.active:>8,}{self.destinations:>14,}{self.entry_us:>17.1f}{self.admit_us:>8.1f}"
            f"{self.other_us:>15.1f}"
        )


HEADING = f"{'us (medians)':34}{'active':>8}{'destinations':>14}{'select + report':>17}{'admit':>8}{'read, defer':>15}"


def measure(mix: Mix, entries: int, rounds: int) -> Result:
    """One round goes before and is not counted."""
    load = Load(mix)
    load.round(entries)
    costs = [load.round(entries) for _ in range(rounds)]

    def middle(of: Callable[[Cost], float]) -> float:
        return statistics.median(of(cost) for cost in costs)

    return Result(
        mix.name,
        mix.active,
        mix.destinations,
        middle(lambda cost: cost.entry_us),
        middle(lambda cost: cost.admit_us),
        middle(lambda cost: cost.other_us),
    )


def mixes() -> list[Mix]:
    """At 20 000 active messages in 2 000 destinations."""
    return [
        Mix(name="all ready"),
        Mix(name="every window full, one opens", window=1, at_once=DESTINATIONS),
        Mix(name="19 of 20 windows full for good", window=1, at_once=DESTINATIONS, held=DESTINATIONS * 19 // 20),
        Mix(name="1 to 10 recipients each", sizes=10),
        Mix(name="one of 100 000 entries, singles", bulk=BULK_RECIPIENTS),
        Mix(name="the same, 1 to 10 recipients", bulk=BULK_RECIPIENTS, sizes=10),
        Mix(name="one in ten destinations dead", broken=True),
    ]


def growth(active: Sequence[int], destinations: Sequence[int]) -> Iterator[Mix]:
    """All ready; a destination has a message at least."""
    for some in destinations:
        for count in active:
            if some <= count:
                yield Mix(name="all ready", active=count, destinations=some)


def growth_lines(results: Sequence[Result]) -> list[str]:
    """By destinations: microseconds at each number of active messages, and how they grow against the logarithm."""
    lines = [f"{'destinations':>12}" + f"{'active: us an entry (select + report)':>58}{'growth':>10}{'log2':>7}"]
    for some in dict.fromkeys(result.destinations for result in results):
        mine = sorted((result for result in results if result.destinations == some), key=lambda each: each.active)
        first, last = mine[0], mine[-1]
        steps = "".join(f"{f'{each.active:,}: {each.entry_us:.1f}':>16}" for each in mine)
        grown = last.entry_us / first.entry_us
        logarithm = math.log2(last.active) / math.log2(first.active)
        lines.append(f"{some:>12,}{steps:<64}{grown:>10.2f}{logarithm:>7.2f}")
    return lines


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.scheduler", description=__doc__.partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="one round of 2 000 entries: a quick check, no result")
    parser.add_argument("--entries", type=int, default=20_000, help="of one round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-growth", action="store_true", help="leave the other sizes out")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all results")
    arguments = parser.parse_args(argv)
    if arguments.short:
        arguments.entries, arguments.rounds = 2_000, 1
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _arguments(argv)
    gc.set_threshold(*COLLECT_AFTER)  # as in the manager
    results: list[Result] = []
    print(HEADING)
    for mix in mixes():
        results.append(measure(mix, arguments.entries, arguments.rounds))
        print(results[-1].line(), flush=True)
    worst = max(result.entry_us for result in results)
    print(f"worst: {worst:.1f} us an entry, wanted <= {WANTED_US:g}")
    grown: list[Result] = []
    if not arguments.no_growth:
        for mix in growth(GROWTH_ACTIVE, GROWTH_DESTINATIONS):
            print(f"{mix.active} active in {mix.destinations}", file=sys.stderr, flush=True)
            grown.append(measure(mix, arguments.entries, arguments.rounds))
        print("\n".join(growth_lines(grown)))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([asdict(result) for result in [*results, *grown]], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
