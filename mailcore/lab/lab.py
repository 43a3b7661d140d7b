"""The lab: several next hops in one event loop.

async with Lab(["accept:127.0.0.1:0", "slow(1.5)+limit(2):127.0.0.1:0"]) as lab:
    lab.hops[0].address, lab.hops[0].messages, lab.hops[0].counters
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from types import TracebackType

from mailcore.lab.arrival import Arrival
from mailcore.lab.behaviour import BehaviourError
from mailcore.lab.hop import Hop, HopPlan

__all__ = ["HOPS_MAX", "Lab"]

HOPS_MAX = 10_000  # a socket each


class Lab:
    """Hops are named as their plan says, or hop0, hop1, ... in order."""

    def __init__(
        self,
        hops: Iterable[str | HopPlan],
        *,
        seed: int = 0,
        on_arrival: Callable[[Arrival], None] | None = None,
        keep: bool = True,
    ) -> None:
        """Raises BehaviourError. ``seed`` decides what shares fall on; ``keep`` false counts arrivals and keeps none."""
        chance = random.Random(seed)  # noqa: S311 - a share of mail, no secret
        self.hops: list[Hop] = []
        for number, each in enumerate(hops):
            plan = HopPlan.parse(each) if isinstance(each, str) else each
            name = plan.name or f"hop{number}"
            if any(hop.name == name for hop in self.hops):
                raise BehaviourError(f"two hops are called {name!r}")
            self.hops.append(Hop(plan, name=name, chance=chance, on_arrival=on_arrival, keep=keep))
        if not 0 < len(self.hops) <= HOPS_MAX:
            raise BehaviourError(f"a lab has 1 to {HOPS_MAX} hops, not {len(self.hops)}")

    def hop(self, name: str) -> Hop:
        """Returns the hop with this name. Raises BehaviourError if there is none."""
        for hop in self.hops:
            if hop.name == name:
                return hop
        raise BehaviourError(f"no hop is called {name!r}; there are: {', '.join(hop.name for hop in self.hops)}")

    @property
    def messages(self) -> list[Arrival]:
        """Returns the messages of all hops, by time of arrival."""
        return sorted((arrival for hop in self.hops for arrival in hop.messages), key=lambda arrival: arrival.at)

    async def start(self) -> None:
        """Starts all hops. Raises OSError if a port can't be bound; then none listens."""
        try:
            for hop in self.hops:
                await hop.start()
        except OSError as error:
            await self.stop()
            raise OSError(
                error.errno, f"{hop.name} ({hop.plan.host}:{hop.plan.port}): {error.strerror or error}"
            ) from error

    async def stop(self) -> None:
        """Stops all hops and aborts their sessions."""
        for hop in self.hops:
            await hop.stop()
        await asyncio.sleep(0)  # aborted transports tell their sessions in the next turn of the loop

    async def wait_for(self, messages: int, timeout_s: float = 30.0) -> None:
        """Waits until all hops together have this many messages. Raises TimeoutError with the number that arrived."""
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        while (got := sum(hop.counters.messages for hop in self.hops)) < messages:
            if loop.time() > end:
                raise TimeoutError(f"{got} of {messages} messages arrived in {timeout_s:g} s")
            await asyncio.sleep(0.005)

    async def __aenter__(self) -> Lab:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
