"""The manager's own end of a pass, ``Passes``, over the simulated machine: a thread is a call, and a sync is now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from mailcore.config.bounce_settings import Bounce
from mailcore.envelope import Status, Verdict
from mailcore.manager.carrying import Carrying, Way
from mailcore.manager.context import ManagerContext
from mailcore.manager.notices import Notice, outcomes_of
from mailcore.manager.outcomes import Balance
from mailcore.manager.passes import Passes
from mailcore.queue.active import Active
from mailcore.queue.lanes import HOLD, Ladder
from mailcore.queue.restored import NOT_RESTORED
from mailcore.routing.resolve import Routing

if TYPE_CHECKING:
    from tests.queue.simulated_machine import SimulatedMachine

__all__ = ["LADDER_S", "MachinePasses"]

LADDER_S = (300,)
LIFETIME_S = 1e9  # the histories last longer than any message may wait


class _Log:
    """Says nothing; what cannot be read fails the test."""

    def failed(self, process: str, text: str) -> None:
        raise AssertionError(f"{process}: {text}")

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *given, **named: None


class _Context:
    """As much of a ManagerContext as the end of a pass needs."""

    hostname = "here.example"
    pool = None
    restored = NOT_RESTORED
    stalled = ""
    interval_s = ManagerContext.interval_s

    def __init__(self, machine: SimulatedMachine) -> None:
        self.machine = machine
        self.settings = SimpleNamespace(
            queue=SimpleNamespace(
                inline_limit=1 << 20,
                carry_limit=machine.carry_limit,
                refer_deferred=True,
                compact_below=0.25,
                reserve_bytes=1 << 20,
            ),
            bounce=Bounce(delay_warning_time=machine.delay_warning_s),
        )
        self.queue = machine.queue
        self.loop = self.commit = self
        self.log = _Log()
        self.balance = Balance()
        self.outcomes = SimpleNamespace(note=self.go_on)
        self.routing = Routing({}, ["smtp"])
        self.synced: list[Callable[[], None]] = []

    def wall(self) -> float:
        return self.machine.outside.now

    def now(self) -> float:
        return self.machine.monotonic

    def age_s(self, active: Active) -> float:
        return active.age_s + self.now() - active.read_at

    def lifetime_s(self, active: Active) -> float:
        return LIFETIME_S

    def ladder(self) -> Ladder:
        return Ladder(LADDER_S, LADDER_S[0], LADDER_S[-1])

    def go_on(self, *given: Any) -> None:
        pass

    count = request_checkpoint = go_on

    def after_checkpoint(self, done: Callable[[], None]) -> None:
        self.machine.checkpoint()
        done()

    def run_in_executor(self, pool: object, work: Callable[[], None]) -> Future[None]:
        work()
        future: Future[None] = Future()
        future.set_result(None)
        return future

    def then(self, done: Callable[[None], None]) -> None:
        self.machine.sync()
        outside, self.synced = self.synced, []
        for told in outside:
            told()
        done(None)


class _InTurn(Carrying):
    """Data that may stay in the log is carried, referred to, or gets a spool file in turn, with chances of 3, 4 and 1."""

    def way(self, active: Active, lane: str) -> Way:
        if super().way(active, lane) is Way.SPOOL:
            return Way.SPOOL
        turn = self._turn(active)
        may_refer = lane != HOLD and active.body is not None and bool(active.envelope.data_sums)
        return Way.SPOOL if not turn else Way.REFER if turn % 2 and may_refer else Way.CARRY

    def waits(self, active: Active, lane: str) -> bool:
        return self._turn(active) > 0 and super().waits(active, lane)

    @staticmethod
    def _turn(active: Active) -> int:
        return (5 * sum(active.queue_id.encode()) + 3 * active.envelope.generation) % 8


class MachinePasses(Passes):
    """Ends the passes of messages with orders, or with recipients aside."""

    def __init__(self, machine: SimulatedMachine) -> None:
        self.machine = machine
        self._ours = _Context(machine)
        super().__init__(cast(ManagerContext, self._ours))
        self.carrying = _InTurn(self.context)

    def way(self, active: Active, lane: str) -> Way:
        return self.carrying.way(active, lane)

    def _notice(self, active: Active, *, stays: bool) -> Notice | None:
        outcomes = outcomes_of(self.context, active, stays=stays) if active.envelope.sender else []
        return self.machine.notice_of(active, outcomes) if outcomes else None

    def settle_ourselves(self, active: Active, verdicts: Sequence[Verdict]) -> None:
        self._ours.synced.append(lambda: self.machine.tell_outside(active, verdicts))
        super().settle_ourselves(active, verdicts)

    def delete_finally(self, active: Active, numbers: Sequence[int]) -> None:
        verdicts = [Verdict(number, Status.DELETED, "2.0.0", "deleted") for number in numbers]
        self._ours.synced.append(lambda: self.machine.tell_outside(active, verdicts))
        super().delete_finally(active, numbers)
