"""The objects that all parts of the manager share: ``manager`` makes them once for flow, passes, orders and state.

Keeps law: by-its-time (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from mailcore.config.settings import Settings
from mailcore.envelope import Origin
from mailcore.log.commit import GroupCommit
from mailcore.maillog.maillog import MailLog
from mailcore.manager.measured import Measured
from mailcore.manager.outcomes import Balance, Outcomes
from mailcore.manager.overtaken import Overtaking
from mailcore.queue.active import Active
from mailcore.queue.checkpoint import Checkpoints
from mailcore.queue.lanes import Ladder
from mailcore.queue.queue import Queue
from mailcore.queue.restored import NOT_RESTORED, Restored
from mailcore.routing.resolve import Routing
from mailcore.scheduler.scheduler import Scheduler
from mailcore.timed_request import deliver_by

__all__ = ["ManagerContext"]


@dataclass(slots=True)
class ManagerContext:
    """The queue, the scheduler, the logs and the clocks of one manager process, and its counters."""

    settings: Settings
    loop: asyncio.AbstractEventLoop
    queue: Queue
    checkpoints: Checkpoints
    commit: GroupCommit  # of the journal
    scheduler: Scheduler
    routing: Routing  # another one after files of [route_maps] have changed
    log: MailLog
    pool: ThreadPoolExecutor  # spool files, checkpoints
    hostname: str
    request_checkpoint: Callable[[], None]
    go_on: Callable[[], None]  # to be called after a change: fills the active set, gives entries to deliverers
    checkpoint_waiters: list[asyncio.Future[None]] = field(default_factory=list)  # resolved by the next checkpoint
    wall: Callable[[], float] = time.time
    now: Callable[[], float] = time.monotonic
    may_deliver: Callable[[], bool] = lambda: True  # False while the lease of the shard is over
    stalled: str = ""  # why deliveries go out one at a time; "" if they do not
    entries_left: int = (
        0  # while stalled: entries that may still be sent, one at a time, before the next look at the disk
    )
    made_room: bool = True  # while stalled: the last entry was delivered, so it freed space
    deferrals_left: int = 0  # while stalled: entries that may be deferred at once, each of which takes space
    carry_bytes_left: int = 0  # while stalled: bytes of data that may be carried, and not be written yet
    counters: dict[str, int] = field(default_factory=dict)
    balance: Balance = field(init=False)
    restored: Restored = NOT_RESTORED  # mail that was restored from a backup is held
    overtaking: Overtaking = field(default_factory=Overtaking)
    outcomes: Outcomes = field(init=False)
    measured: Measured | None = None  # for the metrics; None if they cannot be read
    _ladder: Ladder | None = None  # as it was asked for last

    def __post_init__(self) -> None:
        self.balance = Balance(self.queue)
        self.outcomes = Outcomes(self.settings.queue.names_counted)

    def after_checkpoint(self, done: Callable[[], None]) -> None:
        """Calls ``done`` in the loop when a checkpoint that begins after now is written, and asks for one."""
        future: asyncio.Future[None] = self.loop.create_future()
        future.add_done_callback(lambda _: None if future.cancelled() else done())
        self.checkpoint_waiters.append(future)
        self.request_checkpoint()

    def count(self, name: str, by: int = 1) -> None:
        """Adds to a counter; counters start at 0 with the process."""
        self.counters[name] = self.counters.get(name, 0) + by

    def in_force(self, parameter: str) -> float:
        """Returns the present value of a global parameter of the scheduler."""
        value: float = getattr(self.scheduler.tuning.globals, parameter)
        return value

    def ladder(self) -> Ladder:
        """Returns the retry ladder with the present backoff times, which can be tuned live."""
        least, most = self.in_force("minimal_backoff_time"), self.in_force("maximal_backoff_time")
        ladder = self._ladder
        if ladder is None or ladder.minimal_backoff_s != least or ladder.maximal_backoff_s != most:
            ladder = self._ladder = Ladder(self.settings.queue.retry_ladder_s, least, most)
        return ladder

    def lifetime_s(self, active: Active) -> float:
        """Returns how long the message may stay in the queue, in seconds."""
        is_bounce = not active.envelope.sender or active.envelope.origin is Origin.BOUNCE
        name = "bounce_queue_lifetime" if is_bounce else "maximal_queue_lifetime"
        lifetime_s = self.in_force(name)
        if active.envelope.options and (by := deliver_by(active.envelope.options)) is not None and by.returns:
            return min(lifetime_s, self.age_s(active) + by.deadline - self.wall())
        return lifetime_s

    def interval_s(self, active: Active) -> int:
        """Returns how long a message that was deferred waits for its next pass: no longer than up to the time that BY sets."""
        ladder = self.ladder()
        interval = ladder.next_interval(self.age_s(active))
        if active.envelope.options and (by := deliver_by(active.envelope.options)) is not None:
            left_s = by.deadline - self.wall()
            if 0 < left_s < interval:
                return ladder.towards(left_s)
        return interval

    def age_s(self, active: Active) -> float:
        """Returns the age of the message in seconds, by the monotonic clock since it was read."""
        return active.age_s + self.now() - active.read_at
