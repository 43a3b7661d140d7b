"""The step from the active set into the scheduler: recipients are read, routed and admitted, as many as the scheduler asks for.

Laws
- In memory are only the recipients that the scheduler admitted; the others stay in the log.
- Every batch that the scheduler asked for is admitted, even if all its recipients are done.
- A recipient that can't be routed gets a verdict here, unknown to the scheduler; while such verdicts wait for their sync, no
  more recipients of the message are read.

Keeps law: memory-bounded, law: turns-for-new-and-deferred (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mailcore.envelope import AsideKind, Envelope, Recipient, Verdict
from mailcore.manager.active_set import deferred_in
from mailcore.manager.context import ManagerContext
from mailcore.manager.passes import Passes
from mailcore.manager.route_hold import hold_by_route
from mailcore.queue.active import Active
from mailcore.queue.aside import has_more_to_say, is_due, paused_s
from mailcore.queue.lanes import DELETED, HOLD
from mailcore.queue.queue import Gone
from mailcore.queue.recipients import RecipientReader
from mailcore.request_priority import priority_of
from mailcore.routing.address import ascii_lower
from mailcore.routing.resolve import Refused, Resolve

__all__ = ["Admission", "of_recipient"]

LOCAL_PART_MAX = 64  # octets of a local part (RFC 5321 4.5.3.1.1); longer ones share a destination


class Admission:
    """Reads recipients of active messages and admits them to the scheduler."""

    def __init__(self, context: ManagerContext, passes: Passes) -> None:
        self.context = context
        self.passes = passes
        self._recipients = RecipientReader(context.queue)
        self._asked: dict[str, tuple[Active, int]] = {}  # batches that the scheduler asked for; it asks once

    def may_take(self, lane: str, envelope: Envelope) -> bool:
        """Returns whether a deferred message may enter before its time: its recipients wait only for another attempt."""
        context = self.context
        if not lane.startswith("retry.") or context.stalled or context.restored.backup_at:
            return False
        return not has_more_to_say(envelope)

    def has_room(self) -> bool:
        """Returns whether the active set has room for a deferred message now, which deferred mail shares as when it comes due
        (law: turns-for-new-and-deferred)."""
        context = self.context
        deferred, limit = deferred_in(context)
        return deferred < limit and len(context.queue.active) < context.scheduler.tuning.globals.message_active_limit

    def enter(self, active: Active, now: float) -> None:
        """Routes the first recipients of a message that entered the active set, and admits them."""
        context = self.context
        envelope = active.envelope
        if context.restored.backup_at:
            active.orders = context.restored.orders(active, context.wall())
        # Held or deleted mail is here only after a crash, or was injected with a hold: it returns to where it rests.
        if active.orders or active.lane in (HOLD, DELETED) or envelope.held_because:
            self.passes.over(active)
            return
        if (envelope.not_before or envelope.first_due_at) and self.passes.wait_longer(active):
            return
        if envelope.generation:
            context.log.active(envelope)
        self._read(active, context.scheduler.first_batch, now, self._recipients.begin)

    def _read(
        self,
        active: Active,
        count: int,
        now: float,
        read: Callable[[Active, int], Sequence[Recipient]],
    ) -> None:
        try:
            recipients = read(active, count)
        except Gone as gone:
            self.context.log.failed("manager", str(gone))
            active.ending = True  # it stays in the working set, and its segment stays (law: damage-set-aside)
            return
        self._admit(active, recipients, now)

    def _admit(self, active: Active, recipients: Sequence[Recipient], now: float) -> None:
        context = self.context
        by_recipient = context.scheduler.by_recipient
        resolve: Resolve = context.routing.resolve
        route, done, only = context.queue.sizes.route, active.done, active.only
        if context.routing.by_sender:
            resolve = context.routing.of_message(active.envelope.sender, active.envelope.login)
        entering: list[tuple[int, str, str]] = []
        unroutable: list[Verdict] = []
        deleted: list[int] = []
        held: dict[str, list[int]] = {}
        wall = context.wall() if active.envelope.aside else 0.0
        for recipient in recipients:
            number = recipient.number
            if number in done or (only is not None and not only.covers(number)):
                continue
            if recipient.aside is not None:
                if not is_due(recipient.aside, wall):
                    continue
                if recipient.aside.kind is AsideKind.DELETED:
                    deleted.append(number)
                    continue
            if recipient.aside is not None or recipient.paused_s:
                active.paused[number] = paused_s(recipient, active.age_s)
            active.pending[number] = recipient
            resolved = resolve(recipient.address, recipient.route)
            if isinstance(resolved, Refused):
                if resolved.released:
                    held.setdefault(resolved.released, []).append(number)
                    continue
                unroutable.append(Verdict(number, resolved.status, resolved.dsn, resolved.reply))
                continue
            destination = active.destinations[number] = resolved.destination
            route(destination, 1)
            if by_recipient and resolved.transport in by_recipient:
                destination = of_recipient(recipient.address, destination)
            entering.append((number, resolved.transport, destination))
        if held:  # the rest of this batch is read again in the next pass
            hold_by_route(context, self.passes, active, held, now)
            return
        if entering or active.stripped:  # every batch is reported to the scheduler, even if all in it are done
            options = active.envelope.options
            priority = priority_of(options) if options else 0
            context.scheduler.admit(active.queue_id, active.unread_recipients, entering, now, priority)
        if deleted:
            self.passes.delete_finally(active, deleted)
        if unroutable:
            self.passes.settle_ourselves(active, unroutable)
        elif active.pass_over:
            self.passes.over(active)

    def read_more(self, now: float) -> None:
        """Reads the next batch of each message for which the scheduler asks for one, with exactly as many recipients."""
        context = self.context
        active_set, asked = context.queue.active, self._asked
        for queue_id, count in context.scheduler.wanted(now):
            active = active_set.get(queue_id)
            if active is not None:
                asked[queue_id] = active, count
        for queue_id, (active, count) in list(asked.items()):
            over = active_set.get(queue_id) is not active or active.ending or active.orders
            if active.settling and not over:
                continue  # otherwise 100 000 unroutable recipients could be in memory at once
            del asked[queue_id]
            if over or not active.unread:
                continue
            self._read(active, count, now, self._recipients.read)
            context.go_on()  # all of the batch may be done since before a restart: then the next is needed


def of_recipient(address: str, destination: str) -> str:
    """Returns the scheduler's destination where each recipient is one: "smtp:user@next hop", as Postfix names its queue.

    Sizes, records and reports keep the name of the next hop.
    """
    transport, colon, next_hop = destination.partition(":")
    return f"{transport}{colon}{ascii_lower(address.rpartition('@')[0][:LOCAL_PART_MAX])}@{next_hop}"
