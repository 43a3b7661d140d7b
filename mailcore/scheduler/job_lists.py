"""The job lists of all transports: recipients come into jobs and peers, entries are cut from them, jobs go off the list.

Laws
- A job is on its transport's list from when it gets recipients until none of them waits and its message has no
  unread ones; then it is retired, and returns to the place of its message when it gets some again.
- Waiting recipients are counted in its peer, its job, its destination and its transport, always by ``wait``.
- Must not know: windows, time.
"""

from __future__ import annotations

from mailcore.scheduler.destinations import Destinations
from mailcore.scheduler.entry import Entry
from mailcore.scheduler.jobs import LAST, Destination, Job, Message, Peer
from mailcore.scheduler.preemption import classify, leave_stack, uncount_selected
from mailcore.scheduler.recipients import Recipients

__all__ = ["JobLists"]


class JobLists:
    """The job lists of all transports."""

    def __init__(self, destinations: Destinations, recipients: Recipients) -> None:
        self.destinations = destinations
        self.recipients = recipients
        self._turn = 0
        self._entry = 0

    def next_turn(self, peer: Peer) -> None:
        """Moves the peer behind its job's other destinations."""
        self._turn += 1
        peer.turn = self._turn

    def peer(self, message: Message, transport_name: str, name: str) -> Peer:
        """Returns the part of the message for the destination; it is created if needed."""
        destinations = self.destinations
        destination = destinations.active.get(name)
        if destination is None:
            destination = destinations.find(transport_name, name)
        job = message.jobs.get(transport_name)
        if job is None:
            job = message.jobs[transport_name] = Job(message, destination.transport)
        peer = job.peers.get(name)
        if peer is None:
            self._turn += 1
            peer = job.peers[name] = Peer(job, destination, self._turn)
            destination.waiting += 1
        return peer

    def join(self, peer: Peer, before: int) -> None:
        """Adds the peer's recipients beyond the ``before`` that were counted already to its job and destination."""
        job, destination = peer.job, peer.destination
        added = len(peer.recipients) - before
        job.count += added
        self.wait(peer, added)
        if not job.listed:
            job.listed = True
            job.transport.jobs[job] = None
            self.recipients.link(job)
        if not before:
            destination.line_up(peer)

    @staticmethod
    def wait(peer: Peer, count: int) -> None:
        """Counts ``count`` more waiting recipients of the peer; fewer if negative."""
        job, destination = peer.job, peer.destination
        destination.queued += count
        destination.transport.queued += count
        entries = -(-len(peer.recipients) // destination.recipient_limit)
        job.entries += entries - peer.entries
        peer.entries = entries
        if not entries:
            del job.peers[destination.name]
            destination.waiting -= 1

    def cut(self, peer: Peer, limit: int) -> Entry:
        """Returns an entry with at most ``limit`` recipients, taken from the front of the peer."""
        recipients = peer.recipients
        taken = tuple(recipients[:limit])
        del recipients[:limit]
        self.wait(peer, -len(taken))
        self._entry += 1
        destination = peer.destination
        return Entry(self._entry, peer.job.message.queue_id, destination.transport.name, destination.name, taken)

    def selected(self, job: Job) -> None:
        """Updates the job after it lost an entry: asks for more recipients, retires it, or classifies it again."""
        if not job.entries:
            if job.message.unread:
                self.recipients.look_at(job.message)
            elif job.listed:
                self.retire(job)
                return
        classify(job)

    def retire(self, job: Job) -> None:
        """Takes the job off the list until it gets recipients again, by another batch or because a deliverer ended."""
        leave_stack(job)
        job.listed = False
        job.key = (job.message.sequence, LAST)
        del job.transport.jobs[job]
        classify(job)
        self.recipients.settle(job)

    def give_back(self, job: Job, destination: Destination, undone: list[int], tried: bool) -> None:
        """Returns the recipients of a delivery that a dead deliverer had to the front of their peer."""
        peer = self.peer(job.message, job.transport.name, destination.name)
        before = len(peer.recipients)
        peer.recipients[:0] = undone
        entries = job.entries
        job.count -= len(undone)  # counted again as they join
        self.join(peer, before)
        if tried:
            uncount_selected(job)
        else:
            job.selected -= job.entries - entries
        classify(job, again=True)
        destination.given_back += len(undone)

    def clear(self, peer: Peer) -> list[int]:
        """Takes all that waits out of the peer."""
        out = list(peer.recipients)
        peer.recipients.clear()
        self.wait(peer, -len(out))
        return out
