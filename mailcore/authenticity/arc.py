"""The ARC chain of a message (RFC 8617 5.2): none, pass or fail, and the sets that a new seal continues."""

from __future__ import annotations

import asyncio
import hashlib
import re
from typing import NamedTuple

from mailcore.authenticity.answers import Answers
from mailcore.authenticity.dkim import find_key
from mailcore.authenticity.signed import BadSignature, BodyCheck, Field, Signature, covers, read_signature
from mailcore.authenticity.tags import BadTags, decoded, tags_of, without_value
from mailcore.dkim.canonical import CRLF, relaxed_field

__all__ = ["ArcResult", "ArcSet", "Chain", "chain_of", "seal_data", "verify_chain"]

SETS_MAX = 50  # section 4.2.1
_INSTANCE = re.compile(rb"[ \t\r\n]*i[ \t\r\n]*=[ \t\r\n]*([0-9]{1,2})[ \t\r\n]*;", re.IGNORECASE)
_KINDS = {b"arc-authentication-results": 0, b"arc-message-signature": 1, b"arc-seal": 2}


class ArcResult(NamedTuple):
    """``result``: none, pass, fail or temperror. ``sets`` is how many there are."""

    result: str
    sets: int = 0
    reason: str = ""
    domain: str = ""  # of the newest seal


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


def message_signature(chain: Chain) -> Signature | None:
    """Returns the newest message signature; None without one that can be read."""
    if not chain.sets:
        return None
    try:
        return read_signature(chain.sets[-1].message_signature, is_arc=True)
    except BadSignature:
        return None


async def verify_chain(
    answers: Answers, chain: Chain, fields: list[Field], body: BodyCheck, rsa_bits_min: int, sets_max: int
) -> ArcResult:
    """Returns the state of a chain; ``body`` has ended, and has hashed for the newest message signature."""
    count = chain.highest
    if not count and not chain.reason:
        return ArcResult("none")
    if chain.reason:
        return ArcResult("fail", count, chain.reason)
    if count > sets_max:
        return ArcResult("fail", count, "the chain is too long")
    newest = message_signature(chain)
    if newest is None:
        return ArcResult("fail", count, "the message signature cannot be read")
    try:
        seals = [_Seal.read(each.seal, number) for number, each in enumerate(chain.sets, 1)]
    except (BadTags, UnicodeDecodeError):
        return ArcResult("fail", count, "a seal cannot be read")
    domain = seals[-1].domain
    if any(seal.state != ("pass" if number > 1 else "none") for number, seal in enumerate(seals, 1)):
        return ArcResult("fail", count, "a seal says that the chain had failed", domain)
    if not body.fits(newest):
        return ArcResult("fail", count, "the body was changed", domain)
    wanted = [
        newest,
        *(newest._replace(domain=each.domain, selector=each.selector, algorithm=each.algorithm) for each in seals),
    ]
    keys = await asyncio.gather(*(find_key(answers, each) for each in wanted))
    if "temperror" in keys:
        return ArcResult("temperror", count, "a key could not be looked up", domain)
    for number, key in enumerate(keys):
        if isinstance(key, str) or key.key is None or (key.bits and key.bits < rsa_bits_min):
            return ArcResult("fail", count, "a key cannot be used", domain)
        if number == 0:
            if not covers(newest, fields, key):
                return ArcResult("fail", count, "the header was changed", domain)
            continue
        data = seal_data(chain.sets[:number])
        if not key.verifies(seals[number - 1].signature, hashlib.sha256(data).digest(), data):
            return ArcResult("fail", count, "a seal is broken", domain)
    return ArcResult("pass", count, "", domain)


class _Seal(NamedTuple):
    """An ARC-Seal field, read."""

    state: str  # cv=
    domain: str
    selector: str
    algorithm: str
    signature: bytes

    @classmethod
    def read(cls, field: bytes, number: int) -> _Seal:
        """Reads a seal. Raises BadTags, UnicodeDecodeError."""
        tags = tags_of(field.partition(b":")[2].decode("utf-8"))
        # As a signature field with a body hash of nothing, so that its names are checked by the same lines.
        given = f"a={tags.get('a', '')}; b={tags.get('b', '')}; bh=AAAA; d={tags.get('d', '')}; s={tags.get('s', '')}; h=from"
        if "h" in tags:  # section 4.1.3
            raise BadTags
        try:
            read = read_signature(f"x:{given}".encode(), is_arc=True)
        except BadSignature:
            raise BadTags from None
        return cls(tags.get("cv", "").lower(), read.domain, read.selector, read.algorithm, decoded(tags["b"]))
