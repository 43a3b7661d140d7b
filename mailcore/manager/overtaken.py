"""Remembers what became of recipients whose delivery was in progress when an operator changed their message.

The final reply of the next hop counts: a recipient who is delivered or refused then is too late for the change.

Law: values only; bounded: the oldest are forgotten.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from mailcore.envelope import Status
from mailcore.manager_answers import Overtaken

__all__ = ["KEPT", "Overtaking"]

KEPT = 50_000  # recipients; more than all deliverers can have in progress


class Overtaking:
    """Watches recipients until their deliveries have ended. A restart of the manager forgets them all."""

    def __init__(self) -> None:
        self._ended: dict[tuple[str, int], bool | None] = {}  # was it too late? None: the delivery is still in progress

    def watch(self, queue_id: str, numbers: Collection[int]) -> None:
        """Begins to watch recipients who are being delivered now."""
        for number in numbers:
            self._ended.pop((queue_id, number), None)  # put at the end again
            self._ended[queue_id, number] = None
        while len(self._ended) > KEPT:
            del self._ended[next(iter(self._ended))]

    def ended(self, queue_id: str, numbers: Collection[int], statuses: Mapping[int, Status]) -> None:
        """Notes the end of a delivery; a recipient without a verdict was not delivered: the change applies."""
        for number in numbers:
            if (queue_id, number) in self._ended:
                self._ended[queue_id, number] = statuses.get(number, Status.DEFERRED) != Status.DEFERRED

    def became(self, recipients: Mapping[str, Sequence[int]]) -> Overtaken:
        """Counts what is known now about recipients, who are given as numbers by queue id."""
        found = Overtaken(too_late=0, undecided=0)
        for queue_id, numbers in recipients.items():
            for number in numbers:
                late = self._ended.get((queue_id, number))
                found.too_late += late is True
                found.undecided += late is None
        return found
