"""Two kinds of queue on a simulated clock, built of the log's own parts: lanes, and one log (bench.one_log)."""

from __future__ import annotations

import heapq
import random
import resource
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench.counting_disk import PAGE_BYTES, CountingDisk
from bench.one_log_runners import Counted, LaneRunner, OneLogRunner, damaged
from mailcore.envelope import DataPlace, Envelope, Recipient, Status, Verdict
from mailcore.log.lane import LaneWriter
from mailcore.log.reader import LaneReader
from mailcore.log.record import RecordType
from mailcore.queue.lanes import Ladder
from mailcore.queue.marks import Marks
from mailcore.queue.queue_id import QueueIds
from mailcore.queue.records import (
    Delivery,
    Finish,
    Place,
    Replaced,
    Start,
    append_envelope,
    encode,
)

__all__ = ["KINDS", "Queue"]

KINDS = ("lanes", "one log")
SEGMENT_BYTES = 32 << 20  # the default of segment_bytes
CHECKPOINT_S = 1.0  # of checkpoint_interval_s
SYNC_S = 0.002
CARRY_BYTES = 16 << 10  # of carry_limit
CARRIED_PASSES = 2
LADDER = Ladder([1, 5, 30, 60, 300, 600, 1200, 2400, 4000], 300, 4000)
INTERVALS = (0, 300, 600, 1200, 2400, 4000)  # of the ladder that a backoff can reach, and new mail
LIFETIME_S = 5 * 86_400
DELIVERED_AT_ONCE = 0.85
DELIVERED_LATER = 0.5  # of those left, at each later attempt
HOPELESS = 0.02  # of those deferred: never delivered
DELIVERY_S = 0.1  # mean of an attempt
SIZES = (4 << 10, 60 << 10)  # bytes; small ones are more frequent
DESTINATION = "smtp:example.org"
DATA = random.Random(4).randbytes(SIZES[1] + 1)


class Mail(NamedTuple):
    """A message that is being worked on, or rests."""

    envelope: Envelope
    lane: str
    offset: int
    end: int
    start: int  # offset of its START
    fate: int  # the pass that delivers it; 0: none does


class Queue:
    """Either kind of queue, on a simulated clock."""

    def __init__(self, kind: str, directory: Path, messages: int, rate: float, seed: int) -> None:
        self.counted = Counted(kind, rate, messages)
        self._one = kind == "one log"
        self._disk = CountingDisk()
        self._directory = directory
        self._random = random.Random(seed)
        self._now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._ids = QueueIds(0, lambda: self._now)
        self._writers: dict[str, LaneWriter] = {}
        self._readers: dict[str, LaneReader] = {}
        self._waiting: dict[str, list[Callable[[], None]]] = {}  # by lane: what the next sync covers
        self._syncing: set[str] = set()
        self._marks = Marks(self._disk)
        self._runners = {interval: self._runner(interval) for interval in INTERVALS}
        self._working: dict[str, Mail] = {}
        self._fates: dict[str, int] = {}
        self._unmarked: list[Mail] = []  # replaced, and waiting for the checkpoint that covers it
        self._due: list[float] = []
        self._checkpoint_at = -CHECKPOINT_S  # of the last one
        self._planned = False
        self._writer(self._journal)
        self._arriving = messages
        self._rate = rate

    # -- the parts

    def _lane_of(self, interval_s: float) -> str:
        if self._one:
            return "log"
        return "incoming.0" if not interval_s else f"retry.{interval_s:.0f}"

    @property
    def _journal(self) -> str:
        return "log" if self._one else "journal"

    def _writer(self, lane: str) -> LaneWriter:
        if lane not in self._writers:
            self._writers[lane] = LaneWriter(
                self._disk,
                str(self._directory / lane),
                segment_bytes=SEGMENT_BYTES,
                clock=lambda: self._now,
                salt=lambda: self._random.getrandbits(64),
            )
            self._readers[lane] = LaneReader(self._disk, str(self._directory / lane), damaged)
            self._waiting[lane] = []
        return self._writers[lane]

    def _runner(self, interval_s: float) -> OneLogRunner | LaneRunner:
        lane = self._lane_of(interval_s)
        position = self._writer(lane).end
        reader = LaneReader(self._disk, str(self._directory / lane), damaged)  # its own: it reads at its own place
        if self._one:
            return OneLogRunner(reader, position, interval_s, self.counted)
        return LaneRunner(reader, position, interval_s)

    def _at(self, when: float, what: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (when, self._number, what))

    # -- group commit

    def _durable(self, lane: str, then: Callable[[], None]) -> None:
        """Calls ``then`` once everything appended to the lane so far is synced."""
        self._waiting[lane].append(then)
        if lane not in self._syncing:
            self._sync(lane)

    def _sync(self, lane: str) -> None:
        self._syncing.add(lane)
        covered, self._waiting[lane] = self._waiting[lane], []
        before = self._disk.syncs
        self._writers[lane].sync()
        self.counted.synced_for_mail += self._disk.syncs - before
        end = self._writers[lane].durable

        def done() -> None:
            self._syncing.discard(lane)
            if lane == self._lane_of(0):
                self._runners[0].readable_end = end
            for then in covered:
                then()
            if self._waiting[lane]:
                self._sync(lane)
            self._take(0)

        self._at(self._now + SYNC_S, done)

    # -- a message's life

    def _arrive(self) -> None:
        self._arriving -= 1
        if self._arriving:
            self._at(self._now + self._random.expovariate(self._rate), self._arrive)
        low, high = SIZES
        size = int(low * (high / low) ** self._random.random())
        recipient = Recipient(number=0, address="someone@example.org", destination=DESTINATION)
        envelope = Envelope(
            queue_id=self._ids.next(),
            generation=0,
            sender="sender@example.com",
            recipients=(recipient,),
            recipient_count=1,
            arrived_at=self._now,
            due_at=self._now,
            written_at=self._now,
            size_bytes=size,
            data=DataPlace.INLINE,
            client_address="192.0.2.1",
            helo="client.example.com",
            message_id="<20261127.0123456789@example.com>",
        )
        self._fates[envelope.queue_id] = self._fate()
        lane = self._lane_of(0)
        append_envelope(self._writer(lane), envelope, DATA[:size])
        self._durable(lane, lambda: None)
        self._check_later()

    def _fate(self) -> int:
        """Returns the number of the pass that delivers a message; 0 if none does."""
        if self._random.random() < DELIVERED_AT_ONCE:
            return 1
        if self._random.random() < HOPELESS:
            return 0
        number = 2
        while self._random.random() >= DELIVERED_LATER:
            number += 1
        return number

    def _take(self, interval_s: int) -> None:
        """Takes what is due from a runner."""
        took = False
        runner, lane = self._runners[interval_s], self._lane_of(interval_s)
        while (head := runner.peek(self._now)) is not None:
            offset, end, envelope = head
            start = Start(envelope.queue_id, envelope.generation, Place(lane, offset), 1, resting={DESTINATION: 1})
            at = self._writer(self._journal).append(RecordType.START, encode(start))
            mail = Mail(envelope, lane, offset, end, at, self._fates[envelope.queue_id])
            self._working[envelope.queue_id] = mail
            runner.take()
            self._at(self._now + self._random.expovariate(1 / DELIVERY_S), partial(self._tried, mail))
            took = True
        if took:
            self._check_later()

    def _tried(self, mail: Mail) -> None:
        envelope = mail.envelope
        delivered = envelope.attempts + 1 == mail.fate
        expired = not delivered and self._now - envelope.arrived_at > LIFETIME_S
        status = Status.DELIVERED if delivered else Status.EXPIRED if expired else Status.DEFERRED
        reply = "250 2.0.0 Ok: queued as 4F1C2A3B" if delivered else "450 4.2.0 try again later"
        verdict = Verdict(number=0, status=status, dsn=reply[4:9], reply=reply)
        record = Delivery(
            envelope.queue_id,
            envelope.generation,
            (verdict,),
            self._now,
            "mx.example.org[192.0.2.25]:25",
            destination=DESTINATION,
            sender_domain="example.com",
            recipient_domains=("example.org",),
            size_bytes=envelope.size_bytes,
        )
        self._writer(self._journal).append(RecordType.DELIVERY, encode(record))
        self.counted.passes += 1
        self.counted.delivered += delivered
        self.counted.expired += expired
        after = self._finish if delivered or expired else self._defer
        self._durable(self._journal, partial(after, mail))

    def _finish(self, mail: Mail) -> None:
        finish = Finish(mail.envelope.queue_id, mail.envelope.generation, at=self._now)
        self._writer(self._journal).append(RecordType.FINISH, encode(finish))
        del self._fates[mail.envelope.queue_id]
        self._unmarked.append(mail)  # marked when the next checkpoint has synced the FINISH
        self._check_later()

    def _defer(self, mail: Mail) -> None:
        old = mail.envelope
        interval_s = LADDER.next_interval(self._now - old.arrived_at)
        carried = old.data is DataPlace.INLINE and (old.size_bytes <= CARRY_BYTES or old.attempts < CARRIED_PASSES)
        envelope = msgspec.structs.replace(
            old,
            generation=old.generation + 1,
            attempts=old.attempts + 1,
            written_at=self._now,
            due_at=self._now + interval_s,
            data=DataPlace.INLINE if carried else DataPlace.SPOOL,
        )
        lane = self._lane_of(interval_s)
        offset = append_envelope(self._writer(lane), envelope, DATA[: envelope.size_bytes] if carried else b"")
        replaced = Replaced(old.queue_id, old.generation, Place(lane, offset), at=self._now)
        self._writer(self._journal).append(RecordType.REPLACED, encode(replaced))
        self._unmarked.append(mail)
        heapq.heappush(self._due, envelope.due_at)
        self._check_later()

    # -- checkpoints

    def _check_later(self) -> None:
        self._check_at(max(self._now, self._checkpoint_at + CHECKPOINT_S))

    def _check_at(self, when: float) -> None:
        if not self._planned:
            self._planned = True
            self._at(when, self._checkpoint)

    def _checkpoint(self) -> None:
        """Syncs everything appended and marked, writes positions, marks what they cover, deletes, and lets runners read on."""
        self._planned, self._checkpoint_at = False, self._now
        unmarked, self._unmarked = self._unmarked, []
        dirty, self._marks.dirty = self._marks.dirty, set()
        for writer in self._writers.values():
            if writer.waiting:
                writer.sync()
        for lane, base in dirty:
            self._disk.sync_path(self._readers[lane].path(base))
        self._disk.syncs += 2  # restart positions: the file and its directory
        self._disk.page_bytes += PAGE_BYTES
        for mail in unmarked:
            self._readers[mail.lane].refresh()
            self.counted.marks += self._marks.write(self._readers[mail.lane], mail.offset)
            if self._working.get(mail.envelope.queue_id) is mail:
                del self._working[mail.envelope.queue_id]
        for interval, runner in self._runners.items():
            runner.readable_end = self._writers[self._lane_of(interval)].durable
        self._measure_and_delete()
        for interval in INTERVALS:
            self._take(interval)
        while self._due and self._due[0] <= self._now:
            heapq.heappop(self._due)
        if self._unmarked or self._working:
            self._check_later()
        elif self._due:
            self._check_at(max(self._due[0], self._now + CHECKPOINT_S))

    def _measure_and_delete(self) -> None:
        suffix = min((mail.start for mail in self._working.values()), default=self._writers[self._journal].durable)
        length = self._writers[self._journal].durable - suffix
        self.counted.restart_bytes_max = max(self.counted.restart_bytes_max, length)
        if self._arriving:
            self.counted.restart_bytes.append(length)
        alive = segments = 0
        for lane, writer in self._writers.items():
            needed = [writer.durable, *(mail.offset for mail in self._working.values() if mail.lane == lane)]
            needed += [suffix] if lane == self._journal else []
            needed += [runner.position for every, runner in self._runners.items() if self._lane_of(every) == lane]
            reader = self._readers[lane]
            reader.refresh()
            for base, following in zip(reader.bases, reader.bases[1:], strict=False):
                if following > min(needed):
                    break
                self._marks.forget(lane, base)
                self._disk.unlink(reader.path(base))
            reader.refresh()
            alive += writer.durable - reader.bases[0] if reader.bases else 0
            segments += len(reader.bases)
        self.counted.alive_bytes_max = max(self.counted.alive_bytes_max, alive)
        self.counted.segments_max = max(self.counted.segments_max, segments)

    # -- the whole

    def run(self) -> Counted:
        """Runs until every message is delivered or expired."""
        began = time.process_time()
        self._at(0.0, self._arrive)
        while self._events:
            self._now, _, what = heapq.heappop(self._events)
            what()
        counted, disk = self.counted, self._disk
        if counted.delivered + counted.expired != counted.messages:
            raise RuntimeError(f"{counted.kind}: {counted.delivered} delivered, {counted.expired} expired")
        counted.syncs, counted.appended_bytes, counted.page_bytes = disk.syncs, disk.written_bytes, disk.page_bytes
        counted.read_bytes = disk.read_bytes
        counted.read_pages_bytes = counted.read_pages_bytes if self._one else disk.read_bytes
        telling = (self._journal, self._lane_of(0))
        counted.export_bytes = sum(self._writers[lane].end for lane in set(telling))
        counted.cpu_s = time.process_time() - began
        counted.rss_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        counted.restart_bytes = [sorted(counted.restart_bytes)[len(counted.restart_bytes) // 2]]
        return counted
