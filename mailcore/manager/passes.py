"""The end of a pass: every recipient of an active message has its verdict, or an operator moves the message.

Refused recipients share one report to the sender (``notices``). Deferred recipients go into a retry lane or, after the queue
lifetime, into the report. A message without any recipient left gets a FINISH. The spool file and the report's envelope are
written first, then the record that depends on them. Data in the log needs no spool file: the replacement carries it, or refers
to where it lies (``carrying``).

Keeps law: data-before-replacement, law: bounce-before-finish, law: damaged-data-is-held, law: warned-once (docs/laws.md).
"""

from __future__ import annotations

import errno
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from mailcore.envelope import DataPlace, Envelope, Recipient, Status, Verdict
from mailcore.log.data_blocks import DataDamaged, sums_of
from mailcore.log.lane import LaneFailed
from mailcore.manager.carrying import Carrying, Way
from mailcore.manager.context import ManagerContext
from mailcore.manager.damage import hold_damaged, is_held_as_damaged
from mailcore.manager.notices import Notice, notice_of
from mailcore.manager.placing import Placing
from mailcore.queue.active import Active
from mailcore.queue.aside import SLACK_S, Change, has_more_to_say, paused_s
from mailcore.queue.lanes import DELETED, HOLD, LOCAL, retry_lane
from mailcore.queue.queue import Gone
from mailcore.queue.recipients import whole_envelope
from mailcore.queue.records import Administrative, Delivery, Place
from mailcore.queue.rewrite import (
    VERDICTS_PER_RECORD,
    own_deliveries,
    own_delivery,
    remaining_recipients,
    write_replacement,
)
from mailcore.queue.spool import DATA_AT
from mailcore.remote_reply import expired
from mailcore.routing.resolve import DEFAULT_TRANSPORT
from mailcore.routing.route import DISCARD
from mailcore.scheduler.parameters import SUSPENDED_UNTIL

__all__ = ["Passes"]

_COUNTERS = {"delay": "delay_warnings", "success": "success_reports"}  # by ``Notice.report``
AGAIN_S = 10.0  # before the end of a pass that failed for lack of disk space is retried
_TIMED = frozenset({"deferred", "delayed"})  # states of recipients aside that end by themselves; keys of Envelope.aside
ROOM_MAX = 1_000  # messages put back in one step
ROOM_S = 0.1  # between two steps: 10 000 a second is more than can arrive
OTHERS_S = 1.0  # between two looks for messages whose other recipients are due


class Move(NamedTuple):
    """Says where a message comes to rest."""

    lane: str
    write: Callable[[], Envelope]  # writes its RECIPIENTS records, and returns the envelope to write. Raises Gone.


class Passes:
    """Ends the passes of active messages: bounces, retries, finishes, and the orders of operators."""

    def __init__(self, context: ManagerContext) -> None:
        self.context = context
        self.carrying = Carrying(context)
        self._room_at = 0.0  # monotonic: the next search for room
        self._others_at = 0.0  # monotonic: the next look for other recipients

    def over(self, active: Active) -> None:
        """Ends a pass whose verdicts are all synced, or carries out an order when no delivery is in flight."""
        context = self.context
        active.ending = True
        try:
            if active.orders:
                self._obey(active)
            elif active.deferred and context.age_s(active) >= context.lifetime_s(active) and self._expire(active):
                return
            elif active.has_aside:
                self._place(active)
            elif not active.deferred:
                self._end(active, None)
            else:
                self._end(active, self._deferral(active, context.interval_s(active)))
        except Gone as gone:
            self._unreadable(gone)

    def _unreadable(self, gone: Gone) -> None:
        """Logs unreadable recipients: the message stays active and its segment is kept (law: damage-set-aside)."""
        self.context.log.failed("manager", str(gone))

    def _deferral(self, active: Active, interval_s: int, *, attempted: bool = True) -> Move:
        context = self.context
        lane = retry_lane(interval_s)

        def write() -> Envelope:
            return write_replacement(
                context.queue, active, lane, interval_s, age_s=context.age_s(active), attempted=attempted
            )

        return Move(lane, write)

    # -- what ends it

    def _end(self, active: Active, move: Move | None) -> None:
        """Writes spool file and bounce, possibly in threads, and then REPLACED or FINISH. Raises Gone."""
        context = self.context
        moved: tuple[Envelope, bytes] | None = None
        active.carried, active.refers = None, False
        way = None
        if move is not None and active.envelope.data is not DataPlace.SPOOL:
            way = self.carrying.way(active, move.lane)
            if way is Way.SPOOL and self.carrying.waits(active, move.lane):
                context.after_checkpoint(functools.partial(self._end_again, active, move))
                return
            active.refers = way is Way.REFER
        if move is not None and way is not None and not active.refers:
            try:
                data = self._data(active)
            except OSError as error:
                self._later(active, move, error)
                return
            except DataDamaged as damage:
                hold_damaged(context, active, f"{active.data.path}: {damage}")
                self._obey(active)
                return
            if way is Way.CARRY:
                active.carried = data
            else:
                moved = self._moved(active), data
        notice = self._notice(active, stays=move is not None)
        if moved is None and (notice is None or notice.envelope.data is not DataPlace.SPOOL):
            self._record(active, notice, move)
            return

        spool_bytes = 0
        active.may_have_file = active.may_have_file or moved is not None

        def store() -> None:
            nonlocal spool_bytes, notice
            spool = context.queue.spool
            if moved is not None:
                spool_bytes = spool.store(*moved).spool_bytes
            if notice is not None and notice.envelope.data is DataPlace.SPOOL:
                notice = notice._replace(envelope=spool.store(notice.envelope, notice.data))

        future = context.loop.run_in_executor(context.pool, store)

        def stored(done: object) -> None:
            error = future.exception()
            if error is None:
                if moved is not None:
                    active.envelope = msgspec.structs.replace(active.envelope, spool_bytes=spool_bytes)
                self._record(active, notice, move)
            elif isinstance(error, OSError):
                self._later(active, move, error)
            else:
                raise error

        future.add_done_callback(stored)

    def _data(self, active: Active) -> bytes:
        """Returns data that lies in the log, which keeps its checksums wherever it goes. Raises OSError, Gone, DataDamaged.

        Data that is known to be damaged moves as it is, and its checksums still show it.
        """
        queue = self.context.queue
        try:
            try:
                data = queue.data.read(active, active.envelope.size_bytes)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                raise DataDamaged("the disk can't read it") from error  # its place is given up at the end of the pass
        except DataDamaged as damage:
            if not active.envelope.data_sums:
                raise Gone(f"the data of {active.queue_id} can't be moved: {damage}") from damage
            if not is_held_as_damaged(active):
                raise
            data = queue.data.read_damaged(active)
        sums = active.envelope.data_sums or sums_of(data)
        active.envelope = msgspec.structs.replace(active.envelope, data_sums=sums)
        return data

    def _moved(self, active: Active) -> Envelope:
        """Returns the envelope for a spool file. Raises Gone."""
        whole = whole_envelope(self.context.queue, active)
        return msgspec.structs.replace(
            whole, data=DataPlace.SPOOL, data_offset=DATA_AT, data_sums=active.envelope.data_sums
        )

    def _later(self, active: Active, move: Move | None, error: OSError) -> None:
        self.context.log.failed("manager", f"{active.queue_id} can't be put back yet: {error}")
        self.context.loop.call_later(AGAIN_S, self._end_again, active, move)

    def _end_again(self, active: Active, move: Move | None) -> None:
        self._or_unreadable(functools.partial(self._end, active, move))

    def _or_unreadable(self, end: Callable[[], None]) -> None:
        try:
            end()
        except Gone as gone:
            self._unreadable(gone)

    def _record(self, active: Active, notice: Notice | None, move: Move | None) -> None:
        context = self.context
        replacement: Envelope | None = None
        if notice is not None and notice.warns:  # law: warned-once; REPLACED counts only with both
            active.envelope = msgspec.structs.replace(active.envelope, delay_warned=True)
        if move is not None:
            try:
                replacement = move.write()  # before the bounce: if this fails, nothing has changed
            except Gone as gone:
                active.carried, active.refers = None, False
                self._unreadable(gone)
                return
        place: Place | None = None
        report = ""
        if notice is not None:
            envelope = notice.envelope
            place = context.queue.put(LOCAL, envelope, b"" if envelope.data is DataPlace.SPOOL else notice.data)
            report = notice.report
            context.log.notified(active.queue_id, envelope.queue_id, report)
            context.log.accepted(envelope)
            context.count(_COUNTERS.get(report, "bounces"))
            context.balance.accept(envelope)
        if move is not None and replacement is not None:
            context.queue.replaced(active, move.lane, replacement, place, report)
            context.count("replaced")
            context.balance.replace(active, move.lane, replacement)
        else:
            context.queue.finish(active, place, report=report)
            context.log.removed(active.queue_id)
            context.count("finished")
            context.balance.finish(active)
        context.go_on()

    def _notice(self, active: Active, *, stays: bool) -> Notice | None:
        """Returns what the sender must hear of this pass. Raises Gone."""
        return notice_of(self.context, active, stays=stays)

    # -- verdicts of our own

    def _expire(self, active: Active) -> bool:
        """Ends the recipients whose queue lifetime is over; returns False if there is none. Raises Gone."""
        context = self.context
        age_s, lifetime_s = context.age_s(active), context.lifetime_s(active)
        verdicts = []
        for recipient in remaining_recipients(context.queue, active):
            if recipient.number not in active.deferred or age_s - paused_s(recipient, active.age_s) < lifetime_s:
                continue
            at = active.deferred[recipient.number][3]
            verdicts.append(Verdict(recipient.number, Status.EXPIRED, "4.4.7", expired(recipient.reply), at=at))
            active.pending[recipient.number] = recipient
        if not verdicts:
            return False
        context.log.expired(active.queue_id, active.envelope.sender)
        for verdict in verdicts:
            del active.deferred[verdict.number]
        self.settle_ourselves(active, verdicts)
        return True

    def settle_ourselves(self, active: Active, verdicts: Sequence[Verdict]) -> None:
        """Records verdicts without a delivery, for recipients in ``pending``; after the sync the pass may end."""
        context = self.context

        def synced() -> None:
            waited = max(context.wall() - active.envelope.arrived_at, 0.0)
            for verdict in verdicts:
                recipient = active.pending[verdict.number]
                transport = DISCARD if verdict.status is Status.DELIVERED else DEFAULT_TRANSPORT
                delays = (waited, 0.0, 0.0, 0.0)
                context.log.delivery(
                    active.queue_id, recipient.address, "none", verdict, delays,
                    transport=transport, options=recipient.options,
                )  # fmt: skip
                if verdict.status is Status.EXPIRED and recipient.destination:
                    context.outcomes.note(recipient.destination, (verdict,), "none", context.wall())
            context.balance.settle(context.queue.sizes, active, verdicts)
            active.settle(verdicts)
            active.ending = False

        self._settle(active, own_deliveries(active, verdicts, context.wall()), synced)

    def delete_finally(self, active: Active, numbers: Sequence[int]) -> None:
        """Records that deleted recipients cannot be undeleted any more; after the sync the pass may end."""
        wall = self.context.wall()
        deliveries = []
        for at in range(0, len(numbers), VERDICTS_PER_RECORD):
            some = tuple(
                [Verdict(n, Status.DELETED, "2.0.0", "deleted") for n in numbers[at : at + VERDICTS_PER_RECORD]]
            )
            deliveries.append(own_delivery(active.envelope, some, wall))

        def synced() -> None:
            active.done.update(numbers)
            active.deleted -= len(numbers)

        self._settle(active, deliveries, synced)

    def _settle(self, active: Active, deliveries: Iterable[Delivery], effect: Callable[[], None]) -> None:
        """Appends records of our own verdicts; after their sync they take effect, and the pass may end."""
        context = self.context
        for delivery in deliveries:
            context.queue.deliver(delivery)
        active.unsynced += 1
        active.settling += 1

        def synced(error: LaneFailed | None) -> None:
            if error is not None:
                raise error
            active.unsynced -= 1
            active.settling -= 1
            effect()
            self._after(active)

        context.commit.then(synced)

    def _after(self, active: Active) -> None:
        """Ends the pass if nothing is left of it, now that verdicts of our own are synced."""
        if active.pass_over or (active.orders and not (active.in_flight or active.unsynced or active.ending)):
            self.over(active)
        elif active.unread:
            self.context.go_on()  # the next batch was not read while these verdicts waited

    # -- orders, and recipients aside

    def delete_at_rest(self, active: Active) -> bool:
        """Carries out the deletion of a whole message that only waited for its next attempt, and whose data stays where it is.

        Writes what ``over`` would, in less than half the time: all recipients have one state before and after it, so none is
        looked at, and nothing is read. Returns False, with nothing written, for any other order or message.
        """
        context, envelope = self.context, active.envelope
        order = active.orders[0]
        if order.operation != "delete" or order.arguments or len(active.orders) > 1:
            return False
        if not active.lane.startswith("retry.") or envelope.batches or has_more_to_say(envelope):
            return False
        if envelope.data is not DataPlace.SPOOL:
            if self.carrying.way(active, DELETED) is not Way.REFER:
                return False
            active.refers = True
        undo_time_s = context.queue.undo_time_s
        age_s = context.age_s(active)
        replacement = write_replacement(
            context.queue,
            active,
            DELETED,
            undo_time_s,
            age_s=age_s,
            attempted=False,
            held_because=order.why,
            change=Change(order, age_s=age_s, undo_time_s=undo_time_s),
        )
        active.ending = True
        context.queue.replaced(active, DELETED, replacement)
        context.count("replaced")
        context.balance.replace(active, DELETED, replacement)
        return True

    def _obey(self, active: Active) -> None:
        """Carries out the orders of operators; no delivery of the message is in flight. Raises Gone."""
        self._uncount(active)
        bounces = any(order.operation == "bounce" for order in active.orders)
        if bounces and (bounced := list(Placing(self.context, active, 0).bounced())):
            self._refuse(active, bounced)
        else:
            self._place(active)

    def _uncount(self, active: Active) -> None:
        for destination in active.destinations.values():
            self.context.queue.sizes.route(destination, -1)
        active.destinations.clear()

    def _place(self, active: Active, *, attempted: bool | None = None) -> None:
        """Writes the message to where its first recipient is due; finishes it if none remains. Raises Gone."""
        context = self.context
        tried = bool(active.deferred) if attempted is None else attempted
        age_s = context.age_s(active) - max(active.paused.values(), default=0)  # of the youngest recipient
        placing = Placing(context, active, context.ladder().next_interval(age_s))
        place = placing.place()
        if place is None:
            self._end(active, None)
            return
        tally = placing.tally

        def write() -> Envelope:
            return write_replacement(
                context.queue,
                active,
                place.lane,
                place.interval_s,
                age_s=context.age_s(active),
                attempted=tried,
                not_before=place.not_before,
                first_due_at=place.first_due_at,
                held_because=tally.why if place.lane in (HOLD, DELETED) else "",
                held_before=tally.held_before if place.lane == DELETED else None,
                change=placing,
                added=placing.added,
            )

        self._end(active, Move(place.lane, write))

    def _refuse(self, active: Active, bounced: Sequence[tuple[Recipient, Administrative]]) -> None:
        verdicts = []
        for recipient, order in bounced:
            reply = f"returned to sender by the operator: {order.why}" if order.why else "returned by the operator"
            verdicts.append(Verdict(recipient.number, Status.BOUNCED, "5.7.0", reply))
            active.pending[recipient.number] = recipient
            active.deferred.pop(recipient.number, None)
        self.settle_ourselves(active, verdicts)

    # -- room for others

    def make_room(self, now: float) -> None:
        """Moves mail that waits only for suspended destinations out of the active set, into the shortest retry lane.

        So a suspension does not stop other mail when the active set, or the share of deferred mail in it, is full.
        """
        if not self.context.scheduler.any_suspended or now < self._room_at:
            return
        self._room_at = now + ROOM_S
        for active in itertools.islice(self._waiting_for_suspended(), ROOM_MAX):
            self._put_back(active, now, self.context.ladder().next_interval(0.0))

    def free_others(self, now: float) -> None:
        """Ends passes in which only suspended destinations are left, when it is time for the message's other recipients.

        So a suspension does not stop other recipients of the same message. Those of the suspended destination wait for it
        again in the next pass.
        """
        context = self.context
        if not context.scheduler.any_suspended or now < self._others_at:
            return
        self._others_at = now + OTHERS_S
        ladder = context.ladder()
        for active in itertools.islice(self._waiting_for_suspended(), ROOM_MAX):
            others = active.deferred or active.only or not _TIMED.isdisjoint(active.envelope.aside)
            if others and now - active.read_at >= ladder.next_interval(active.age_s):
                self._put_back(active, now, 0)

    def others_due_in(self, now: float) -> float | None:
        """Returns the seconds until ``free_others`` is to be called again; None if it is not needed."""
        needed = self.context.scheduler.any_suspended and self.context.queue.active
        return max(self._others_at - now, 0.0) if needed else None

    def _waiting_for_suspended(self) -> Iterator[Active]:
        """Yields messages of whose pass nothing is left but recipients of suspended destinations."""
        context = self.context
        suspended: dict[str, bool] = {}
        for active in list(context.queue.active.values()):
            if active.in_flight or active.unsynced or active.ending or not active.destinations:
                continue
            for destination in active.destinations.values():
                if destination not in suspended:
                    suspended[destination] = context.scheduler.get(destination, SUSPENDED_UNTIL) is not None
                if not suspended[destination]:
                    break
            else:
                yield active

    def _put_back(self, active: Active, now: float, interval_s: int) -> None:
        context = self.context
        context.scheduler.withdraw(active.queue_id, now)
        attempted = bool(active.deferred)
        for number, destination in active.destinations.items():
            active.deferred[number] = (destination, "its destination is suspended", "4.3.2", 0)
        self._uncount(active)
        active.ending = True
        context.count("put_back")
        if active.has_aside:
            active.rested_until = context.wall() + interval_s
            self._or_unreadable(functools.partial(self._place, active, attempted=attempted))
        else:
            self._end_again(active, self._deferral(active, interval_s, attempted=attempted))

    def wait_longer(self, active: Active) -> bool:
        """Moves a message into the longest retry lane that ends before its time; False if it may start now."""
        context = self.context
        envelope = active.envelope
        left = max(envelope.not_before, envelope.first_due_at) - context.wall()
        if left <= SLACK_S:
            return False
        interval = context.ladder().towards(left)
        lane = retry_lane(interval)

        def write() -> Envelope:
            return write_replacement(
                context.queue,
                active,
                lane,
                interval,
                # its age does not grow while it waits for an operator's time
                age_s=envelope.age_s if envelope.not_before else context.age_s(active),
                attempted=False,
                not_before=envelope.not_before,
                first_due_at=envelope.first_due_at,
            )

        active.ending = True
        self._end_again(active, Move(lane, write))
        return True
