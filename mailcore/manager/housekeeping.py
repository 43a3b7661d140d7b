"""Compaction of lanes, the looks through retired segments, and the sweep of the spool.

They free disk space of records and files that are no longer needed.

The work is done in bounded steps; long reads run in a thread. No delivery depends on it.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

from mailcore.log.store import unlink
from mailcore.manager.context import ManagerContext
from mailcore.manager.flow import Flow
from mailcore.queue.compaction import MOVES_MAX, Compaction, sent_round
from mailcore.queue.sweep import Sweep

__all__ = ["Housekeeping"]

LOOK_S = 10.0  # between two checks for work


class Housekeeping:
    """Runs compaction and the sweep of one manager."""

    def __init__(self, context: ManagerContext, flow: Flow) -> None:
        self.context = context
        self.flow = flow
        self.compaction = Compaction(context.queue, context.settings.queue.compact_below)
        self.sweep = Sweep(context.queue, self._wall, self._now, time.sleep)
        self._thread = ThreadPoolExecutor(1, "housekeeping")

    def _wall(self) -> float:
        return self.context.wall()

    def _now(self) -> float:
        return self.context.now()

    def before_checkpoint(self, moves_max: int = MOVES_MAX) -> None:
        """Moves at most ``moves_max`` messages out of segments that are nearly empty."""
        context = self.context
        if moves_max <= 0:
            return
        now = context.now()
        for active in self.compaction.active(now, moves_max):
            active.orders.append(sent_round(active, context.wall()))
            self.flow.stop_for_order(active)
        self.compaction.move_held(now, moves_max)

    async def run(self) -> None:
        """Looks for work every LOOK_S, until cancelled. An OSError is logged and the work retried later."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self._look()
            except OSError as error:
                self.context.log.failed("housekeeping", str(error))

    async def _delete_retired(self) -> None:
        """Deletes retired segments in which no data is needed. They are read in the thread (law: retained-data-stays)."""
        context, bodies = self.context, self.context.queue.bodies
        look = bodies.look(context.now(), context.checkpoints.older.sequence)
        if look is None:
            return
        await context.loop.run_in_executor(self._thread, look.run)
        for lane, base, path in bodies.looked(look, context.checkpoints.older.sequence):
            context.queue.forget_segment(lane, base)
            await context.loop.run_in_executor(self._thread, unlink, context.queue.disk, [path], context.queue.store)

    async def _look(self) -> None:
        context, loop, thread = self.context, self.context.loop, self._thread
        look = self.compaction.hold_look(context.now())
        if look is not None:
            self.compaction.hold_below(await loop.run_in_executor(thread, look.run))
        await self._delete_retired()
        if not self.sweep.is_due():
            return
        sweep = self.sweep
        before = sweep.removed
        for folder in sweep.folders():
            for queue_ids in await loop.run_in_executor(thread, sweep.old_ones, folder):
                search = sweep.watch(queue_ids)
                if search is not None:
                    await loop.run_in_executor(thread, search.run)
                    await loop.run_in_executor(thread, sweep.remove, sweep.orphans(search), search)
        await loop.run_in_executor(thread, sweep.remove_indexes)
        if sweep.removed > before:
            context.log.swept(sweep.removed - before)
