"""The state of each remaining recipient at the end of a pass, and the lane where the message rests.

It reads all remaining recipients once for the count; the rewrite reads them again and gets the same answer. Only messages with
an operator's order, or with recipients aside, take this way.

Keeps law: change-of-its-recipients, law: aside-is-copied (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from mailcore.envelope import Aside, AsideKind, Recipient
from mailcore.manager.context import ManagerContext
from mailcore.queue.active import Active
from mailcore.queue.aside import SLACK_S, Change, Place, Tally, is_due, paused_s, with_its_state
from mailcore.queue.records import Administrative
from mailcore.queue.rewrite import numbers_used, remaining_recipients
from mailcore.routing.resolve import Refused

__all__ = ["Placing", "change_of"]


def _longer_than_slack(interval_s: float) -> float:
    """Returns a wait that does not count as over when it begins: a recipient may be tried SLACK_S before its time."""
    return max(interval_s, SLACK_S + 0.01)


def change_of(context: ManagerContext, active: Active, order: Administrative) -> Change:
    """Returns the order as a change of the message's recipients."""
    return Change(order, age_s=context.age_s(active), undo_time_s=context.queue.undo_time_s)


class Placing:
    """Applies an active message's orders to its recipients; what this pass deferred waits ``interval_s``."""

    def __init__(self, context: ManagerContext, active: Active, interval_s: int) -> None:
        self._context = context
        self._active = active
        self._now = context.wall()
        self._deferred_until = self._now + (_longer_than_slack(interval_s) if interval_s else 0)
        self._changes = [change_of(context, active, order) for order in active.orders]
        self.tally = Tally(self._now)
        self.added: list[Recipient] = []
        self._together = False  # all wait for the same time, so that none of them needs to say so

    def __call__(self, recipient: Recipient) -> Recipient:
        """Returns a remaining recipient as it is written."""
        recipient = self.after_orders(recipient)
        return msgspec.structs.replace(recipient, aside=None) if self._together else recipient

    def now(self, recipient: Recipient) -> Recipient:
        """Returns a remaining recipient as it is before the orders."""
        active, now = self._active, self._now
        recipient = with_its_state(recipient, active.envelope, active.lane, now)
        aside = recipient.aside
        if aside is not None and aside.kind in _TIMED and is_due(aside, now):
            recipient = msgspec.structs.replace(recipient, aside=None, paused_s=paused_s(recipient, active.age_s))
            aside = None
        if aside is None:
            if recipient.number in active.deferred:
                until = self._deferred_until
            elif active.only is not None and not active.only.covers(recipient.number):
                until = active.only.others_until
            else:
                until = active.rested_until
            if until > now:
                return msgspec.structs.replace(recipient, aside=Aside(AsideKind.DEFERRED, until))
        return recipient

    def bounced(self) -> Iterator[tuple[Recipient, Administrative]]:
        """Yields the recipients that an order returns to the sender, and the order. Raises Gone."""
        bounces = [change for change in self._changes if change.operation == "bounce"]
        if not bounces:
            return
        for before in map(self.now, remaining_recipients(self._context.queue, self._active)):
            recipient = before
            for change, order in zip(self._changes, self._active.orders, strict=True):
                if change.bounces(recipient):
                    yield recipient, order
                    break
                recipient = change(recipient)

    def place(self) -> Place | None:
        """Returns where the message rests; None if no recipient remains. Raises Gone."""
        context, active, tally = self._context, self._active, self.tally
        for recipient in remaining_recipients(context.queue, active):
            tally.add(self.after_orders(recipient))
        aside = tally.of_all(self._now, active.age_s)
        number = numbers_used(active.envelope)
        for at, order in enumerate(active.orders):
            for address in order.arguments.get("recipients", ()):
                added = Recipient(number, address, aside=aside)
                number += 1
                for change in self._changes[at + 1 :]:
                    added = change(added)
                self.added.append(added)
        for recipient in self.added:
            tally.add(recipient)
        if not tally.recipients:
            return None
        place = tally.place(context.ladder(), context.queue.undo_time_s)
        self._together = tally.together
        if self._together:
            self.added = [msgspec.structs.replace(recipient, aside=None) for recipient in self.added]
        return place

    def after_orders(self, recipient: Recipient) -> Recipient:
        """Returns a remaining recipient after the orders."""
        recipient = self.now(recipient)
        for change in self._changes:
            if change.operation == "reroute" and change.covers(recipient.number):
                changed = change(recipient)
                if changed is not recipient:
                    resolved = self._context.routing.resolve(changed.address, changed.route)
                    if not isinstance(resolved, Refused):  # counted under the name that it will be tried under
                        changed = msgspec.structs.replace(changed, destination=resolved.destination)
                recipient = changed
            else:
                recipient = change(recipient)
        return recipient


_TIMED = (AsideKind.DEFERRED, AsideKind.DELAYED)
