"""The data after DATA: where it ends, whether it may be stored, what its header says. Bytes in, blocks out.

Laws
- The end is CRLF "." CRLF and nothing else; a stream may be cut anywhere (CVE-2024-27305: content must not have anything that
  another server takes for an end). So NUL, and a CR or LF that is not part of a CRLF, are refused; what is accepted is
  stored byte for byte (decision 0004).
- Memory is fixed: nothing is kept but up to four bytes of a possible end, and the begun header line up to LINE_KEPT_MAX.
Pure: no socket, no disk, no replies.

Keeps law: data-ends-at-crlf-dot-crlf (docs/laws.md).
"""

from __future__ import annotations

import enum
from io import IncrementalNewlineDecoder

from mailcore.tag import tag_of

__all__ = ["DataFault", "DataReader", "HeaderScan", "LineEnds"]

_END = b"\r\n.\r\n"
_DOT = b"\r\n."  # stuffed, or the end's
_BEGINNINGS = (b"\r\n.\r", b"\r\n.", b"\r\n", b"\r")  # of the end, longest first
LINE_KEPT_MAX = 1_000  # RFC 5322 2.1.1: a line has at most 998 characters; longer ones are not looked at beyond that


class DataFault(enum.Enum):
    """Why the data may not be stored."""

    BARE = "bare CR or LF"
    NUL = "NUL"
    TOO_BIG = "too big"


class LineEnds:
    """Looks for a CR or LF that is not part of a CRLF, in data that comes in pieces, none of which ends inside a CRLF.

    The decoder of text files notes which ends of lines it has seen, in one loop over the octets. Searching for an end that is
    odd, or counting, takes two to four times as long.
    """

    __slots__ = ("_decoder",)

    def __init__(self) -> None:
        self._decoder = IncrementalNewlineDecoder(None, translate=False)

    def are_good(self, block: bytes) -> bool:
        """Returns False from the first block on that has a bare one."""
        self._decoder.decode(block.decode("latin-1"), final=True)
        return self._decoder.newlines in (None, "\r\n")


class DataReader:
    """``feed`` until ``finished``; then ``rest`` holds the commands that came behind the end.

    ``fault`` is the first fault found: from then on the end is still looked for, but no block comes.
    ``size_bytes`` counts the content without the stuffed dots, as SIZE does (RFC 1870 4).
    """

    def __init__(self, size_limit: int) -> None:
        self._limit = size_limit
        self._held = b"\r\n"  # the CRLF of DATA itself: a first line "." is an end, too
        self._skip = 2  # this CRLF does not belong to the data
        self._line_ends = LineEnds()
        self.size_bytes = -2
        self.fault: DataFault | None = None
        self.finished = False
        self.rest = b""

    def feed(self, chunk: bytes) -> bytes:
        """Returns the part of the data that is certain now; b"" while there is none."""
        whole = self._held + chunk if self._held else chunk
        dot = whole.find(b".")  # none in base64, and one octet is found much faster than three
        if dot >= 0:
            dot = whole.find(_DOT, max(dot - 2, 0))
        end = whole.find(_END, dot) if dot >= 0 else -1  # mostly just there
        if end >= 0:
            block = whole[: end + 2]
            self.rest = whole[end + 5 :]
            self.finished = True
            self._held = b""
        else:
            block = whole
            self._held = b""
            if whole[-1:] in (b"\r", b"\n", b"."):
                for beginning in _BEGINNINGS:
                    if whole.endswith(beginning):
                        block = whole[: -len(beginning)]
                        self._held = beginning
                        break
        if not block:
            return b""
        # Behind ``dot`` there may be a dot that is stuffed, and not of the end or held back.
        self.size_bytes += len(block) - (block.count(_DOT, dot) if 0 <= dot < (len(block) if end < 0 else end) else 0)
        if self.fault is None:
            if not self._line_ends.are_good(block):
                self.fault = DataFault.BARE
            elif b"\0" in block:
                self.fault = DataFault.NUL
            elif self.size_bytes > self._limit:
                self.fault = DataFault.TOO_BIG
        if self.fault is not None:
            return b""
        if self._skip:
            self._skip = 0
            return block[2:]
        return block


class HeaderScan:
    """Counts the Received fields and finds Message-ID and the tag while the header passes by. ``tag_header``: the name of the
    field with the tag in lower case, or b""."""

    def __init__(self, tag_header: bytes = b"") -> None:
        self.received = 0
        self.message_id = ""
        self.tag = ""
        self.finished = False
        self._tag_header = tag_header
        self._tag_initials = tag_header[:1] + tag_header[:1].upper()  # most lines begin otherwise
        self._tag_folded = False
        self._line = b""  # the begun one
        self._folded = False  # Message-ID: with its value on the next line

    def feed(self, block: bytes) -> None:
        """Scans a block without a bare CR or LF; it may end inside a line, never inside a CRLF."""
        end = -1
        if not self._line:
            end = 0 if block.startswith(b"\r\n") else block.find(b"\r\n\r\n")
        if end >= 0:  # all of it, the usual case
            lines = block[:end].split(b"\r\n")
            self.finished = True
        else:
            lines = (self._line + block).split(b"\r\n")
            self._line = lines.pop()[:LINE_KEPT_MAX]
        for stored in lines:
            if not stored:
                self.finished = True
                return
            line = stored[1:] if stored[0] == 46 and len(stored) > 1 else stored  # without the stuffed dot
            first = line[0]
            if first in self._tag_initials and not self.tag:
                name, colon, value = line[:LINE_KEPT_MAX].partition(b":")
                if colon and name.rstrip(b" \t").lower() == self._tag_header:
                    self.tag = tag_of(value)
                    self._tag_folded = not self.tag
            elif self._tag_folded:
                self.tag = tag_of(line[:LINE_KEPT_MAX]) if first in b" \t" else ""
                self._tag_folded = False
            if first in b"Rr":
                name, colon, _ = line[:LINE_KEPT_MAX].partition(b":")
                if colon and name.rstrip(b" \t").lower() == b"received":
                    self.received += 1
            elif first in b"Mm" and not self.message_id:
                name, colon, value = line[:LINE_KEPT_MAX].partition(b":")
                if colon and name.rstrip(b" \t").lower() == b"message-id":
                    self._message_id(value)
            elif self._folded and first in b" \t":
                self._message_id(line[:LINE_KEPT_MAX])
                self._folded = False

    def _message_id(self, value: bytes) -> None:
        self.message_id = value.strip(b" \t").decode("utf-8", "replace")
        self._folded = not self.message_id
