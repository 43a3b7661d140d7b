"""The replies of a server: bytes in, replies out, and what a reply means for a recipient.

Laws: any input from a server costs bounded memory; a reply is never guessed, anything else raises ReplyError.
Pure: no socket, no clock.

Keeps law: replies-never-guessed (docs/laws.md).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from mailcore.envelope import Status

__all__ = ["REPLY_TEXT_MAX", "Reply", "ReplyError", "ReplyParser", "enhanced_code", "status_of"]

LINE_BYTES_MAX = 8_192  # RFC 5321 4.5.3.1.5 allows 512; aiosmtplib reads up to this
REPLY_BYTES_MAX = 32_768  # all lines of one reply, as aiosmtplib; a real EHLO has a few hundred
REPLY_TEXT_MAX = 1_000  # characters of a reply kept with a verdict: it is stored, logged and put in reports

_ENHANCED = re.compile(r"([245])\.\d{1,3}\.\d{1,3}(?![\d.])")  # RFC 3463 2
_DELIVERED = Status.DELIVERED  # reading a member from its class takes 0.1 us


class ReplyError(Exception):
    """The server sent something that is not an SMTP reply: from here on no reply can be paired with a command."""


class Reply(NamedTuple):
    """One reply, RFC 5321 4.2: its code, and its lines without code and line end."""

    code: int
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        """Returns the reply on one line as Postfix logs it, every line with its code; at most REPLY_TEXT_MAX characters."""
        lines = self.lines
        if len(lines) == 1:
            text = f"{self.code} {lines[0]}"
        else:
            text = f"{self.code}-" + f" {self.code}-".join(lines[:-1]) + f" {self.code} {lines[-1]}"
        return text if len(text) <= REPLY_TEXT_MAX else text[: REPLY_TEXT_MAX - 3] + "..."


class ReplyParser:
    """Parses bytes into replies; keeps an incomplete one until more comes."""

    def __init__(self) -> None:
        self._rest = b""  # the begun line; at most LINE_BYTES_MAX
        self._lines: list[str] = []  # of the begun multi-line reply
        self._code = 0  # of the begun multi-line reply, 0 when there is none
        self._size = 0  # bytes in _lines

    @property
    def is_between_replies(self) -> bool:
        """Returns whether no reply has begun."""
        return not self._rest and not self._code

    def clear(self) -> None:
        """Forgets a reply that has begun."""
        self.__init__()  # type: ignore[misc]

    def feed(self, data: bytes, replies: list[Reply]) -> None:
        """Appends to ``replies`` each reply completed by ``data``. Raises ReplyError when it is not a reply."""
        if self._rest:
            data = self._rest + data
        lines = data.split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > LINE_BYTES_MAX:
            raise ReplyError("a reply line without end")
        for line in lines:
            code = line[:3]
            separator = line[3:4]
            if not code.isdigit() or not b"200" <= code <= b"599" or separator not in (b" ", b"-", b"\r", b""):
                raise ReplyError(f"not a reply: {line[:80]!r}")
            number = int(code)
            text = line[4:].rstrip().decode("utf-8", "replace")
            if separator == b"-":
                self._size += len(line)
                if self._size > REPLY_BYTES_MAX:
                    raise ReplyError("a reply without end")
                if self._code and number != self._code:  # RFC 5321 4.2.1: the code is the same on every line
                    raise ReplyError(f"two codes in one reply: {self._code} and {number}")
                self._code = number
                self._lines.append(text)
            elif self._code:
                if number != self._code:
                    raise ReplyError(f"two codes in one reply: {self._code} and {number}")
                self._lines.append(text)
                replies.append(Reply(number, tuple(self._lines)))
                self._code = self._size = 0
                self._lines = []
            else:
                replies.append(Reply(number, (text,)))


def status_of(reply: Reply) -> Status:
    """Returns DELIVERED for 2xx, BOUNCED for 5xx, and DEFERRED for everything else."""
    if reply.code < 300:
        return _DELIVERED
    return Status.BOUNCED if reply.code >= 500 else Status.DEFERRED


def enhanced_code(reply: Reply) -> str:
    """Returns the reply's RFC 3463 code, or class.0.0 when it is missing or contradicts the reply."""
    text = reply.lines[-1]
    kind = "245"[(reply.code >= 300) + (reply.code >= 500)]
    found = _ENHANCED.match(text)
    return found.group() if found is not None and found.group(1) == kind else f"{kind}.0.0"
