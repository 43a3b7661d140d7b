"""A transport's job list: "How the entry selection works", "How the preemption works" and the blocker jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.scheduler.document.job import Charge, Job, Peer

__all__ = ["Transport"]


class Transport:
    """One transport. ``value(parameter, destination)`` is what is in force; ``open_to`` says what blocks a peer."""

    def __init__(self, name: str, value: Callable[..., Any], open_to: Callable[[str, float], bool]) -> None:
        self.name = name
        self.value = value
        self.open_to = open_to
        self.jobs: list[Job] = []  # the scheduler's job list
        self.busy = 0
        self.dead_until: float | None = None
        self.delayed_from = 0.0  # transport_rate_delay: from the end of a delivery
        self.delayed_until: float | None = None

    # -- counting

    def entries(self, peer: Peer) -> int:
        return -(-len(peer.recipients) // int(self.value("destination_recipient_limit", peer.destination)))

    def in_core(self, job: Job) -> int:
        return sum(self.entries(peer) for peer in job.peers)

    def max_entries(self, job: Job) -> int:
        """The recipients that are not read yet may all become entries of this job."""
        return job.selected + self.in_core(job) + job.message.unread

    def selectable(self, job: Job, now: float) -> Peer | None:
        """The job's next peer whose destination has room. Without one, the job is a blocker (or has no entries)."""
        for peer in job.peers:
            if peer.recipients and self.open_to(peer.destination, now):
                return peer
        return None

    # -- selection

    def current(self, now: float) -> Job | None:
        """The job list without its blockers: its first job."""
        for job in self.jobs:
            if self.selectable(job, now) is not None:
                return job
        return None

    def full(self, now: float) -> bool:
        if self.dead_until is not None or (self.delayed_until is not None and now < self.delayed_until):
            return True
        limit = 1 if self.value("transport_rate_delay") > 0 else self.value("process_limit")
        return bool(self.busy >= limit)

    def select(self, now: float) -> tuple[Job, str, tuple[int, ...]] | None:
        """The next entry. What it takes of the destination's window and the transport's limit, the caller counts."""
        if self.full(now):
            return None
        job = self.current(now)
        if job is None:
            return None
        if self.value("delivery_slot_cost") >= 2:
            job = self.preempt(job, now)
        peer = self.selectable(job, now)
        assert peer is not None
        limit = self.value("destination_recipient_limit", peer.destination)
        recipients, peer.recipients = tuple(peer.recipients[:limit]), peer.recipients[limit:]
        job.peers.remove(peer)  # round robin by destination
        if peer.recipients:
            job.peers.append(peer)
        job.selected += 1
        job.given += 1
        job.slots_available += 1
        job.slots_used += 1
        self.retire_if_over(job)
        return job, peer.destination, recipients

    # -- preemption

    def candidate(self, current: Job, now: float) -> Job | None:
        """The best of those that could ever be delivered by the slots that the current job may yet accumulate."""
        left = self.in_core(current)
        max_slots = (left + current.slots_available) // self.value("delivery_slot_cost")
        best: tuple[float, Job] | None = None
        for job in self.jobs:
            if job is current or job.children or self.selectable(job, now) is None:
                continue
            needed = self.max_entries(job) - job.selected
            if not 0 < needed <= max_slots:
                continue
            score = (now - job.message.enqueued + 1.0) / self.max_entries(job)
            if best is None or score > best[0]:
                best = score, job
        return best[1] if best else None

    def preempt(self, current: Job, now: float) -> Job:
        cost = self.value("delivery_slot_cost")
        if current.slots_available <= 0 or self.max_entries(current) < self.value("minimum_delivery_slots") * cost:
            return current
        job = self.candidate(current, now)
        if job is None:
            return current
        needed = self.max_entries(job) - job.selected
        in_advance = needed * (100 - self.value("delivery_slot_discount")) / 100
        if current.slots_available // cost + self.value("delivery_slot_loan") < in_advance:
            return current
        self.pop(job)
        self.jobs.remove(job)
        self.jobs.insert(self.jobs.index(current), job)
        job.parent = job.preempted = current
        job.place = current.place
        current.children.append(job)
        # The whole price at once, for several may preempt the same job at the same time; put right by pop.
        job.price = cost
        current.slots_available -= needed * cost
        job.slots_used = -needed
        job.charge = Charge(cost, needed, job.given)
        current.charges.append(job.charge)
        return job

    def pop(self, job: Job) -> None:
        """Takes the job off its preemption stack."""
        parent = job.parent
        if parent is not None:
            if parent is job.preempted:
                parent.slots_available -= job.slots_used * job.price
                assert job.charge is not None
                job.charge.entries = job.given - job.charge.since
            parent.children.remove(job)
        job.parent = job.preempted = job.charge = None
        for child in job.children:  # parents that end before their children
            child.parent = parent
            if parent is not None:
                parent.children.append(child)
        job.children = []

    # -- the list

    def link(self, job: Job) -> None:
        """Puts the job in by the time its message was picked up.

        Those that preempted another stand where that one stands, or stood: they keep the place when it has ended. (The
        document leaves open where an older job that comes back then goes; in Postfix it would go in front of them.)
        """
        job.place = job.age
        at = len(self.jobs)
        while at > 0 and self.jobs[at - 1].place > job.age:
            at -= 1
        self.jobs.insert(at, job)

    def retire_if_over(self, job: Job, *, nothing_unread: bool = False) -> None:
        if job in self.jobs and not self.in_core(job) and (nothing_unread or not job.message.unread):
            self.pop(job)
            self.jobs.remove(job)
