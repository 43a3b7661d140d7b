"""Group commit: one sync covers every record that waits when the sync starts.

It runs in an asyncio loop and syncs in a thread of its own, because a sync may take milliseconds while the loop accepts
mail. When the lane is idle a sync starts at once; under load it waits for more messages, which brings the number of syncs per
message below one half. It waits until ``COMPANY`` messages wait, until as many wait as may come, or until ``delay_s`` after
the end of the sync before (docs/decisions/0113-company-that-may-come.md).

Keeps law: shared-sync (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue

from mailcore.log.lane import Batch, LaneFailed, LaneWriter

__all__ = ["GroupCommit"]

COMPANY = 8  # start the sync early when this many messages wait: each then costs an eighth of a sync
STORED_COMPANY = 32  # the same with a store: a commit of two database servers costs ten times the CPU of a sync

Done = Callable[[LaneFailed | None], None]


class GroupCommit:
    """Appends to ``writer`` and calls back when the appended records are durable.

    After a failure every waiting callback gets the LaneFailed, and so does every later ``then`` until ``writer.reopen()``.
    The caller decides what to do about it.
    """

    def __init__(self, writer: LaneWriter, loop: asyncio.AbstractEventLoop, delay_s: float) -> None:
        self.writer = writer
        self.append = writer.append
        self._loop = loop
        self._delay_s = delay_s
        self._company = COMPANY if writer.store is None else STORED_COMPANY
        self._waiting: list[Done] = []
        self._weight = 0  # messages that wait
        self._timer: asyncio.Handle | None = None
        self._running = False  # a batch is with the thread
        self._scheduled = False  # a start is due soon
        self._last_end = -1e9  # loop time when the last sync ended
        self._last_count = 0
        self._may_come = self._company  # messages that wait before the next sync if all come who were here at the last
        self._batches: SimpleQueue[tuple[Batch, list[Done]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._sync_forever, name=f"sync {writer.lane}", daemon=True)
        self._thread.start()

    def then(self, done: Done, weight: int = 1) -> None:
        """Calls ``done(None)`` in the loop once everything appended until now is on disk, or ``done(error)``.

        ``weight`` is the number of messages that wait for it.
        """
        self._waiting.append(done)
        self._weight += weight
        if self._running:
            return
        if self._scheduled and self._has_company:
            assert self._timer is not None
            self._timer.cancel()
            self._start()
        elif not self._scheduled:
            self._schedule()

    async def wait(self) -> None:
        """Waits until everything appended until now is on disk. Raises LaneFailed."""
        future: asyncio.Future[None] = self._loop.create_future()

        def done(error: LaneFailed | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        self.then(done)
        await future

    @property
    def _has_company(self) -> bool:
        return self._weight >= min(self._company, self._may_come)

    def _schedule(self) -> None:
        self._scheduled = True
        # A single message must not wait for others that will not come: wait only if the last sync has just ended or covered
        # more than one message.
        idle_s = self._loop.time() - self._last_end
        if self._delay_s and not self._has_company and (self._last_count > 1 or idle_s < self._delay_s):
            self._timer = self._loop.call_later(max(0.0, self._delay_s - idle_s), self._start)
        else:
            self._timer = self._loop.call_soon(self._start)

    def _start(self) -> None:
        self._scheduled = False
        if self._running or not self._waiting:
            return
        self._running = True
        waiting, self._waiting = self._waiting, []
        self._last_count, self._weight = self._weight, 0
        self._batches.put((self.writer.take(), waiting))

    def _sync_forever(self) -> None:
        while (work := self._batches.get()) is not None:
            batch, waiting = work
            error: LaneFailed | None = None
            try:
                batch.write()
            except LaneFailed as failed:
                error = failed
            except Exception as bug:  # report it: if the thread only ended, the callbacks would never be called
                error = LaneFailed(f"lane {self.writer.lane}: {bug!r}")
                error.__cause__ = bug
            try:
                self._loop.call_soon_threadsafe(self._finished, waiting, error)
            except RuntimeError:  # the loop is closed: the process is ending, and no callback may report "durable"
                return

    def _finished(self, waiting: list[Done], error: LaneFailed | None) -> None:
        self._running = False
        self._last_end = self._loop.time()
        # Clients that are answered now send their next messages; those who wait already are waited with.
        self._may_come = self._last_count + self._weight
        if error is not None:
            # Records appended after the failed batch are not durable either: their segment is never used again.
            waiting += self._waiting
            self._waiting = []
            self._weight = 0
        if self._waiting and not self._scheduled:
            self._schedule()
        for done in waiting:
            try:
                done(error)
            except Exception as bug:  # the other callbacks must still be called
                self._loop.call_exception_handler({"message": "after a commit", "exception": bug})

    def close(self) -> None:
        """Ends the thread. Only tests need it: the daemon is killed."""
        self._batches.put(None)
        self._thread.join()
