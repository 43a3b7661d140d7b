"""The data after BDAT (RFC 3030): octets that are counted, so that no end is looked for. Bytes in, stored blocks out.

Data is stored dot-stuffed, as DATA brings it; stuffing can be undone exactly, for any data.

Laws
- What is stored is what came: no octet is lost or doubled, wherever the chunks are cut. Only text whose last line has
  no end gets one (as in Postfix).
- Text (BODY is not BINARYMIME) has no NUL, and no CR or LF that is not part of a CRLF, as after DATA.
- Memory is fixed: nothing is kept but one CR.
Pure: no socket, no disk, no replies.

Keeps law: chunks-are-the-message (docs/laws.md).
"""

from __future__ import annotations

from mailcore.receiver.data import DataFault, LineEnds

__all__ = ["ChunkReader"]


class ChunkReader:
    """``feed`` the octets of all chunks, then ``finish``. ``fault`` is the first fault; from then on no block comes."""

    def __init__(self, size_limit: int, *, is_binary: bool) -> None:
        self._limit = size_limit
        self._is_binary = is_binary
        self._held = b""  # a CR that may be half of a CRLF
        self._begins_line = True
        self._line_ends = LineEnds()
        self.size_bytes = 0
        self.fault: DataFault | None = None
        self.finished = False
        self.rest = b""  # as DataReader has it; behind a chunk is nothing of the data

    def feed(self, chunk: bytes) -> bytes:
        """Returns the part of the data that is certain now, dot-stuffed; b"" while there is none."""
        self.size_bytes += len(chunk)
        if self.size_bytes > self._limit:
            self.fault = self.fault or DataFault.TOO_BIG
        block = self._held + chunk if self._held else chunk
        self._held = b""
        if block[-1:] == b"\r":
            self._held = b"\r"
            block = block[:-1]
        return self._stuffed(block)

    def finish(self) -> bytes:
        """Ends the data after the last chunk; returns what was held back, or is missing at its end."""
        self.finished = True
        block, self._held = self._stuffed(self._held), b""
        if self._is_binary or self._begins_line or self.fault is not None:
            return block
        self._begins_line = True
        return block + b"\r\n"

    def _stuffed(self, block: bytes) -> bytes:
        if not block or self.fault is not None:
            return b""
        if not self._is_binary:
            if not self._line_ends.are_good(block):
                self.fault = DataFault.BARE
                return b""
            if b"\0" in block:
                self.fault = DataFault.NUL
                return b""
        stuffed = block.replace(b"\r\n.", b"\r\n..") if b"." in block else block  # one octet is found faster than three
        if self._begins_line and block[:1] == b".":
            stuffed = b"." + stuffed
        self._begins_line = block[-2:] == b"\r\n"
        return stuffed
