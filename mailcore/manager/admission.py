"""From the active set into the scheduler: a message's recipients are read, routed and admitted, as many as it asks for.

Laws
- What is in memory of a message's recipients is what the scheduler let in (law 12); the others are places in the log.
- Every batch the scheduler asked for is admitted, even if nobody in it is left to do.
- Who can't be routed has a verdict of our own, which the scheduler never hears of; while such verdicts wait for their sync
  no more of the message is read.

Keeps law: memory-bounded (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mailcore.envelope import Recipient, Verdict
from mailcore.manager.passes import Passes
from mailcore.manager.shared import Core
from mailcore.queue.active import Active
from mailcore.queue.queue import Gone
from mailcore.queue.recipients import RecipientReader
from mailcore.routing.resolve import Refused

__all__ = ["Admission"]

LOCAL_PART_MAX = 64  # octets of a local part (RFC 5321 4.5.3.1.1); longer ones share a destination


class Admission:
    def __init__(self, core: Core, passes: Passes) -> None:
        self.core = core
        self.passes = passes
        self._recipients = RecipientReader(core.queue)
        self._asked: dict[str, tuple[Active, int]] = {}  # batches the scheduler wants: it says so once

    def enter(self, active: Active, now: float) -> None:
        """A message is in the active set: its first recipients are routed and handed to the scheduler."""
        core = self.core
        envelope = active.envelope
        if core.restored.backup_at:
            active.order = core.restored.order(active, core.wall()) or active.order
        if active.order is not None:
            self.passes.over(active)
            return
        if envelope.not_before and self.passes.wait_longer(active):
            return
        if envelope.generation:
            core.log.active(envelope)
        self._read(active, core.scheduler.first_batch, now, self._recipients.begin)

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
            self.core.log.failed("manager", str(gone))
            active.ending = True  # it stays, working, and its segment with it (law 11)
            return
        self._admit(active, recipients, now)

    def _admit(self, active: Active, recipients: Sequence[Recipient], now: float) -> None:
        core = self.core
        by_recipient = core.scheduler.by_recipient
        resolve, route, done = core.routing.resolve, core.queue.sizes.route, active.done
        entering: list[tuple[int, str, str]] = []
        unroutable: list[Verdict] = []
        for recipient in recipients:
            number = recipient.number
            if number in done:
                continue
            active.pending[number] = recipient
            resolved = resolve(recipient.address, recipient.route)
            if isinstance(resolved, Refused):
                unroutable.append(Verdict(number, resolved.status, resolved.dsn, resolved.reply))
                continue
            destination = active.destinations[number] = resolved.destination
            route(destination, 1)
            if by_recipient and resolved.transport in by_recipient:
                destination = _of_recipient(recipient.address, destination)
            entering.append((number, resolved.transport, destination))
        if entering or active.stripped:  # the scheduler must hear of every batch, even if all in it are done
            core.scheduler.admit(active.queue_id, active.unread_recipients, entering, now)
        if unroutable:
            self.passes.settle_ourselves(active, unroutable)
        elif active.pass_over:
            self.passes.over(active)

    def read_more(self, now: float) -> None:
        """Messages whose recipients are not all in core get their next batch when the scheduler wants it: exactly as many."""
        core = self.core
        active_set, asked = core.queue.active, self._asked
        for queue_id, count in core.scheduler.wanted(now):
            active = active_set.get(queue_id)
            if active is not None:
                asked[queue_id] = active, count
        for queue_id, (active, count) in list(asked.items()):
            over = active_set.get(queue_id) is not active or active.ending or active.order is not None
            if active.settling and not over:
                continue  # or a hundred thousand that can't be routed would be in memory together
            del asked[queue_id]
            if over or not active.unread:
                continue
            self._read(active, count, now, self._recipients.read)
            core.go_on()  # all of that batch may have been done before a restart: the next one is wanted then


def _of_recipient(address: str, destination: str) -> str:
    """The scheduler's destination where one recipient is one: "smtp:user@next hop", as Postfix names its queue then. The
    next hop's own name stays what sizes, records and reports go by."""
    transport, colon, next_hop = destination.partition(":")
    return f"{transport}{colon}{address.rpartition('@')[0][:LOCAL_PART_MAX].lower()}@{next_hop}"
