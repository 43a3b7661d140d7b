"""Counts mail by destination and age. All clients share one scan, which they advance in turn; its result is kept.

Laws: a new scan begins no sooner than ``PAUSE_S``, and twenty times the duration of the last scan, after that scan has ended.
So pages that ask every second cost a twentieth of a core at most; ``refresh`` begins a scan at once. A scan without a waiting
client does not advance, and the next client starts a new one.

Keeps law: scan-costs-a-twentieth (docs/laws.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from mailcore.control.operations import Answers
from mailcore.control.protocol.messages import AgesArguments, AgesPart
from mailcore.control.session import Session
from mailcore.control.view import View
from mailcore.lookup.ages import AgesScan
from mailcore.mail_state import main_state

__all__ = ["Ages"]

STEP_S = 0.2  # as a page of a list: the other threads and clients have their turn
PAUSE_S = 2.0
PAUSE_TIMES = 20
ASKED_AT_ONCE = 500  # messages: some 10 ms of the manager
STALE_S = 5.0  # a scan that has not advanced for this time is replaced by a new one


class Ages:
    """Answers ``ages``: one scan of the queue at a time, shared by all clients that wait for it."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._result: AgesPart | None = None
        self._next_at = 0.0  # monotonic
        self._scan: AgesScan | None = None
        self._note = ""
        self._turn = asyncio.Lock()
        self.answers: dict[str, Answers] = {"ages": self._ages}

    async def _ages(self, session: Session, arguments: AgesArguments) -> AsyncGenerator[Any, None]:
        monotonic = self._view.browser.monotonic
        if self._result is not None and not arguments.refresh and monotonic() < self._next_at:
            yield self._result
            return
        scan = await self._begin()
        while not scan.done:
            async with self._turn:
                if not scan.done:
                    await self._view.in_thread(scan.step, STEP_S)
            if not scan.done:
                yield _progress(scan)
        result = self._result
        if self._scan is scan or result is None:  # otherwise another client that waited has kept it
            await self._states_of_active(scan)
            table = msgspec.structs.asdict(scan.table())
            result = self._result = AgesPart(**table, manager_away=bool(self._note), note=self._note, done=True)
            self._next_at = monotonic() + max(PAUSE_S, PAUSE_TIMES * scan.took_s)
        if self._scan is scan:
            self._scan = None
        yield result

    async def _states_of_active(self, scan: AgesScan) -> None:
        """Asks the manager for the states of active messages, some at a time: it delivers mail meanwhile.

        Messages that it does not know are not active any more, or it is away.
        """
        began = self._view.browser.monotonic()
        ids, scan.active = scan.active, []
        for at in range(0, len(ids), ASKED_AT_ONCE):
            known = await self._view.working(ids[at : at + ASKED_AT_ONCE])
            scan.restate({queue_id: main_state(progress.states) for queue_id, progress in known.items()})
        scan.took_s += self._view.browser.monotonic() - began

    async def _begin(self) -> AgesScan:
        """Returns the running scan, or a new one."""
        async with self._turn:
            scan = self._scan
            if scan is None or self._view.browser.monotonic() - scan.touched_at > STALE_S:
                stretches, self._note = await self._view.stretches()
                scan = self._scan = AgesScan(self._view.browser, stretches)
            return scan


def _progress(scan: AgesScan) -> AgesPart:
    """Returns how far the scan is, without the rows: sorting them for each step would cost more than the step."""
    return AgesPart(
        buckets_s=[],
        rows=[],
        total=scan.total,
        by_state={},
        oldest=None,
        as_of=scan.as_of,
        took_s=scan.took_s,
        examined=scan.examined,
        note="",
        done=False,
    )
