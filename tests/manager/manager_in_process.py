"""A manager in the test's own process, on a home of its own, with a deliverer whose every word is the test's.

For what must be watched turn by turn: what is in memory, what is asked of the disk. Nothing goes over a socket.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

from mailcore.config.settings import Bounce, Queue, Scheduler, Settings, Transport
from mailcore.envelope import RECIPIENTS_PER_RECORD, DataPlace, Recipient, Status, Verdict
from mailcore.frames import Deliver, Delivered, FrameWriter
from mailcore.log.data_blocks import sums_of
from mailcore.log.disk import Disk
from mailcore.log.lane import LaneWriter
from mailcore.log.retired import open_either
from mailcore.log.store import Store
from mailcore.manager.flow import DelivererLink
from mailcore.manager.leasing import HeldLease
from mailcore.manager.manager import Manager
from mailcore.manager.meeting import LocalMeeting
from mailcore.manager.sharing import boot_time
from mailcore.queue.queue_id import QueueIds
from mailcore.queue.records import append_envelope, append_recipients
from tests.eventually import eventually
from tests.lookup.sample_messages import envelope

__all__ = ["DATA", "INCOMING", "NEXT_HOP", "Deliverers", "Home", "read_data", "turns"]

INCOMING = "incoming.0"
NEXT_HOP = "smtp:[192.0.2.1]"
DATA = b"hello"


class Deliverers:
    """One deliverer that takes every entry; what it says is up to the test."""

    def __init__(self, manager: Manager, capacity: int = 40) -> None:
        self.manager = manager
        self.waiting: list[Deliver] = []
        self.link = DelivererLink(cast(FrameWriter, self), 0, 0, capacity)
        manager.flow.deliverers.append(self.link)
        manager.go_on()

    def send(self, frame: Deliver) -> None:
        self.waiting.append(frame)

    def answer(self, status: Callable[[int], Status] = lambda number: Status.DELIVERED) -> list[int]:
        """A verdict for everything given so far; for whom."""
        entries, self.waiting = self.waiting, []
        numbers = [number for entry in entries for number, _ in entry.recipients]
        self.manager.flow.delivered(
            self.link,
            [
                Delivered(
                    entry.entry,
                    tuple(Verdict(number, status(number), "2.0.0", "said so") for number, _ in entry.recipients),
                    "relay[192.0.2.1]:25", "", False, 0.0, 0.0,
                )
                for entry in entries
            ],
        )  # fmt: skip
        return numbers


class Home:
    """A home whose manager is started, and killed: it closes nothing, it is only not there any more."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "log").mkdir()
        self.writer = LaneWriter(
            Disk(), str(path / "queue" / INCOMING), segment_bytes=1 << 20, clock=time.time, salt=lambda: 42
        )
        self.ids = QueueIds(3, time.time)
        self.manager: Manager | None = None

    def start(
        self,
        scheduler: Scheduler | None = None,
        transport: Transport | None = None,
        ladder_s: tuple[int, ...] = (300, 600),
        bounce: Bounce | None = None,
        queue: Queue | None = None,
        store: Store | None = None,
        lease: HeldLease | None = None,
        shares: Path | None = None,
    ) -> Manager:
        settings = Settings(
            home=self.path,
            queue_directory=self.path / "queue",
            spool_directory=self.path / "spool",
            run_directory=self.path / "run",
            log_directory=self.path / "log",
            queue=queue or Queue(segment_bytes=1 << 20, reserve_bytes=0, retry_ladder_s=ladder_s),
            scheduler=scheduler or Scheduler(),
            bounce=bounce or Bounce(),
            transports={"smtp": transport or Transport()},
            routes={"*": NEXT_HOP},
        )
        meeting = None if shares is None else LocalMeeting(shares, boot_time)
        self.manager = Manager(settings, asyncio.get_running_loop(), store=store, lease=lease, meeting=meeting)
        self.manager.durable(INCOMING, self.writer.durable)
        return self.manager

    def kill(self) -> None:
        manager, self.manager = self.manager, None
        if manager is not None:
            manager.go_on = lambda: None  # type: ignore[method-assign]
            manager.flow.deliverers.clear()
            manager._turn_scheduled = True
            manager.passes._record = lambda *_: None  # type: ignore[method-assign]  # a spool file that is just complete
            if manager._timer is not None:
                manager._timer.cancel()
            manager.context.commit.close()
            manager.context.pool.shutdown()
            for writer in [manager.context.queue.journal, *manager.context.queue.writers.values()]:
                writer.close()
            os.close(manager.recovered.lock)

    def accept(
        self, count: int, address: Callable[[int], str] = lambda number: f"r{number}@example.org", *, old: bool = False
    ) -> str:
        """A message of ``count`` recipients; ``old``: as written by a version without checksums of data."""
        everybody = [Recipient(number, address(number)) for number in range(count)]
        rest = [
            append_recipients(self.writer, everybody[at : at + RECIPIENTS_PER_RECORD])
            for at in range(RECIPIENTS_PER_RECORD, count, RECIPIENTS_PER_RECORD)
        ]
        message = envelope(
            queue_id=self.ids.next(),
            recipients=tuple(everybody[:RECIPIENTS_PER_RECORD]),
            data=DataPlace.INLINE,
            size_bytes=len(DATA),
            arrived_at=time.time(),
            data_sums=b"" if old else sums_of(DATA),
        )
        message = type(message)(
            **{name: getattr(message, name) for name in message.__struct_fields__}
            | {"recipient_count": count, "batches": tuple(rest)}
        )
        append_envelope(self.writer, message, DATA)
        self.writer.sync()
        if self.manager is not None:
            self.manager.durable(INCOMING, self.writer.durable)
        return message.queue_id


async def turns(manager: Manager, true: Callable[[], object], each: Callable[[], object] = lambda: None) -> None:
    """Turns of the loop, ``each`` called before every one, until ``true``."""

    def so() -> bool:
        if true():
            return True
        each()
        return False

    await eventually(so, lambda: f"it; {manager.context.scheduler.snapshot(manager.context.now())}", look_every_s=0)


def read_data(entry: Deliver) -> bytes:
    """What a deliverer reads of a message, also if its segment was retired meanwhile."""
    disk = Disk()
    fd = open_either(disk.open_read, entry.path)
    try:
        return disk.read(fd, entry.length, entry.offset)
    finally:
        disk.close(fd)
