"""The lease of the shard, as the manager uses it: nothing is given to a deliverer beyond it, and deliverers know its end.

A database keeps the lease, and a thread renews it (``mailcore.replication``). Here it is only looked at: a long turn of this
loop does not cost it. A manager without one owns its queue for as long as it has the lock.

Keeps law: no-dot-after-lease (docs/laws.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from mailcore.frames import Lease
from mailcore.log.store import Store
from mailcore.manager.flow import DelivererLink
from mailcore.manager.meeting import Meeting
from mailcore.manager_answers import ShardState

__all__ = ["HeldLease", "HeldShard", "Leasing", "shard_state"]

LOOK_S = 0.25  # a renewal is known to the deliverers after that; a lease lasts for seconds


class HeldLease(Protocol):
    """The lease, kept by another thread."""

    @property
    def until(self) -> float:
        """Returns its end in seconds of CLOCK_BOOTTIME."""

    def holds(self) -> bool:
        """Returns True if deliveries may begin now."""

    @property
    def trouble(self) -> str:
        """Returns why it is not renewed; "" if it is."""

    @property
    def wanted(self) -> str:
        """Returns the node that waits for the shard; "" if none does."""


class HeldShard(Protocol):
    """A shard that this manager owns: the store that keeps its queue, and the lease."""

    @property
    def store(self) -> Store:
        """Returns the store, in which this process has begun."""

    @property
    def lease(self) -> HeldLease:
        """Returns the lease."""

    @property
    def meeting(self) -> Meeting | None:
        """Returns where the managers of all nodes share limits; None if this node is alone with its limits."""


def shard_state(name: str, lease: HeldLease, store: Store | None, now: float, limits_trouble: str = "") -> ShardState:
    """Returns the state of a shard for people; ``now`` is seconds of CLOCK_BOOTTIME.

    ``limits_trouble`` says why it has no shares of limits.
    """
    return ShardState(
        name=name,
        lease_s=max(0.0, lease.until - now) if lease.holds() else 0.0,
        commit_waits_s=0.0 if store is None else store.waiting_s(),
        trouble=lease.trouble,
        limits_trouble=limits_trouble,
    )


class Leasing:
    """Tells the deliverers of each renewal. ``go_on`` schedules a turn of the manager."""

    def __init__(self, lease: HeldLease, deliverers: Sequence[DelivererLink], go_on: Callable[[], None]) -> None:
        self._lease = lease
        self._deliverers = deliverers
        self._go_on = go_on
        self._told = float("-inf")
        self._held = False
        self.is_wanted = asyncio.Event()  # another node waits for the shard

    def tell(self, link: DelivererLink) -> None:
        """Names the end to a deliverer that has just come, before it gets an entry."""
        link.writer.send(Lease(self._lease.until))

    def look(self) -> None:
        """Sends a renewal to all deliverers, and schedules a turn when the lease holds again."""
        held = self._lease.holds()
        if self._lease.until != self._told:
            self._told = self._lease.until
            for link in self._deliverers:
                self.tell(link)
        if held and not self._held:
            self._go_on()
        if self._lease.wanted:
            self.is_wanted.set()
        self._held = held

    async def run(self) -> None:
        """Looks again and again, until it is cancelled."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_S)
