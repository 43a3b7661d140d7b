"""The DKIM signatures of a message that came in (RFC 6376, 8301, 8463): one result for each.

Laws: a result never depends on the order of answers; a failure of the DNS is temperror, and of nothing else.
"""

from __future__ import annotations

from typing import NamedTuple

from mailcore.authenticity.answers import Answers
from mailcore.authenticity.public_key import PublicKey, read_key
from mailcore.authenticity.signed import BadSignature, BodyCheck, Field, Signature, covers, read_signature

__all__ = ["BadSignature", "DkimResult", "find_key", "signatures_of", "unread", "verified"]


class DkimResult(NamedTuple):
    """``result`` as in RFC 8601 2.7.1. ``is_testing`` and ``reason`` are for people."""

    result: str
    domain: str = ""
    selector: str = ""
    algorithm: str = ""
    beginning: str = ""  # of b=
    reason: str = ""


def signatures_of(fields: list[Field], limit: int) -> list[Signature | DkimResult]:
    """Returns the signatures from the top, at most ``limit``; one that cannot be read is a result."""
    found: list[Signature | DkimResult] = []
    for name, field in fields:
        if name == b"dkim-signature":
            if len(found) == limit:
                break
            try:
                found.append(read_signature(field))
            except BadSignature as bad:
                found.append(DkimResult("permerror", reason=str(bad)))
    return found


async def find_key(answers: Answers, signature: Signature) -> PublicKey | str:
    """Returns the key of a signature, or the result without one: temperror, permerror."""
    found = await answers.find(signature.key_name, "TXT")
    if found.failed:
        return "temperror"
    keys = [read_key(text, signature.algorithm) for text in found.records]
    usable = [key for key in keys if key.key is not None]
    if usable or keys:
        return (usable or keys)[0]  # RFC 6376 3.6.2.2: of several records, any one
    return "permerror"


def unread(signature: Signature, result: str, reason: str) -> DkimResult:
    """Returns the result of a signature that was not checked."""
    return DkimResult(result, signature.domain, signature.selector, signature.algorithm, signature.beginning, reason)


async def verified(
    answers: Answers,
    signature: Signature,
    fields: list[Field],
    body: BodyCheck,
    *,
    rsa_bits_min: int,
    takes_partial: bool,
    now: float,
) -> DkimResult:
    """Returns the result of one signature; ``body`` has ended. ``now`` is wall-clock seconds."""

    def result(word: str, reason: str = "") -> DkimResult:
        return unread(signature, word, reason)

    if signature.expires_at is not None and signature.expires_at < now:
        return result("fail", "the signature has expired")
    if not body.fits(signature):
        return result("fail", "the body was changed")
    key = await find_key(answers, signature)
    if isinstance(key, str):
        return result(key, "the key could not be looked up" if key == "temperror" else "there is no key")
    if key.key is None:
        return result("permerror", key.reason)
    if key.is_strict and signature.identity_domain != signature.domain:
        return result("permerror", "the key is not for subdomains")
    if not covers(signature, fields, key):
        return result("fail", "the header was changed")
    if key.bits and key.bits < rsa_bits_min:
        return result("policy", f"the key has only {key.bits} bits")
    if body.is_partial(signature) and not takes_partial:
        return result("policy", "the signature leaves out the end of the body")
    return result("pass")
