"""The newest deliveries to each destination, one by one: out of the end of the journal, and of what is kept longer.

``service_times`` has sums and samples of hours; here is the order of things, which says how many deliveries were under way
when one was refused, how long our own part of a delivery is, and what one recipient more takes.

Law: bounded: records read, deliveries kept of each destination. Must not know: sockets, the manager.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection

from mailcore.envelope import Status
from mailcore.lookup.archive import Archive, Trouble
from mailcore.lookup.browse import Browser
from mailcore.lookup.service_times import newest_first
from mailcore.lookup.tracing import Steps
from mailcore.queue.records import Delivery
from mailcore.simulator.measured import Tried

__all__ = ["recent"]

RECORDS_MAX = 200_000  # about a second
RECENT_MAX = 400  # deliveries of a destination
REPLY_CHARACTERS = 80


def recent(
    browser: Browser,
    wanted: Collection[str],
    since: float,
    archive: Archive | None = None,
    trouble: Trouble | None = None,
) -> Steps[dict[str, list[Tried]]]:
    """Returns the deliveries to the destinations ``wanted`` that ended after ``since`` (wall clock), oldest first.

    Adds to ``trouble`` the files that could not be read.
    """
    found: dict[str, list[Tried]] = {}
    lacking = set(wanted)
    examined = 0
    with contextlib.closing(newest_first(browser, since, archive, trouble or Trouble())) as pieces:
        for deliveries, records in pieces:
            newest = 0.0
            for delivery in reversed(deliveries):
                newest = max(newest, delivery.at)
                if delivery.destination in lacking and delivery.at >= since and max(delivery.delays[2:]) > 0:
                    there = found.setdefault(delivery.destination, [])
                    there.append(_tried(delivery))
                    if len(there) >= RECENT_MAX:
                        lacking.discard(delivery.destination)
            examined += records
            if examined >= RECORDS_MAX or not lacking or 0 < newest < since:
                break
            yield
    return {name: there[::-1] for name, there in found.items()}


def _tried(delivery: Delivery) -> Tried:
    _, _, connect_s, transmit_s = delivery.delays
    failed = transmit_s <= 0 and all(verdict.status == Status.DEFERRED for verdict in delivery.verdicts)
    reply = delivery.verdicts[0].reply[:REPLY_CHARACTERS] if failed and delivery.verdicts else ""
    return Tried(
        delivery.at, connect_s, transmit_s, len(delivery.verdicts), failed, reply, delivery.relay, delivery.size_bytes
    )
