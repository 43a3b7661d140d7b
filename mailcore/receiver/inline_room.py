"""The memory of a receiver for messages that are on their way into the log or the spool.

Data up to SURE_BYTES is kept in memory for each connection; larger data, up to ``inline_limit``, only while there is room for
it, and else it goes to the spool, which takes it piece by piece; with room, in pieces of ``inline_limit``. So memory is bounded
by connections times SURE_BYTES, plus ``memory_bytes``.

Keeps law: inline-memory-bounded (docs/laws.md).
"""

from __future__ import annotations

__all__ = ["SURE_BYTES", "InlineRoom"]

SURE_BYTES = 64 * 1024  # nearly all mail without attachments; a thousand connections then keep 64 MB at most


class InlineRoom:
    """Counts what is reserved. Each message reserves the whole limit, because its size is not known before its end."""

    def __init__(self, limit_bytes: int, memory_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.sure_bytes = min(limit_bytes, SURE_BYTES)
        self._memory_bytes = memory_bytes
        self.reserved_bytes = 0

    def take(self) -> bool:
        """Reserves room for one message; returns False if there is none."""
        if self.reserved_bytes + self.limit_bytes > self._memory_bytes:
            return False
        self.reserved_bytes += self.limit_bytes
        return True

    def give_back(self) -> None:
        """Ends a reservation: the message is in the log or in the spool, or was refused."""
        self.reserved_bytes -= self.limit_bytes
