"""Waits until what was acknowledged is through, and judges it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mailcore.control.client import Refused
from mailcore.lab.lab import Lab
from tests.end_to_end.appliance import Appliance
from tests.eventually import PATIENCE_S
from tests.ledger.comparison import Comparison, compare
from tests.ledger.ledger import Ledger

__all__ = ["judged", "size_equals_browse", "standing_still"]

SETTLE_S = 0.5  # for what should not come any more


async def judged(appliance: Appliance, ledger: Ledger, lab: Lab) -> Comparison:
    """Once the queue is empty and nothing is missing, or nothing has arrived for PATIENCE_S."""
    loop = asyncio.get_running_loop()
    before, since = -1, loop.time()
    while True:
        comparison = compare(ledger, lab.messages)
        arrived = len(lab.messages)
        if not comparison.missing and not (await appliance.size())["messages"]:
            await asyncio.sleep(SETTLE_S)
            if len(lab.messages) == arrived:
                return compare(ledger, lab.messages)
        elif arrived != before:
            before, since = arrived, loop.time()
        elif loop.time() - since > PATIENCE_S:
            return comparison
        await asyncio.sleep(0.2)


@asynccontextmanager
async def standing_still(lab: Lab) -> AsyncIterator[None]:
    """No next hop answers meanwhile, so that what is queued stays queued; afterwards each has its behaviour again."""
    behaviours = [hop.behaviour.text for hop in lab.hops]
    for hop in lab.hops:
        await hop.set_behaviour("silent(mail)")
    try:
        yield
    finally:
        for hop, behaviour in zip(lab.hops, behaviours, strict=True):
            await hop.set_behaviour(behaviour)
            hop.abort_sessions()  # those that wait for an answer get none


async def recipients_left(appliance: Appliance, message: dict[str, Any]) -> int:
    """A list shows the envelope, which is immutable; who of it is done only the manager knows, while it works on it."""
    count: int = message["recipient_count"]
    if message["state"] != "active" or count == 1:
        return count
    left = 0
    async with appliance.client() as client:
        try:
            async for part in client.parts("show", {"queue_id": message["queue_id"]}):
                left += sum(not each["done"] for each in part.get("recipients") or ())
        except Refused:  # it went meanwhile
            return -1
    return left


async def size_equals_browse(appliance: Appliance) -> int:
    """How many messages both say are queued. Messages may still change lanes, so a difference is looked at again."""
    seen: list[str] = []
    loop = asyncio.get_running_loop()
    end = loop.time() + PATIENCE_S
    while loop.time() < end:
        before = await appliance.size()
        listed = await appliance.browse()
        recipients = sum([await recipients_left(appliance, message) for message in listed])
        after = await appliance.size()
        ids = {message["queue_id"] for message in listed}
        browsed = (len(listed), recipients)
        sizes = [(size["messages"], size["recipients"]) for size in (before, after)]
        if sizes == [browsed, browsed]:
            assert len(ids) == len(listed), "a browse shows a message twice"
            assert sum(before["destinations"].values()) == recipients
            return len(listed)
        seen.append(f"size {sizes[0]}, browse {browsed}, size {sizes[1]}")
        await asyncio.sleep(0.1)
    raise AssertionError("size and browse never agreed (messages, recipients): " + "; ".join(seen[-5:]))
