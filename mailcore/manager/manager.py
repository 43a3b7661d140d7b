"""The manager process: a recovery, then one event loop that makes all changes to the queue.

Only the manager writes the journal, the retry lanes and the marks. It is crash-only: an error that it can't handle (a failed
sync of the journal, a broken invariant) ends the process, and the supervisor's restart recovers the queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import uvloop

from mailcore.config.live_routes import LiveRoutes
from mailcore.config.scheduler_parameters import parameters_of
from mailcore.config.settings import Settings
from mailcore.config.shared_settings import OpenShared, Shared
from mailcore.config.tuned import Tuned
from mailcore.envelope import Origin
from mailcore.faults import Code, Fault, FaultError
from mailcore.frames import FrameWriter, Request, Response
from mailcore.frames import Measured as Report
from mailcore.log.commit import GroupCommit
from mailcore.log.disk import Disk, Locked, is_full
from mailcore.log.lane import LaneFailed, LaneWriter
from mailcore.log.positions import PositionsDamaged, PositionsTooNew
from mailcore.log.segment import Damage, SegmentTooNew
from mailcore.log.store import Store
from mailcore.log.timed_disk import TimedDisk
from mailcore.maillog.maillog import MailLog
from mailcore.manager.context import ManagerContext
from mailcore.manager.cut_through import CutThrough
from mailcore.manager.flow import Flow
from mailcore.manager.full_disk import FullDisk
from mailcore.manager.housekeeping import Housekeeping
from mailcore.manager.leasing import HeldLease, HeldShard, Leasing, shard_state
from mailcore.manager.links import Link
from mailcore.manager.measured import Measured
from mailcore.manager.meeting import LocalMeeting, Meeting
from mailcore.manager.missing_lines import log_missing, unlogged
from mailcore.manager.orders import Orders
from mailcore.manager.overrides import Overrides
from mailcore.manager.passes import Passes
from mailcore.manager.sharing import Sharing, boot_time, shares_directory
from mailcore.manager.state import State
from mailcore.queue.exported import EXPORTED, Candidate, Keeper
from mailcore.queue.lanes import DELETED, HOLD, incoming, is_incoming
from mailcore.queue.queue_id import PICKUP
from mailcore.queue.recovery import Recovered, recover
from mailcore.queue.restored import RestoredDamaged, read_restored
from mailcore.routing.resolve import Routing
from mailcore.scheduler.scheduler import Scheduler
from mailcore.supervisor.ending import SHARD_MOVED, asked_to_end, end_at_once
from mailcore.supervisor.listen import listen_on_path
from mailcore.supervisor.pulse import beat
from mailcore.supervisor.room import ballast_of, room_for_sockets

__all__ = ["main"]

LOCK_WAIT_S = 10.0  # the previous manager may still be ending
FLUSH_S = 0.1  # the mail log is written this often
THREADS = 4  # that sync spool files of deferred mail at the same time
TIMER_S_MAX = 60.0
ENDING_LOOK_S = 0.01  # between two looks for verdicts that are still to come
VERDICTS_S = 5.0  # a database that has no more to say by then has them or not


class Manager:
    """The parts of one manager process, and the turns of its loop."""

    def __init__(
        self,
        settings: Settings,
        loop: asyncio.AbstractEventLoop,
        *,
        store: Store | None = None,
        lease: HeldLease | None = None,
        meeting: Meeting | None = None,
        shared: Shared | None = None,
    ) -> None:
        """``store`` keeps the queue beside the local disk, ``lease`` says whether it is ours to deliver; None on one node.

        ``meeting`` is where several queues share the limits of destinations; None if this one is alone. ``shared`` are the
        settings of all nodes.
        """
        self.settings = settings
        self.loop = loop
        self.log = MailLog(settings.log_directory)
        hostname = settings.receiver.hostname or socket.gethostname()
        measured = Measured() if settings.metrics.listen else None
        disk = Disk() if measured is None else TimedDisk(measured.syncs.observe)
        ballast = ballast_of(settings, disk)
        disk.relief = ballast.relieve
        started = time.monotonic()
        restored = read_restored(disk, str(settings.queue_directory))
        recovered = self._recover(disk, restored.restored_at, store)
        self.recovered = recovered  # keeps the lock
        queue = recovered.queue
        for lane, runner in queue.runners.items():
            if lane not in (HOLD, DELETED):
                runner.waited_below = restored.lanes.get(lane, 0)
        scheduler = Scheduler(parameters_of(settings))
        pool = ThreadPoolExecutor(THREADS, "spool")
        self.routes = LiveRoutes(settings, self.log, pool, self._routes_changed)
        self.context = ManagerContext(
            settings,
            loop,
            queue,
            recovered.checkpoints,
            GroupCommit(queue.journal, loop, settings.commit_delay_s),
            scheduler,
            self.routes.routing,
            self.log,
            pool,
            hostname,
            self._checkpoint_soon,
            self.go_on,
            restored=restored,
            measured=measured,
        )
        queue.count_totals = self.context.balance.totals
        self.passes = Passes(self.context)
        self.flow = Flow(self.context, self.passes)
        self.leasing: Leasing | None = None
        if lease is not None:
            self.leasing = Leasing(lease, self.flow.deliverers, self.go_on)
            self.context.may_deliver = lease.holds
        self.sharing: Sharing | None = None
        if meeting is not None:
            self.flow.limits = self.sharing = Sharing(self.context, self.flow.deliverers, meeting)
        self.cut_through = CutThrough(self.context, self.flow)
        self.full_disk = FullDisk(self.context, ballast, settings)
        self.housekeeping = Housekeeping(self.context, self.flow)
        self.orders = Orders(self.context, self.flow, self.passes)
        tuned = Tuned(disk, settings.tuned_file)
        self.state = State(self.context, self.flow, tuned)
        self.overrides = Overrides(self.context, tuned, shared)
        if lease is not None:
            name = settings.nodes.shard or settings.nodes.node or hostname
            self.state.shard = lambda: shard_state(
                name, lease, store, boot_time(), self.sharing.trouble() if self.sharing is not None else ""
            )
        self.receivers = self.state.receivers
        self.state.recovered = recovered.working
        self.overrides.load()
        held = restored.why if restored.backup_at else ""
        self.log.recovered(recovered.working, time.monotonic() - started, held)
        if recovered.damaged:
            self.log.positions_damaged(recovered.damaged, recovered.journal_bytes, time.monotonic() - started)
        missing = unlogged(queue, recovered.folded, recovered.logged_to)
        log_missing(self.log, settings.log_directory, queue, missing)
        self._turn_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._checkpoint_wanted = asyncio.Event()
        self._last_taken: object = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._taken_over: set[str] = set()
        # Its end is not to be read before the pickup says so (law: taken-once), even if no pickup runs.
        self._pickup = incoming(PICKUP)
        self.control: dict[str, Callable[[dict[str, Any]], Any]] = {
            "state": self.state.state,
            "size": self.state.size,
            "cut": self.state.cut,
            "places": self.state.places,
            "working": self.state.working,
            "explain": self.state.explain,
            "overtaken": lambda arguments: self.context.overtaking.became(arguments["recipients"]),
            "transports": self.overrides.listed,
            "destinations": self.state.destinations,
        }
        self.changes: dict[str, Callable[[Request], Awaitable[Any]]] = {
            **dict.fromkeys(Orders.OPERATIONS, self.orders.change),
            **dict.fromkeys(("set", "transport_set", "suspend", "resume"), self.overrides.set),
            "inject": self.orders.inject,
        }

    def _routes_changed(self, routing: Routing) -> None:
        """Uses other routes from now on. Messages in the active set keep their destinations until their next pass."""
        self.context.routing = routing

    def _recover(self, disk: Disk, restored_at: float, store: Store | None) -> Recovered:
        settings = self.settings
        until = time.monotonic() + LOCK_WAIT_S
        while True:
            try:
                return recover(
                    disk,
                    str(settings.queue_directory),
                    str(settings.spool_directory),
                    segment_bytes=settings.queue.segment_bytes,
                    names_counted=settings.queue.names_counted,
                    undo_time_s=settings.queue.undo_time_s,
                    suffix_bytes_max=settings.queue.suffix_bytes_max,
                    clock=time.time,
                    salt=lambda: secrets.randbits(64),
                    on_damage=self._damaged,
                    keeper=self._keeper(disk),
                    restored_at=restored_at,
                    store=store,
                )
            except Locked:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)

    def _keeper(self, disk: Disk) -> Keeper | None:
        settings = self.settings
        if not settings.export.enabled:
            return None
        state = str(settings.events_directory / EXPORTED)
        return Keeper(disk, state, settings.export.lag_bytes_max, time.time, self._events_lost)

    def _events_lost(self, segment: Candidate, why: str) -> None:
        self.log.failed("export", f"the events of {segment.lane}:{segment.base} are lost: {why}; reports lack them")

    def _damaged(self, damage: Damage) -> None:
        self.log.record_set_aside(damage.path, damage.offset, damage.what)

    # -- the loop's work

    def go_on(self) -> None:
        """Schedules a turn of the loop, if none is scheduled."""
        if not self._turn_scheduled:
            self._turn_scheduled = True
            self.loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_scheduled = False
        flow = self.flow
        # All steps use one time. With a later time in each step, a suspension or rate delay could end between two steps and
        # be past for the scheduler's ``wake_at`` before ``dispatch`` saw it.
        now = self.context.now()
        more = flow.fill(now)
        flow.admission.read_more(now)
        flow.dispatch(now)
        more |= flow.put_off(now)
        self._log_windows()
        if self.context.scheduler.tuning.ended:
            self.overrides.tell_ended()
        if more:
            self.go_on()
            return
        due_in = flow.next_due_in()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due_in is not None:
            self._timer = self.loop.call_later(min(max(due_in, 0.001), TIMER_S_MAX), self.go_on)

    def _log_windows(self) -> None:
        """Logs window changes where destination_concurrency_feedback_debug asks for them; the scheduler bounds their number."""
        for change in self.context.scheduler.take_window_changes():
            self.log.window_changed(
                change.destination,
                change.limit,
                change.window,
                change.success,
                change.failure,
                change.fail_cohorts,
            )

    def _checkpoint_soon(self) -> None:
        self._checkpoint_wanted.set()

    async def checkpoints(self) -> None:
        """Writes a checkpoint at each interval or request, until cancelled. Raises LaneFailed, OSError."""
        interval = self.settings.queue.checkpoint_interval_s
        while True:
            await self.full_disk.look()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(interval):
                    await self._checkpoint_wanted.wait()
            self._checkpoint_wanted.clear()
            self.take_over_lanes()
            self.flow.drain_deleted()
            self.housekeeping.before_checkpoint(self.full_disk.moves_max())
            await self._checkpoint()

    async def _checkpoint(self) -> None:
        context = self.context
        queue = context.queue
        state = (queue.journal.end, [(r.lane, r.position, r.readable_end) for r in queue.runners.values()])
        waiters, context.checkpoint_waiters = context.checkpoint_waiters, []
        busy = (
            queue.marks.dirty
            or queue.awaiting_checkpoint
            or queue.awaiting_second
            or any(writer.waiting for writer in queue.writers.values())
        )
        idle = state == self._last_taken and context.checkpoints.settled
        if idle and not waiters and not busy and not queue.spool_garbage:
            return
        checkpoint = context.checkpoints.take()
        try:
            await context.commit.wait()
            self.log.flush()  # law: ends-are-logged
            await self.loop.run_in_executor(context.pool, checkpoint.write)
        except (LaneFailed, OSError) as error:
            self.log.sync_failed(str(self.settings.queue_directory), str(error))
            raise
        queue.journal_synced(queue.journal.durable)
        retirement = context.checkpoints.written(checkpoint)
        if retirement:
            others = await self.loop.run_in_executor(context.pool, retirement.run)
            context.checkpoints.retired(retirement, others)
        self._last_taken = state
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        self.flow.retry_lanes_changed()
        self.go_on()

    async def flush(self) -> None:
        """Writes the mail log every FLUSH_S, until cancelled."""
        while True:
            await asyncio.sleep(FLUSH_S)
            self.log.flush()

    async def end(self) -> None:
        """Gives deliverers nothing more; returns when the verdicts of what they have are on disk and in the log."""
        self.flow.is_ending = True
        await asyncio.sleep(ENDING_LOOK_S)  # receivers have what they were answered in this turn
        while self.flow.is_under_way:  # noqa: ASYNC110 - rare, and no cost for each delivery
            await asyncio.sleep(ENDING_LOOK_S)
        await self.context.commit.wait()
        self.log.flush()
        if self.sharing is not None:
            await self.sharing.end()

    def take_over_lanes(self) -> None:
        """Makes the lanes of receivers that are no longer configured readable up to their end."""
        queue = self.context.queue
        for lane, runner in list(queue.runners.items()):
            number = lane.partition(".")[2]
            written = number.isdecimal() and int(number) < self.settings.receiver.processes
            # No pickup runs for a shard that was adopted: all that its own node has taken is committed.
            picked_up = lane == self._pickup and not (self.settings.nodes.is_on and self.settings.shard)
            if not is_incoming(lane) or written or picked_up or lane in self._taken_over:
                continue
            with contextlib.suppress(Locked):  # its receiver is still ending: retried with the next checkpoint
                writer = LaneWriter(
                    queue.disk,
                    queue.path(lane),
                    segment_bytes=queue.segment_bytes,
                    clock=queue.segment_clock,
                    salt=queue.salt,
                )
                self.durable(lane, writer.durable)
                runner.extend(writer.durable)
                writer.close()
                self._taken_over.add(lane)

    # -- receivers

    def measured(self, report: Report) -> None:
        """Adds what a receiver has counted for the metrics."""
        if self.context.measured is not None:
            self.context.measured.report(report)

    def durable(self, lane: str, end: int, messages: int = 0, recipients: int = 0) -> None:
        """Makes a lane readable up to ``end``, as its receiver reported (law: read-only-durable)."""
        queue = self.context.queue
        runner = queue.runners.get(lane)
        if runner is None:
            runner = queue.add_runner(lane, 0, 0)
            self.flow.retry_lanes_changed()
        heard = self.context.balance.heard(lane)
        if end > runner.readable_end:
            if messages:
                queue.arrived(lane, messages, recipients)
            else:
                messages, recipients = queue.count_arrived(lane, runner.readable_end, end)
            origin = Origin.LOCAL if lane == self._pickup else Origin.SMTP
            self.context.balance.arrive(messages, recipients, heard=heard, origin=origin)
            runner.extend(end)
            self.go_on()

    # -- control

    def request(self, writer: FrameWriter, request: Request) -> None:
        """Answers a request of the control process, at once or in a task."""
        if request.operation in self.control:
            try:
                writer.send(Response(request.number, self.control[request.operation](request.arguments)))
            except FaultError as error:
                writer.send(Response(request.number, None, error.fault))
            except Exception as error:  # a bug in an answer must not end the process that delivers mail
                traceback.print_exc()
                fault = Fault(Code.INTERNAL, f"internal error in the manager: {error!r}")
                writer.send(Response(request.number, None, fault))
            return
        change = self.changes.get(request.operation)
        if change is None:
            fault = Fault(Code.INVALID, f"the manager knows no operation {request.operation!r}")
            writer.send(Response(request.number, None, fault))
            return
        task = self.loop.create_task(self._change(writer, request, change))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _change(self, writer: FrameWriter, request: Request, change: Callable[[Request], Awaitable[Any]]) -> None:
        try:
            writer.send(Response(request.number, await change(request)))
        except FaultError as error:
            writer.send(Response(request.number, None, error.fault))
        except OSError as error:
            writer.send(Response(request.number, None, Fault(Code.INTERNAL, f"not done: {error}")))


async def _run(settings: Settings, held: HeldShard | None = None, shared: Shared | None = None) -> None:
    loop = asyncio.get_running_loop()
    store, lease = (None, None) if held is None else (held.store, held.lease)
    meeting = None if held is None else held.meeting
    if meeting is None and (directory := shares_directory(settings)) is not None:
        meeting = LocalMeeting(directory, boot_time, room_for_sockets(settings))
    manager = Manager(settings, loop, store=store, lease=lease, meeting=meeting, shared=shared)

    def broken(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Ends the process after an unexpected error: the manager is crash-only."""
        error = context.get("exception") or context.get("message")
        manager.log.failed("manager", repr(error))
        manager.log.flush()
        loop.default_exception_handler(context)
        os._exit(1)

    loop.set_exception_handler(broken)
    manager.take_over_lanes()
    server = await loop.create_unix_server(
        lambda: Link(manager), sock=listen_on_path(settings.run_directory / "manager.sock", room_for_sockets(settings))
    )
    manager.go_on()
    beat(loop)
    timed = [part.run() for part in (manager.leasing, manager.sharing) if part is not None]
    if shared is not None:
        timed.append(manager.overrides.follow())
    if manager.leasing is not None:
        timed.append(_hand_over(manager, manager.leasing))
    async with server:  # uvloop keeps no reference: without this one the garbage collector would close the server
        await asyncio.gather(
            manager.checkpoints(),
            manager.flush(),
            manager.housekeeping.run(),
            manager.routes.watch(),
            _end(manager),
            *timed,
        )


async def _end(manager: Manager) -> None:
    await asked_to_end(manager.loop)
    await manager.end()
    end_at_once()


async def _hand_over(manager: Manager, leasing: Leasing) -> None:
    """Ends the process when another node waits for the shard, and nothing is under way; what takes longer is cut."""
    await leasing.is_wanted.wait()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(manager.settings.nodes.hand_over_s):
            await manager.end()
    with contextlib.suppress(TimeoutError):  # verdicts of the last moment
        async with asyncio.timeout(VERDICTS_S):
            await manager.context.commit.wait()
    manager.log.flush()
    end_at_once(SHARD_MOVED)


def main(
    open_held: Callable[[Settings], HeldShard | None], open_shared: OpenShared, settings: Settings, number: int
) -> None:
    """Runs until it is killed. There is one manager, number 0. ``open_held`` waits for the database of a shard."""
    try:
        uvloop.run(_run(settings, open_held(settings), open_shared(settings)))
    except (
        FaultError, LaneFailed, Locked, PositionsDamaged, PositionsTooNew, RestoredDamaged, SegmentTooNew, OSError,
    ) as error:  # fmt: skip
        print(f"waypost: the manager stopped: {error}", file=sys.stderr)
        if is_full(error):  # a sync says so first on some file systems, and none is repeated: the next start needs room
            with contextlib.suppress(OSError):
                ballast_of(settings, Disk()).make_room()
        sys.exit(1)
