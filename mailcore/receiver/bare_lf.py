"""Turns each bare LF of the data into CRLF, for clients in [lenient] bare_lf_networks. Bytes in, bytes out; pure.

Laws
- The end of the data is CRLF "." CRLF as the client sent it, as without this (law: data-ends-at-crlf-dot-crlf). A line "." that
  a bare LF begins or ends becomes "..", so it ends the message neither here nor at a next hop.
- What follows the end passes as it is.
- Memory is fixed: at most two bytes of a begun line are held back.

Keeps law: data-ends-at-crlf-dot-crlf (docs/laws.md).
"""

from __future__ import annotations

from mailcore.receiver.data import DataReader

__all__ = ["RepairingReader"]

_BEGUN = (b"", b".", b"\r", b".\r")  # of a line, of which it is not known yet whether it is the end


class RepairingReader(DataReader):
    """As ``DataReader``, of data in which bare LF are repaired."""

    def __init__(self, size_limit: int) -> None:
        super().__init__(size_limit)
        self._line = b""  # begun, and held back
        self._inside = False  # of this line, a part was handed on
        self._after_crlf = True  # the line before ended with CRLF: that of DATA itself
        self._over = False

    def feed(self, chunk: bytes) -> bytes:
        """Returns the part of the data that is certain now; b"" while there is none."""
        return super().feed(chunk if self._over else self._repaired(chunk))

    def _repaired(self, chunk: bytes) -> bytes:
        data = self._line + chunk
        self._line = b""
        out: list[bytes] = []
        at = 0
        while (end := data.find(b"\n", at)) >= 0:
            line = data[at:end]
            at = end + 1
            is_crlf = line.endswith(b"\r")
            if is_crlf:
                line = line[:-1]
            if line == b"." and not self._inside:
                if is_crlf and self._after_crlf:
                    self._over = True
                    return b"".join([*out, b".\r\n", data[at:]])
                line = b".."
            out += (line, b"\r\n")
            self._after_crlf = is_crlf
            self._inside = False
        begun = data[at:]
        if not self._inside and begun in _BEGUN:
            self._line = begun
        else:
            kept = begun[-1:] == b"\r"
            self._line = b"\r" if kept else b""
            handed = begun[:-1] if kept else begun
            self._inside = self._inside or bool(handed)
            out.append(handed)
        return b"".join(out)
