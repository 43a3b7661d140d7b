"""A message in the active set: its jobs, one a transport, and how many of its recipients are in core.

Laws: ``count`` is the recipients in core, waiting or in flight, and the sum of its jobs' counts; ``slots`` is
``minimum`` and the slots its jobs have lent it (``recipients`` keeps both).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mailcore.scheduler.job import Job

__all__ = ["Message"]


class Message:
    __slots__ = (
        "count", "enqueued", "jobs", "minimum", "promised", "queue_id", "reading", "refill_at", "refilled", "sequence", "slots",
        "unread",
    )  # fmt: skip

    def __init__(self, queue_id: str, sequence: int, minimum: int, now: float) -> None:
        self.queue_id = queue_id
        self.sequence = sequence  # place in the order in which messages came in
        self.enqueued = now  # when it came in
        self.jobs: dict[str, Job] = {}  # by transport
        self.unread = 0  # recipients still in the log
        self.count = 0
        self.minimum = minimum  # message_recipient_minimum when it came in
        self.slots = minimum
        self.reading = False  # more were asked for and have not come yet
        self.promised = 0  # of those, how many will be above ``minimum``
        self.refill_at = -1.0  # when few more may be read, if more were wanted before
        self.refilled = now  # when recipients came in last

    @property
    def waiting(self) -> bool:
        """Some recipient in core is not in flight."""
        return any(job.entries for job in self.jobs.values())
