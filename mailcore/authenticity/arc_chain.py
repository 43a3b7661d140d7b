"""The ARC sets in a message (RFC 8617 4.2), and what their seals sign. Pure, and without keys."""

from __future__ import annotations

import re
from typing import NamedTuple

from mailcore.authenticity.tags import BadTags, tags_of, without_value
from mailcore.dkim.canonical import CRLF, relaxed_field

__all__ = ["SETS_MAX", "ArcSet", "Chain", "chain_of", "seal_data"]

Field = tuple[bytes, bytes]  # name in lower case, and the field without its CRLF
SETS_MAX = 50  # section 4.2.1
_INSTANCE = re.compile(rb"[ \t\r\n]*i[ \t\r\n]*=[ \t\r\n]*([0-9]{1,2})[ \t\r\n]*;", re.IGNORECASE)
_KINDS = {b"arc-authentication-results": 0, b"arc-message-signature": 1, b"arc-seal": 2}


class ArcSet(NamedTuple):
    """The three fields of one hop."""

    results: bytes
    message_signature: bytes
    seal: bytes


class Chain(NamedTuple):
    """The sets of a message from the first on; ``reason`` says why they are not a chain."""

    sets: tuple[ArcSet, ...] = ()
    reason: str = ""
    highest: int = 0


def chain_of(fields: list[Field]) -> Chain:
    """Returns the chain in the fields of a message."""
    found: dict[int, list[bytes | None]] = {}
    reason = ""
    for name, field in fields:
        kind = _KINDS.get(name)
        if kind is None:
            continue
        number = _instance(kind, field)
        if number is None or not 1 <= number <= SETS_MAX:
            reason = "a field has no instance"
            continue
        fields_of_set = found.setdefault(number, [None, None, None])
        if fields_of_set[kind] is not None:
            reason = "a field is there twice"
        fields_of_set[kind] = field
    highest = max(found, default=0)
    sets = []
    for number in range(1, highest + 1):
        results, message_signature, seal = found.get(number, [None, None, None])
        if results is None or message_signature is None or seal is None:
            return Chain((), reason or "a field is missing", highest)
        sets.append(ArcSet(results, message_signature, seal))
    return Chain(() if reason else tuple(sets), reason, highest)


def _instance(kind: int, field: bytes) -> int | None:
    value = field.partition(b":")[2]
    if kind == 0:
        match = _INSTANCE.match(value)
        return int(match[1]) if match is not None else None
    try:
        text = tags_of(value.decode("utf-8")).get("i", "")
    except (BadTags, UnicodeDecodeError):
        return None
    return int(text) if re.fullmatch(r"[0-9]{1,2}", text) else None


def seal_data(sets: tuple[ArcSet, ...]) -> bytes:
    """Returns what the seal of the last set signs: all sets, and itself without its signature (section 5.1.1)."""
    lines: list[bytes] = []
    for each in sets[:-1]:
        lines += map(relaxed_field, each)
    last = sets[-1]
    lines += [relaxed_field(last.results), relaxed_field(last.message_signature)]
    lines.append(relaxed_field(without_value(last.seal, b"b")))
    return CRLF.join(lines)
