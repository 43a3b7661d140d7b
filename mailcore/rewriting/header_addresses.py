"""Addresses in header fields: completes those without a domain, and replaces canonical ones; all else stays byte for byte.

As Postfix's cleanup(8): From, Sender, Reply-To and their like by the maps of senders, To, Cc and theirs by those of recipients,
and a local part alone, as in cron's ``From: root (Cron Daemon)``, gets the own domain (append_at_myorigin) before that. Display
names, comments, groups, encoded words and folding are not touched, and neither is an address that is written in another way
than local@domain without blanks or comments in it. A local part with % or ! in it may be a route, and stays.

Pure. The caller bounds the size of a field.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from mailcore.rewriting.budget import Budget
from mailcore.rewriting.rewriting import canonical
from mailcore.routing.address import is_mailbox

if TYPE_CHECKING:  # it loads the library of regular expressions
    from mailcore.rewriting.address_map import AddressMap

__all__ = ["RECIPIENTS", "SENDERS", "HeaderAddresses", "is_complete"]

SENDERS = frozenset(
    {
        b"from", b"sender", b"reply-to", b"errors-to", b"return-receipt-to", b"disposition-notification-to", b"resent-from",
        b"resent-sender", b"resent-reply-to",
    }
)  # fmt: skip
RECIPIENTS = frozenset({b"to", b"cc", b"bcc", b"apparently-to", b"resent-to", b"resent-cc", b"resent-bcc"})
COMMENTS_MAX = 20  # nested

_TOKEN = re.compile(
    rb'(?P<blank>(?:\r?\n)?[ \t]+|\r?\n\Z)|(?P<quoted>"(?:[^"\\]|\\.)*")|(?P<literal>\[[^\[\]\r\n]*\])'
    rb"|(?P<special>[<>,:;@()])|(?P<atom>[^\s<>,:;@()\"\[\]]+)",
    re.DOTALL,
)
_COMMENT = re.compile(rb"[^()\\]+|\\.|[()]", re.DOTALL)  # quotes mean nothing in a comment


_NAMES = sorted(SENDERS | RECIPIENTS)
_INITIALS = b"".join(sorted({name[:1] for name in _NAMES}))  # most lines have another one, which is faster to see
_FIELD_PATTERN = (  # with its value, folded or not; the name may be dot-stuffed
    rb"\.?(?=[%b%b])(?:" % (_INITIALS, _INITIALS.upper())
    + b"|".join(_NAMES)
    + rb")[ \t]*:([^\r\n]*(?:\r?\n[ \t][^\r\n]*)*)"
)
_FIRST_FIELD = re.compile(_FIELD_PATTERN, re.IGNORECASE)
_LATER_FIELD = re.compile(rb"\n" + _FIELD_PATTERN, re.IGNORECASE)  # its fixed beginning makes the search fast
# An "@" beside one of ( " ; : or <> without one may be of no address. It begins with a set, which makes the search fast, and
# goes over no octet twice.
_ODD = re.compile(rb'["(;:<](?:(?<!<)|[^@<>]*>)')
_ENCODED_WORD = re.compile(r"=\?[^?]+\?[BbQq]\?[^?]*\?=\Z")  # RFC 2047 2


def is_complete(header: bytes) -> bool:
    """Returns whether no address field can hold an address without a domain. False: one may."""
    first = _FIRST_FIELD.match(header)
    values = _LATER_FIELD.findall(header)
    for value in values if first is None else [first[1], *values]:
        if b"@" not in value or _ODD.search(value):
            return False
        if b"," in value and not all(b"@" in element for element in value.split(b",")):
            return False
    return True


class HeaderAddresses:
    """Rewrites fields. ``senders`` and ``recipients``: the maps in the order in which they are asked.

    ``domain`` completes a local part alone; "": it stays as it is.
    """

    def __init__(
        self, senders: Sequence[AddressMap] = (), recipients: Sequence[AddressMap] = (), domain: str = ""
    ) -> None:
        self._senders = senders
        self._recipients = recipients
        self._domain = domain

    @property
    def is_on(self) -> bool:
        """Returns whether any address may be changed."""
        return bool(self._senders or self._recipients or self._domain)

    @property
    def only_completes(self) -> bool:
        """Returns whether a header that ``is_complete`` stays as it is."""
        return not (self._senders or self._recipients)

    def rewrite(self, name: bytes, field: bytes, budget: Budget | None = None) -> bytes:
        """Returns the field with its canonical addresses; ``name`` is in lower case. Raises PatternTooSlow.

        ``budget`` is that of the message; None: only each pattern is bounded.
        """
        if name in SENDERS:
            maps = self._senders
        elif name in RECIPIENTS:
            maps = self._recipients
        else:
            return field
        if not (maps or self._domain):
            return field
        made: list[bytes] = []
        done = 0
        for begin, end, is_alone in _addresses(field, field.index(b":") + 1):
            try:
                address = field[begin:end].decode()
            except UnicodeDecodeError:
                continue
            new = self._completed(address) if is_alone else address
            new = canonical(maps, new, budget) if is_mailbox(new) else address
            if new != address:
                made += [field[done:begin], new.encode()]
                done = end
        return b"".join([*made, field[done:]]) if made else field

    def _completed(self, local_part: str) -> str:
        """Returns the address of a local part alone; the same text if it is none."""
        if not self._domain or not local_part.isascii() or "%" in local_part or "!" in local_part:
            return local_part
        is_valid = local_part[0] == '"' or "" not in local_part.split(".")
        return f"{local_part}@{self._domain}" if is_valid and not _ENCODED_WORD.match(local_part) else local_part


def _addresses(field: bytes, at: int) -> Iterator[tuple[int, int, bool]]:
    """Yields where each address begins and ends, and whether it is a local part alone; nothing of an unreadable field."""
    spans: list[tuple[int, int, bool]] = []
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


def _span(field: bytes, element: list[tuple[str, int, int]]) -> list[tuple[int, int, bool]]:
    """Returns the place of the address that an element is; empty if it is none, or has blanks in it."""
    tokens = [token for token in element if token[0] != "blank"]
    if not tokens or any(kind == "done" for kind, _, _ in tokens):
        return []
    if any(before[2] != after[1] for before, after in itertools.pairwise(tokens)):
        return []
    kinds = [field[begin:end] if kind == "special" else kind.encode() for kind, begin, end in tokens]
    is_whole = len(kinds) == 3 and kinds[1] == b"@" and kinds[2] in (b"atom", b"literal")
    if kinds[0] in (b"atom", b"quoted") and (len(kinds) == 1 or is_whole):
        return [(tokens[0][1], tokens[-1][2], len(kinds) == 1)]
    return []
