"""Answers ``simulate``: gathers queued mail, values in force and measurements, and has a child run the scheduler over it twice.

Laws: nothing is changed, and the manager is asked only questions that it answers at once. The simulation runs in its own
process with a lower CPU priority than mail; the settings limit how many run at once and for how many seconds. When the client
disconnects, the child is ended by its process id.

Keeps law: whatif-changes-nothing (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

import msgspec

from mailcore.config.settings import Settings
from mailcore.control import whatif_unknown
from mailcore.control.protocol.tuning import (
    ChangesChecked,
    CheckChangesArguments,
    SimulateArguments,
    SimulatePart,
    Unknown,
)
from mailcore.control.session import Session
from mailcore.control.view import View
from mailcore.control.whatif_gather import Gathered, TimesSince, gather
from mailcore.control.whatif_values import asked_values, checked_hops, faults_of, live_values, scheduler_with
from mailcore.faults import Code, Fault, FaultError
from mailcore.scheduler.parameters import Parameters
from mailcore.simulator import child
from mailcore.simulator.question import Question, encoded

__all__ = ["WhatIf", "WhatIfRefused"]

LINE_BYTES_MAX = 16 << 20  # of its answer
PROGRESS_S = 0.5  # between two parts at most: sending them shows whether the client is still there
OF_PATIENCE = 0.5  # the child's share of the time allowed; then it says how far it came


class WhatIfRefused(FaultError):
    """Raised when a simulation is not begun, fails, or does not end in time."""


class WhatIf:
    """Answers ``simulate`` and ``check_changes``."""

    def __init__(
        self,
        view: View,
        settings: Settings,
        parameters: Parameters,
        times_since: TimesSince,
    ) -> None:
        """``parameters``: as configured."""
        self._view = view
        self._settings = settings
        self._parameters = parameters
        self._times_since = times_since
        self._running = 0
        self.answers: Mapping[str, Callable[[Session, Any], AsyncGenerator[Any, None]]] = {
            "simulate": self.simulate,
            "check_changes": self.check_changes,
        }

    async def simulate(self, session: Session, arguments: SimulateArguments) -> AsyncGenerator[Any, None]:
        """Yields the progress, then before, after and assumptions. Raises ArgumentError, WhatIfRefused, ManagerAway."""
        at_once = self._settings.control.simulations_max
        if self._running >= at_once:
            raise WhatIfRefused(
                f"{at_once} simulations are running already (control.simulations_max); try again when one is done",
                code=Code.BUSY,
            )
        self._running += 1
        try:
            timeout_s = self._settings.control.simulation_timeout_s
            async with contextlib.aclosing(self._answer(session, arguments, time.monotonic() + timeout_s)) as parts:
                async for part in parts:
                    yield part
        finally:
            self._running -= 1

    async def check_changes(self, session: Session, arguments: CheckChangesArguments) -> AsyncGenerator[Any, None]:
        """Answers with a fault, or None, for each change: all are tried in order on a scheduler that is thrown away.

        The scheduler has what is set live now. A change that is not allowed is left out for those behind it.
        """
        now = time.time()
        yield ChangesChecked(faults=await self._view.in_thread(self._faults, arguments, now))

    def _faults(self, arguments: CheckChangesArguments, now: float) -> list[Fault | None]:
        live, _ = live_values(self._settings, self._parameters, now)
        return faults_of(self._settings, scheduler_with(self._parameters, live), arguments.changes)

    async def _answer(self, session: Session, arguments: SimulateArguments, until: float) -> AsyncGenerator[Any, None]:
        settings = self._settings
        now = time.time()
        live, ignored = await self._view.in_thread(live_values, settings, self._parameters, now)
        asked = asked_values(settings, scheduler_with(self._parameters, live), arguments.changes)
        hops = checked_hops(settings, arguments.hops)
        yield SimulatePart(stage="measuring")
        gathered = Gathered(now)
        gathered.assumptions += ignored
        steps = gather(self._view, arguments, self._times_since, gathered)
        async with contextlib.aclosing(steps):
            async for progress in steps:
                yield SimulatePart(progress=progress, stage="measuring")
        question = Question(
            settings=settings,
            live=[*live, *gathered.live],
            asked=asked,
            hops=gathered.hops | {scope: gathered.hops.get(scope, {}) | values for scope, values in hops.items()},
            lanes=gathered.lanes,
            destinations=gathered.destinations,
            arriving=gathered.arriving,
            recipients_of_one=gathered.recipients_of_one,
            duration_s=arguments.duration_s,
            seed=arguments.seed,
            entries_max=settings.control.simulation_entries_max,
            patience_s=max(1.0, (until - time.monotonic()) * OF_PATIENCE),
        )
        if hops:
            gathered.assumptions.append(
                f"As was asked for, next hops are taken to be otherwise: {', '.join(sorted(hops))}."
            )
        async with contextlib.aclosing(self._child(question, until)) as parts:
            async for part in parts:
                if part.done:
                    part.assumptions = [*gathered.assumptions, *part.assumptions]
                    part.unread_files = gathered.unread_files
                    part.unknown = _unknown(gathered, arguments, [each.scope for each in asked], part)
                yield part

    async def _child(self, question: Question, until: float) -> AsyncGenerator[SimulatePart, None]:
        """Yields the lines of the child's answer, decoded, until it is done. The child is dead when this ends in any way."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", child.__name__, str(os.getpid())),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        writing = asyncio.create_task(_write(process.stdin, encoded(question)))
        part = SimulatePart(stage="before")
        reading: asyncio.Task[bytes] | None = None
        try:
            while not part.done:
                reading = reading or asyncio.create_task(process.stdout.readline())
                left = until - time.monotonic()
                if left <= 0:
                    raise WhatIfRefused(
                        f"the simulation was not done within {self._settings.control.simulation_timeout_s:g} s "
                        "(control.simulation_timeout_s); ask for a shorter duration_s",
                        code=Code.INVALID,
                        argument="duration_s",
                    )
                await asyncio.wait({reading}, timeout=min(PROGRESS_S, left))
                if reading.done():
                    line, reading = reading.result(), None
                    if not line:
                        raise WhatIfRefused(
                            f"the simulation ended without an answer (exit status {await process.wait()})"
                        )
                    said = msgspec.json.decode(line, type=child.ChildLine)
                    if said.error:
                        raise WhatIfRefused(said.error)
                    part = SimulatePart(
                        done=said.done,
                        progress=said.progress,
                        stage=said.stage,
                        before=said.before,
                        after=said.after,
                        assumptions=said.assumptions,
                    )
                yield part
        finally:
            for task in (writing, reading):
                if task is not None:
                    task.cancel()
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def _unknown(gathered: Gathered, arguments: SimulateArguments, scopes: list[str], part: SimulatePart) -> list[Unknown]:
    assert part.before is not None
    assert part.after is not None
    wanted = gathered.wanted
    nothing = whatif_unknown.comparison(wanted, scopes, waiting=gathered.waiting, arrivals=arguments.arrivals)
    if not wanted:
        return [*nothing, *gathered.unknown]
    results = (part.before, part.after)
    return [
        *nothing,
        *gathered.unknown,
        *whatif_unknown.next_hops(wanted, gathered.measured, gathered.tried, results, arguments.since_s),
        *whatif_unknown.sizes(gathered.lanes, gathered.tried),
        *whatif_unknown.cut_short(*results),
    ]


async def _write(pipe: asyncio.StreamWriter, data: bytes) -> None:
    with contextlib.suppress(OSError):  # it died; its output says so
        pipe.write(data)
        await pipe.drain()
        pipe.close()
