"""Data on its way into a spool file, through threads: a busy disk must not stop the loop, which serves other clients.

Laws: one call at a time (``mailcore.receiver.intake.Upload``); a file that failed or was abandoned is removed from the disk,
or found by the sweep; ``done`` is called in the loop, never from a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from mailcore.envelope import Envelope
from mailcore.log.disk import is_full
from mailcore.queue.spool import Spool, SpoolFile
from mailcore.receiver.intake import Done, Stored
from mailcore.receiver.stored import CommitWait

__all__ = ["SpoolUpload", "storage_reply"]

NO_SPACE = b"452 4.3.1 Insufficient system storage"
WRITE_ERROR = b"451 4.3.0 Error: queue file write error"


def storage_reply(error: BaseException) -> bytes:
    """Returns the reply for an error of the disk. It never has the error's text."""
    return NO_SPACE if is_full(error) else WRITE_ERROR


class SpoolUpload:
    """Writes one spool file. ``failed`` gets every error, for the log."""

    def __init__(
        self,
        spool: Spool,
        queue_id: str,
        loop: asyncio.AbstractEventLoop,
        threads: ThreadPoolExecutor,
        failed: Callable[[str, BaseException], None],
        wait: CommitWait | None = None,
    ) -> None:
        self._spool = spool
        self._queue_id = queue_id
        self._loop = loop
        self._threads = threads
        self._failed = failed
        self._wait = wait  # None: no store keeps the spool
        self._file: SpoolFile | None = None  # made by the first job, which may have to make its directory
        self._running = False
        self._abandoned = False

    def write(self, blocks: Sequence[bytes], done: Done) -> None:
        """Writes the blocks in a thread."""
        if self._wait is not None:
            done = self._wait.limited(done)
        self._run(lambda: self._write(blocks), done)

    def complete(self, blocks: Sequence[bytes], envelope: Envelope, done: Stored) -> None:
        """Writes the last blocks and the envelope in a thread, and syncs the file."""
        if self._wait is not None:
            done = self._wait.limited_upload(done, envelope)
        stored = envelope

        def job() -> None:
            nonlocal stored
            stored = self._complete(blocks, envelope)

        self._run(job, lambda failure: done(failure, stored))

    def abandon(self) -> None:
        """Removes the file, after the call that is under way."""
        self._abandoned = True
        if not self._running:
            self._remove()

    # -- in a thread

    def _write(self, blocks: Sequence[bytes]) -> None:
        if self._file is None:
            self._file = self._spool.create(self._queue_id)
        self._file.write(list(blocks))

    def _complete(self, blocks: Sequence[bytes], envelope: Envelope) -> Envelope:
        self._write(blocks)
        assert self._file is not None  # _write made it
        stored = self._file.complete(envelope)
        self._file.close()
        self._file = None
        return stored

    # -- in the loop

    def _run(self, job: Callable[[], None], done: Done) -> None:
        assert not self._running  # one call at a time
        self._running = True

        def finished(future: asyncio.Future[None]) -> None:
            self._running = False
            error = None if future.cancelled() else future.exception()
            if error is not None:
                self._abandoned, was_abandoned = True, self._abandoned
                self._failed(self._spool.path(self._queue_id), error)
                self._remove()
                if not was_abandoned:
                    done(storage_reply(error))
            elif self._abandoned:
                self._remove()
            else:
                done(b"")

        self._loop.run_in_executor(self._threads, job).add_done_callback(finished)

    def _remove(self) -> None:
        file, self._file = self._file, None
        if file is not None:  # unlinking a big one takes its time
            self._threads.submit(file.abandon)
