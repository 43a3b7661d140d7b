"""Preemption: how mail with few recipients slips past mail with many (Postfix's SCHEDULER_README).

Delivery slots. Each entry selected of a job is a k-th of a free delivery slot, k being ``delivery_slot_cost``; the counter
``slots_available`` is in k-ths and is divided when it is used. A job that needs n more entries may go in front of the
current job when n slots are there; it pays for them with n * k, at once, and what it did not use comes back when it ends.
So no job is inflated by more than k/(k-1), however deep the preemption goes.

Loans. Of the n slots only ``delivery_slot_discount`` per cent less, and ``delivery_slot_loan`` less, have to be there in
advance. The price stays the same: the counter goes below zero, and until it is above there is no preemption.

The candidate. Of all jobs that fit into what the current job can *ever* accumulate, the one with the greatest time since it
was enqueued by its entries; it may have to wait until enough is there, or else one-recipient mail would always win.

Finding it. Jobs of one size (entries needed, of entries in total) rank by age alone; so they are kept in classes by size, the
oldest first, and a search looks at one job a class. A job whose destinations are all blocked is not a candidate: when a search
meets one it parks it with those destinations, and each, when it is able again, puts the oldest of its parked ones back.
The classes are only kept while there is a job big enough to be preempted at all: mostly there is none.

Priority. Preemption is among jobs of one priority: a job of a higher one is in front without it, and none is preempted by a
job of a lower one.

The stack. Which job preempted which matters for the slots only: a job's place in the list is its key (``job``). Children whose
parent ends are adopted by its parent, who is not charged for them: their slots were paid for by the one that is gone.

Laws
- While a transport keeps classes, a job is in one exactly while it is on the list, needs entries and has no living children.
- A transport with a big job keeps classes.
- Sum over a job's living children and those ended: what they used, times the price, is what its slots were charged.

Keeps law: slots-paid-for, law: priority-first (docs/laws.md).
"""

from __future__ import annotations

import heapq
import math

from mailcore.scheduler.jobs import LAST, Candidacy, Destination, Job, SizeClass, SizeKey, Transport
from mailcore.scheduler.parameters import TransportParameters

__all__ = [
    "advance_missing", "best_candidate", "big_from", "classify", "count_selected", "entries_missing", "leave_stack", "preempt",
    "preemptible", "uncount_selected", "unpark",
]  # fmt: skip

STALE = 64  # rebuild a heap when len > 2 * live + STALE
UNUSED_MAX = 1_000  # classes are dropped after this many changes without a big job, plus one for each job


def count_selected(job: Job) -> None:
    """Counts an entry of the job as selected, which earns a delivery slot."""
    job.selected += 1
    job.slots_available += 1
    job.slots_used += 1


def uncount_selected(job: Job) -> None:
    """Uncounts a selected entry of the job that waits again because its deliverer ended."""
    job.selected -= 1
    job.slots_available -= 1
    job.slots_used -= 1


# -- may it, and when


def preemptible(current: Job) -> bool:
    """Returns whether a search for a candidate is worthwhile: the job is big enough, and the smallest possible
    candidate could preempt it now."""
    return current.big and current.slots_available > 0 and advance_missing(current, 1) <= 0


def big_from(parameters: TransportParameters) -> float:
    """Returns the number of entries that a job must have, or be able to get, so that others may preempt it."""
    cost = parameters.delivery_slot_cost
    # At a cost of 1 everything could be inflated without end: the algorithm is switched off, as in Postfix
    return max(parameters.minimum_delivery_slots * cost, 1) if cost >= 2 else math.inf


def advance_missing(current: Job, needed: int) -> float:
    """Returns the number of slots that the job must still accumulate before one that needs ``needed`` entries may
    preempt it; 0 or less: it may now."""
    parameters = current.transport.parameters
    wanted = needed * (100 - parameters.delivery_slot_discount) / 100
    return wanted - parameters.delivery_slot_loan - current.slots_available // parameters.delivery_slot_cost


def entries_missing(current: Job, needed: int) -> int:
    """Returns how many entries of the current job must still be selected before one that needs ``needed`` may preempt
    it."""
    parameters = current.transport.parameters
    wanted = math.ceil(needed * (100 - parameters.delivery_slot_discount) / 100 - parameters.delivery_slot_loan)
    return max(max(wanted * parameters.delivery_slot_cost, 1) - current.slots_available, 0)


def slots_ever(current: Job) -> int:
    """Returns the slots that the job has, and will have once all its entries in memory are selected."""
    return (current.entries + current.slots_available) // current.transport.parameters.delivery_slot_cost


def preempt(current: Job, now: float) -> Job | None:
    """Puts the best candidate in front of the current job and returns it, if it may preempt now; otherwise changes
    nothing and returns None."""
    if not preemptible(current):
        return None
    candidate = best_candidate(current, now)
    if candidate is None:
        return None
    needed = candidate.needed
    if advance_missing(current, needed) > 0:
        return None
    leave_stack(candidate)
    price = current.transport.parameters.delivery_slot_cost
    candidate.key = (*current.key[:-1], current.born, LAST)
    candidate.parent = candidate.preempted = current
    candidate.price = price
    candidate.slots_used = -needed
    current.born += 1
    current.children[candidate] = None
    current.slots_available -= needed * price
    classify(current)
    classify(candidate, again=True)
    return candidate


def leave_stack(job: Job) -> None:
    """Removes a job that has ended or goes elsewhere from the stack: its unused slots return to the job it preempted,
    and its children get its parent."""
    parent = job.parent
    if parent is None and not job.children:
        return
    if parent is not None:
        if parent is job.preempted:
            parent.slots_available -= job.slots_used * job.price
        del parent.children[job]
    for child in job.children:
        child.parent = parent
        if parent is not None:
            parent.children[child] = None
    job.children.clear()
    job.parent = job.preempted = None
    if parent is not None:
        classify(parent)


# -- candidates


def classify(job: Job, again: bool = False) -> None:
    """Puts the job into the class of its size, after a change that may affect it; ``again``: its peers or its key have."""
    transport = job.transport
    needed = job.entries + job.message.unread
    total = job.selected + needed
    big = job.listed and total >= transport.big_from
    if big is not job.big:
        job.big = big
        transport.big += 1 if big else -1
        if not transport.keeps_classes:
            _keep_classes(transport)
            return
    if not transport.keeps_classes:
        job.size = None
        return
    if transport.big:
        transport.unused = 0
    else:
        transport.unused += 1
        if transport.unused > UNUSED_MAX + len(transport.jobs):
            transport.keeps_classes = False
            transport.sizes.clear()
            job.size = None
            return
    size = (needed, total, job.message.priority) if job.listed and needed and not job.children else None
    old = job.size
    if size == old and not again:
        return
    sizes = transport.sizes
    if size != old:
        job.size = size
        if old is not None:
            left = sizes[old]
            left.living -= 1
            if not left.living:
                del sizes[old]
    if size is None:
        return
    into = sizes.get(size)
    if into is None:
        into = sizes[size] = SizeClass()
    if size != old:
        into.living += 1
    _enter(into, size, job)


def _keep_classes(transport: Transport) -> None:
    """Begins to keep size classes at the first big job, which others may preempt. The cost grows with the number of
    jobs."""
    transport.keeps_classes = True
    transport.unused = 0
    for job in transport.jobs:
        job.size = None  # of when classes were kept last
    for job in transport.jobs:
        classify(job, again=True)


def _enter(into: SizeClass, size: SizeKey, job: Job) -> None:
    transport = job.transport
    transport.serial += 1
    heap = into.heap
    heapq.heappush(heap, (job.message.enqueued, job.key, transport.serial, job, None))
    if len(heap) > 2 * into.living + STALE:
        into.heap = [(*item[:4], None) for item in {item[3]: item for item in heap if _holds(item, size)}.values()]
        heapq.heapify(into.heap)
        for destination in {item[4] for item in heap if item[4] is not None}:
            _next_parked(destination, size, into)


def _holds(item: Candidacy, size: SizeKey) -> bool:
    job = item[3]
    return job.size == size and job.key is item[1]


def best_candidate(current: Job, now: float) -> Job | None:
    """Returns the job with the longest time since enqueued per entry, among those that could ever fit into the slots;
    None if there is none."""
    slots = slots_ever(current)
    priority = current.message.priority
    best: Job | None = None
    best_score = 0.0
    for size, jobs in current.transport.sizes.items():
        if size[0] > slots or size[2] < priority:
            continue
        job = _oldest_selectable(jobs, size, current)
        if job is not None:
            # A second more, so that those that came just now are ranked by their entries
            score = (now - job.message.enqueued + 1) / size[1]
            if best is None or score > best_score or (score == best_score and job.key < best.key):
                best, best_score = job, score
    return best


def _oldest_selectable(jobs: SizeClass, size: SizeKey, current: Job) -> Job | None:
    heap = jobs.heap
    own: Candidacy | None = None  # the current job's
    found: Job | None = None
    while heap and found is None:
        item = heap[0]
        _, _, _, job, via = item
        if not _holds(item, size) or job is current or (via is not None and via.name not in job.peers):
            heapq.heappop(heap)
            if job is current and _holds(item, size):
                own = (*item[:4], None)
            if via is not None:
                _next_parked(via, size, jobs)  # it stood in front of others of that destination
        elif via is None:
            if any(peer.destination.able() for peer in job.peers.values()):
                found = job
            else:
                heapq.heappop(heap)
                for peer in job.peers.values():
                    _park(peer.destination, size, item)
        elif via.able():
            found = job
        else:
            heapq.heappop(heap)
            _park(via, size, item)
    if own is not None:
        heapq.heappush(heap, own)
    return found


def _park(destination: Destination, size: SizeKey, item: Candidacy) -> None:
    heapq.heappush(destination.parked.setdefault(size, []), item[:4])


def unpark(destination: Destination) -> None:
    """Makes parked jobs candidates again, the oldest of each size, because the destination can take mail again."""
    sizes = destination.transport.sizes
    for size in list(destination.parked):
        jobs = sizes.get(size)
        if jobs is None:
            del destination.parked[size]
        else:
            _next_parked(destination, size, jobs)


def _next_parked(destination: Destination, size: SizeKey, jobs: SizeClass) -> None:
    parked = destination.parked.get(size)
    while parked:
        enqueued, key, _, job = heapq.heappop(parked)
        if job.size == size and job.key is key and destination.name in job.peers:
            transport = destination.transport
            transport.serial += 1
            heapq.heappush(jobs.heap, (enqueued, key, transport.serial, job, destination))
            break
    if not parked:
        destination.parked.pop(size, None)
