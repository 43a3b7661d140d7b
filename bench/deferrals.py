"""Counts the deferrals in the log of a relay while it writes it."""

from __future__ import annotations

from bench.mta import Postfix, Waypost

__all__ = ["Deferrals"]

BLOCK_BYTES = 1 << 20


class Deferrals:
    """Counts the lines of a relay's log that tell of a deferral."""

    def __init__(self, relay: Postfix | Waypost) -> None:
        self._path = relay.log
        self._text = b"status=deferred" if isinstance(relay, Postfix) else b'"status":"deferred"'
        self._at = 0
        self.count = 0

    def look(self) -> int:
        """Reads what was added; returns the count."""
        if not self._path.exists():
            return 0
        with self._path.open("rb") as file:
            file.seek(self._at)
            while block := file.read(BLOCK_BYTES):
                whole = block[: block.rfind(b"\n") + 1]
                if not whole:
                    break
                self.count += whole.count(self._text)
                self._at += len(whole)
                file.seek(self._at)
        return self.count
