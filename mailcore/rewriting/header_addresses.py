"""Canonical addresses in header fields: finds each address in a field and replaces it; all else stays byte for byte.

As Postfix's cleanup(8): From, Sender, Reply-To and their like by the maps of senders, To, Cc and theirs by those of recipients.
Display names, comments, groups, encoded words and folding are not touched, and neither is an address that is not written as
local@domain without blanks or comments in it.

Pure. The caller bounds the size of a field.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from mailcore.rewriting.address_map import AddressMap
from mailcore.rewriting.rewriting import canonical
from mailcore.routing.address import is_mailbox

__all__ = ["RECIPIENTS", "SENDERS", "HeaderAddresses"]

SENDERS = frozenset(
    {
        b"from", b"sender", b"reply-to", b"errors-to", b"return-receipt-to", b"disposition-notification-to", b"resent-from",
        b"resent-sender", b"resent-reply-to",
    }
)  # fmt: skip
RECIPIENTS = frozenset({b"to", b"cc", b"bcc", b"apparently-to", b"resent-to", b"resent-cc", b"resent-bcc"})
COMMENTS_MAX = 20  # nested

_TOKEN = re.compile(
    rb'(?P<blank>(?:\r\n)?[ \t]+|\r\n\Z)|(?P<quoted>"(?:[^"\\]|\\.)*")|(?P<literal>\[[^\[\]\r\n]*\])'
    rb"|(?P<special>[<>,:;@()])|(?P<atom>[^\s<>,:;@()\"\[\]]+)",
    re.DOTALL,
)
_COMMENT = re.compile(rb"[^()\\]+|\\.|[()]", re.DOTALL)  # quotes mean nothing in a comment


class HeaderAddresses:
    """Rewrites fields. ``senders`` and ``recipients``: the maps in the order in which they are asked."""

    def __init__(self, senders: Sequence[AddressMap], recipients: Sequence[AddressMap]) -> None:
        self._senders = senders
        self._recipients = recipients

    @property
    def is_on(self) -> bool:
        """Returns whether any address may be changed."""
        return bool(self._senders or self._recipients)

    def rewrite(self, name: bytes, field: bytes) -> bytes:
        """Returns the field with its canonical addresses; ``name`` is in lower case. Raises PatternTooSlow."""
        maps = self._senders if name in SENDERS else self._recipients if name in RECIPIENTS else ()
        if not maps:
            return field
        made: list[bytes] = []
        done = 0
        for begin, end in _addresses(field, field.index(b":") + 1):
            try:
                address = field[begin:end].decode()
            except UnicodeDecodeError:
                continue
            new = canonical(maps, address) if is_mailbox(address) else address
            if new != address:
                made += [field[done:begin], new.encode()]
                done = end
        return b"".join([*made, field[done:]]) if made else field


def _addresses(field: bytes, at: int) -> Iterator[tuple[int, int]]:
    """Yields where each address begins and ends; nothing of a field that cannot be read."""
    spans: list[tuple[int, int]] = []
    element: list[tuple[str, int, int]] = []  # the tokens since the last separator
    depth = 0  # of comments
    in_angle = False
    while at < len(field):
        token = (_COMMENT if depth else _TOKEN).match(field, at)
        if token is None:
            return
        begin, at = token.span()
        kind = token.lastgroup or ""
        text = token[0]
        if depth:
            depth += (text == b"(") - (text == b")")
            if depth > COMMENTS_MAX:
                return
        elif text == b"(":
            depth = 1
            element.append(("blank", begin, at))
        elif text == b")":
            return
        elif text == b"<":
            if in_angle:
                return
            in_angle, element = True, []
        elif text == b">":
            if not in_angle:
                return
            in_angle = False
            spans += _span(field, element)
            element = [("done", begin, at)]
        elif text in (b",", b";") and not in_angle:
            spans += _span(field, element)
            element = []
        elif text == b":" and not in_angle:
            element = []  # the name of a group
        else:
            element.append((kind, begin, at))
    if depth or in_angle:
        return
    yield from [*spans, *_span(field, element)]


def _span(field: bytes, element: list[tuple[str, int, int]]) -> list[tuple[int, int]]:
    """Returns the place of the address that an element is; empty if it is none, or has blanks in it."""
    tokens = [token for token in element if token[0] != "blank"]
    if len(tokens) < 3 or any(kind == "done" for kind, _, _ in tokens):
        return []
    if any(before[2] != after[1] for before, after in itertools.pairwise(tokens)):
        return []
    kinds = [field[begin:end] if kind == "special" else kind.encode() for kind, begin, end in tokens]
    if len(kinds) == 3 and kinds[0] in (b"atom", b"quoted") and kinds[1] == b"@" and kinds[2] in (b"atom", b"literal"):
        return [(tokens[0][1], tokens[-1][2])]
    return []
