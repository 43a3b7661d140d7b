"""Two connections joined: what is heard on one is said on the other, and both end together.

A side whose other one does not read is not read from, so that nothing piles up here.
"""

from __future__ import annotations

import asyncio
from typing import cast

__all__ = ["Side", "join"]


class Side(asyncio.Protocol):
    """One of two connections. Until it is joined to another, ``heard`` gets what comes."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: Side | None = None
        self.is_over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the transport."""
        self.transport = cast(asyncio.Transport, transport)

    def heard(self, data: bytes) -> None:
        """Takes what comes before this side is joined to another."""

    def data_received(self, data: bytes) -> None:
        """Says it on the other side."""
        if self.other is None:
            self.heard(data)
        elif self.other.transport is not None:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        """Stops reading on the other side."""
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        """Reads on the other side again."""
        if self.other is not None and self.other.transport is not None and not self.other.is_over:
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the other side, when it has said what it was given."""
        self.is_over = True
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()

    def end(self) -> None:
        """Ends this side at once."""
        if self.transport is not None:
            self.transport.abort()


def join(one: Side, two: Side) -> None:
    """Joins two sides; if one has ended, so does the other."""
    one.other, two.other = two, one
    for each, other in ((one, two), (two, one)):
        if each.is_over:
            other.end()
