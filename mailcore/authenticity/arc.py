"""The ARC chain of a message (RFC 8617 5.2): none, pass or fail, as verified."""

from __future__ import annotations

import asyncio
import hashlib
from typing import NamedTuple

from mailcore.authenticity.answers import Answers
from mailcore.authenticity.arc_chain import Chain, seal_data
from mailcore.authenticity.dkim import find_key
from mailcore.authenticity.signed import BadSignature, BodyCheck, Field, Signature, covers, read_signature
from mailcore.authenticity.tags import BadTags, decoded, tags_of

__all__ = ["ArcResult", "message_signature", "verify_chain"]


class ArcResult(NamedTuple):
    """``result``: none, pass, fail or temperror. ``sets`` is how many there are."""

    result: str
    sets: int = 0
    reason: str = ""
    domain: str = ""  # of the newest seal


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
