"""What the manager does beside the mail: compaction, and the sweep of the spool. Bounded steps, the long looks in a thread.

Nothing here is needed for a message to arrive; it keeps the disk from filling with what nobody needs.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

from mailcore.manager.context import ManagerContext
from mailcore.manager.flow import Flow
from mailcore.queue.compaction import Compaction, sent_round
from mailcore.queue.sweep import Sweep

__all__ = ["Housekeeping"]

LOOK_S = 10.0  # how often it is asked whether there is something to do


class Housekeeping:
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

    def before_checkpoint(self) -> None:
        """A bounded step of moving what keeps segments alive. On a full disk nothing is written for tidiness."""
        context = self.context
        if context.stalled:
            return
        now = context.now()
        for active in self.compaction.active(now):
            active.order = sent_round(active, context.wall())
            self.flow.stop_for_order(active)
        self.compaction.move_held(now)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self._look()
            except OSError as error:  # another time
                self.context.log.failed("housekeeping", str(error))

    async def _look(self) -> None:
        context, loop, thread = self.context, self.context.loop, self._thread
        look = self.compaction.hold_look(context.now())
        if look is not None:
            self.compaction.hold_below(await loop.run_in_executor(thread, look.run))
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
