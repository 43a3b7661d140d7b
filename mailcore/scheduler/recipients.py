"""Recipient memory: how many recipients may be in core, and whose (Postfix's SCHEDULER_README).

A message's first batch is ``message_recipient_minimum``, or as many as are free of ``message_recipient_limit``. Further
batches are as large as the recipient slots of its jobs allow. Each transport has a pool of ``recipient_limit`` slots and
hands them along its jobs in the order of their messages: the first that still has recipients in the log gets all that are
free; what a job has in core keeps its slots until it is done. An unread job that preempts another gets half of what is left
of ``extra_recipient_limit``.

Laws
- A transport's ``slots_unused`` and its jobs' slots add up to its ``recipient_limit``; ``slots_unused`` falls below 0 by at
  most ``extra_recipient_limit``.
- ``in_core`` is never more than ``message_recipient_minimum`` a message and the sum of the pools (SCHEDULER_README, "the upper
  bound formulas"): ``above``, what messages have beyond their minimum, never passes the pools.
- Must not know: who is delivered next.

Keeps law: recipients-in-core-bounded (docs/laws.md).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from mailcore.scheduler.jobs import Job, Message, Transport
from mailcore.scheduler.timetable import Timetable
from mailcore.scheduler.tuning import Tuning

__all__ = ["BATCH_MAX", "Recipients"]

BATCH_MAX = 5_000  # Postfix's qmgr_message_read() reads no more at once, so that other work is not kept waiting


class Recipients:
    """Counts the recipients in memory, and decides which unread ones are read next."""

    def __init__(self, tuning: Tuning, timetable: Timetable, transports: Iterable[Transport]) -> None:
        self._tuning = tuning
        self._timetable = timetable
        self._transports = transports  # all there are, a live view
        self._hungry: dict[Message, None] = {}  # unread, and something about their room has changed
        self.pools = 0  # all that transports may have in core beyond the messages' minimum
        self.in_core = 0
        self.above = 0
        self._promised = 0  # recipients requested and not read yet, beyond the minimum

    # -- counting

    def came(self, message: Message, count: int) -> None:
        """Counts ``count`` more recipients of the message in memory; fewer if negative."""
        before = message.count
        message.count = after = before + count
        self.in_core += count
        minimum = message.minimum
        if after > minimum or before > minimum:
            self.above += max(after - minimum, 0) - max(before - minimum, 0)

    def count_pools(self) -> None:
        """Adds up the pools; called when a transport is new or its pools have changed."""
        self.pools = sum(
            one.parameters.recipient_limit + one.parameters.extra_recipient_limit for one in self._transports
        )

    # -- reading

    @property
    def first_batch(self) -> int:
        """Returns how many recipients of a new message may be read."""
        values = self._tuning.globals
        minimum = values.message_recipient_minimum
        free = min(values.message_recipient_limit - self.in_core - minimum, self._free)
        return min(minimum + max(free, 0), BATCH_MAX)

    def wanted(self, now: float) -> list[tuple[str, int]]:
        """Returns which messages may read how many more recipients; each is returned once."""
        hungry, self._hungry = self._hungry, {}
        answer: list[tuple[str, int]] = []
        for message in hungry:
            room = self.room(message)
            if room <= 0 or message.reading:
                if message.unread and message.slots > message.count and not message.reading:
                    self._hungry[message] = None  # the pools are full beyond its slots: when they no longer are
                continue
            due = self.refill_due(message)
            enough = min((job.transport.parameters.recipient_refill_limit for job in message.jobs.values()), default=0)
            if room >= enough or now >= due or not message.waiting:
                message.reading = True
                message.promised = self._beyond(message, room)
                self._promised += message.promised
                answer.append((message.queue_id, room))
            elif message.refill_at != due:
                message.refill_at = due
                self._timetable.at(message, "refill_at", self._look_again)
        return answer

    def room(self, message: Message) -> int:
        """Returns how many more of its unread recipients the message may have in memory now."""
        room = min(message.slots - message.count, message.unread, BATCH_MAX)
        return room - max(self._beyond(message, room) - self._free, 0)

    @staticmethod
    def _beyond(message: Message, room: int) -> int:
        """Returns how many of ``room`` more recipients would be above the message's minimum."""
        return max(message.count + room - max(message.count, message.minimum), 0)

    @property
    def _free(self) -> int:
        """Returns how many slots of the pools are free."""
        return max(self.pools - self.above - self._promised, 0)

    def read(self, message: Message) -> None:
        """Ends a request for recipients: they were read, or are no longer needed."""
        message.reading = False
        self._promised -= message.promised
        message.promised = 0

    @staticmethod
    def refill_due(message: Message) -> float:
        """Returns the time from which on reading even a few more recipients is worthwhile."""
        delays = [job.transport.parameters.recipient_refill_delay for job in message.jobs.values()]
        return message.refilled + min(delays, default=0.0)

    def _look_again(self, message: Message) -> None:
        message.refill_at = -1.0
        if message.unread:
            self._hungry[message] = None

    def look_at(self, message: Message) -> None:
        """Notes that an unread message has changed, so that ``wanted`` examines it."""
        self._hungry[message] = None

    # -- slots

    def link(self, job: Job) -> None:
        """Gives a job that is new on the list "all unused recipient slots from its transport's pool"."""
        transport, message = job.transport, job.message
        if message.unread:
            first = self.first_unread(transport)
            heapq.heappush(transport.unread, (message.sequence, job))
            if first is not None and message.sequence < first.message.sequence:
                self.settle(first)
        unused = transport.slots_unused
        if unused > 0:
            if not (message.unread or job.slots or len(message.jobs) > 1):
                unused = min(unused, job.count)  # the slots it would keep in ``settle``
            job.slots += unused
            message.slots += unused
            transport.slots_unused -= unused

    def settle(self, job: Job) -> None:
        """Gives the slots that the job does not use to the first unread job, or to the pool."""
        transport, message = job.transport, job.message
        unused = min(job.slots - job.count, message.slots - message.count)
        if unused <= 0:
            return
        job.slots -= unused
        message.slots -= unused
        transport.slots_unused += unused
        if transport.unread and transport.slots_unused > 0:
            self.hand_on(transport)

    def hand_on(self, transport: Transport) -> None:
        """Gives all unused slots of the transport to its first unread job."""
        first = self.first_unread(transport)
        unused = transport.slots_unused
        if first is not None and unused > 0:
            first.slots += unused
            first.message.slots += unused
            transport.slots_unused = 0
            self._hungry[first.message] = None

    def lend_extra(self, job: Job) -> None:
        """Lends half of the rest of the extra pool to an unread job that has preempted another."""
        transport, message = job.transport, job.message
        left = transport.parameters.extra_recipient_limit + transport.slots_unused
        if message.unread and left > 0:
            lent = (left + 1) // 2
            job.slots += lent
            message.slots += lent
            transport.slots_unused -= lent
            self._hungry[message] = None

    def first_unread(self, transport: Transport) -> Job | None:
        """Returns the listed job with unread recipients whose message came first, or None."""
        unread = transport.unread
        while unread:
            job = unread[0][1]
            if job.listed and job.message.unread:
                return job
            heapq.heappop(unread)
        return None

    def done(self, job: Job, count: int) -> None:
        """Counts ``count`` recipients of the job as gone from memory, and gives away slots that are not needed."""
        message = job.message
        job.count -= count
        self.came(message, -count)
        unread = message.unread
        if len(message.jobs) > 1:
            for sponsor in message.jobs.values():
                if sponsor is not job and sponsor.count < sponsor.slots and not (sponsor.listed and unread):
                    self.settle(sponsor)
        if unread:
            self._hungry[message] = None
        else:
            self.settle(job)
