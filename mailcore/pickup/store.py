"""The data of a message that the pickup takes, until its envelope is written."""

from __future__ import annotations

from mailcore.control.local_filter import Filtered, LocalFilter, WaitingData
from mailcore.envelope import Envelope
from mailcore.log.data_blocks import BlockSums
from mailcore.queue.spool import Spool, SpoolFile

__all__ = ["Store"]


class Store:
    """Keeps data in memory up to the inline limit, and in a spool file beyond it.

    With milters, the file is one without a name until they have decided; then ``take`` their result.
    """

    def __init__(self, spool: Spool, queue_id: str, inline_limit: int, local_filter: LocalFilter | None = None) -> None:
        self._filter = local_filter
        self._spool = spool
        self._queue_id = queue_id
        self._inline_limit = inline_limit
        self._blocks: list[bytes] = []
        self._file: SpoolFile | WaitingData | None = None
        self.header = b""
        self.data_bytes = 0
        self.eight_bit = False
        self.sums = BlockSums()

    @property
    def inline(self) -> bytes:
        """Returns the data if it goes into the lane, else b""."""
        return b"" if self._file is not None else b"".join(self._blocks)

    def write(self, data: bytes) -> None:
        """Takes the next bytes. Raises OSError."""
        if not data:
            return
        self.sums.feed(data)
        self.eight_bit = self.eight_bit or not data.isascii()
        self.data_bytes += len(data)
        if self._file is None and self.data_bytes > self._inline_limit:
            if self._filter is None:
                self._file = self._spool.create(self._queue_id)
            else:
                self._file = self._filter.waiting(self._spool, self._queue_id)
            self._file.write(self._blocks)
            self._blocks = []
        if self._file is not None:
            self._file.write([data])
        else:
            self._blocks.append(data)

    @property
    def waiting(self) -> bytes | WaitingData:
        """Returns the data for milters."""
        return self.inline if self._file is None else self._file

    def take(self, filtered: Filtered) -> None:
        """Replaces the data by what the milters left of it."""
        self._file, self._blocks = filtered.file, [filtered.data]

    def complete(self, envelope: Envelope) -> Envelope:
        """Completes and syncs the spool file, if there is one; returns the envelope for the lane. Raises OSError."""
        if self._file is None:
            return envelope
        assert isinstance(self._file, SpoolFile)
        envelope = self._file.complete(envelope)
        self._file.close()
        return envelope

    def abandon(self) -> None:
        """Removes the spool file; the sweep removes it otherwise."""
        if self._file is not None:
            self._file.abandon()
