"""Decisions of filters, and of those that failed, about a client or a message. The replies are Postfix's."""

from __future__ import annotations

import enum
import re
from typing import NamedTuple

__all__ = ["DEFAULT_DECISIONS", "DISCARD", "HOLD", "REJECT", "SHUTDOWN", "TEMPFAIL", "Decision", "Kind", "read_reply"]

REPLY_BYTES_MAX = 8_192
REPLY_LINES_MAX = 32  # libmilter's smfi_setmlreply
_REPLY_LINE = re.compile(rb"([45][0-9][0-9])(?:([ -])(.*))?", re.DOTALL)
_STATUS = re.compile(rb"([45])\.[0-9]{1,3}\.[0-9]{1,3}( |$)")
_UNSAFE = re.compile(rb"[\x00-\x1f\x7f]")
_PERCENT = re.compile(rb"%(.?)", re.DOTALL)


class Kind(enum.Enum):
    """The kinds of a decision."""

    REFUSE = "reject"
    DISCARD = "discard"
    HOLD = "hold"


class Decision(NamedTuple):
    """A decision. ``reply`` refuses; of a message that is held, ``reason`` says why."""

    kind: Kind
    reply: bytes = b""
    reason: str = ""
    milter: str = ""

    @property
    def ends_session(self) -> bool:
        """Returns whether the client is disconnected."""
        return self.reply.startswith(b"421")


REJECT = Decision(Kind.REFUSE, b"550 5.7.1 Command rejected")
TEMPFAIL = Decision(Kind.REFUSE, b"451 4.7.1 Service unavailable - try again later")
SHUTDOWN = Decision(Kind.REFUSE, b"421 4.7.0 Server closing connection")
DISCARD = Decision(Kind.DISCARD)
HOLD = Decision(Kind.HOLD, reason="milter")
# By ``default_action``; None: as if there were no filter.
DEFAULT_DECISIONS: dict[str, Decision | None] = {
    "tempfail": TEMPFAIL,
    "accept": None,
    "reject": Decision(Kind.REFUSE, b"550 5.5.0 Service unavailable"),
    "quarantine": HOLD,
}


def read_reply(data: bytes) -> bytes:
    """Returns the SMTP reply that a filter gave, in any number of lines; b"" if it is none that refuses.

    As in Sendmail, the text is a format: "%%" is a percent sign.
    """
    if len(data) > REPLY_BYTES_MAX:
        return b""
    lines = data.removesuffix(b"\0").replace(b"\r\n", b"\n").rstrip(b"\n").split(b"\n")
    if len(lines) > REPLY_LINES_MAX:
        return b""
    code, texts = b"", []
    for line in lines:
        match = _REPLY_LINE.fullmatch(line)
        if match is None or (code and match[1] != code):
            return b""
        code = match[1]
        texts.append(_UNSAFE.sub(b"?", _PERCENT.sub(rb"\1", match[3] or b"")))
    status = _STATUS.match(texts[0])
    if status is None or status[1] != code[:1]:
        texts = [code[:1] + b".7.1 " + text for text in texts]
    return b"\r\n".join(code + (b"-" if number < len(texts) else b" ") + text for number, text in enumerate(texts, 1))
