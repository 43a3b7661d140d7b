"""A signature field of a message, DKIM-Signature or ARC-Message-Signature (RFC 6376 3.5, RFC 8617 4.1.2), read and checked.

Pure: the caller looks up the key.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import NamedTuple

from mailcore.authenticity.body import PartialHash, SimpleBody, body_hash
from mailcore.authenticity.public_key import ALGORITHMS, PublicKey
from mailcore.authenticity.tags import BadTags, decoded, tags_of, without_value
from mailcore.dkim.canonical import CRLF, BodyHash, relaxed_field

__all__ = ["BadSignature", "BodyCheck", "Field", "Signature", "covers", "read_signature", "selected"]

Field = tuple[bytes, bytes]  # name in lower case, and the field without its CRLF
NAMES_MAX = 1_000  # in h=
_DOMAIN = re.compile(r"[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})+", re.IGNORECASE)
_SELECTOR = re.compile(r"[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*", re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]{1,76}")


class BadSignature(ValueError):
    """A signature that cannot be checked; the message says why."""


class Signature(NamedTuple):
    """The values in a signature."""

    field: bytes
    algorithm: str
    domain: str
    selector: str
    signature: bytes
    body: bytes  # its hash
    names: tuple[bytes, ...]
    header_form: str
    body_form: str
    length: int | None
    made_at: int | None
    expires_at: int | None
    identity_domain: str
    beginning: str  # of b=, as in header.b of RFC 6008

    @property
    def key_name(self) -> str:
        """Returns the name of the key in the DNS."""
        return f"{self.selector}._domainkey.{self.domain}"


def read_signature(field: bytes, *, is_arc: bool = False) -> Signature:
    """Reads a signature. Raises BadSignature."""
    try:
        text = field.partition(b":")[2].decode("utf-8")
        tags = tags_of(text)
        signature, body = decoded(tags.get("b", "")), decoded(tags.get("bh", ""))
    except (BadTags, UnicodeDecodeError):
        raise BadSignature("the signature has a syntax error") from None
    if not is_arc and tags.get("v") != "1":
        raise BadSignature("the signature is of another version")
    algorithm = tags.get("a", "").lower()
    if algorithm not in ALGORITHMS:
        raise BadSignature("the signature is of an algorithm that is not used")
    domain, selector = tags.get("d", "").removesuffix("."), tags.get("s", "")
    if not signature or not body or not _DOMAIN.fullmatch(domain) or not _SELECTOR.fullmatch(selector):
        raise BadSignature("the signature lacks a value")
    names = tuple(name.strip(" \t\r\n").lower().encode("ascii", "replace") for name in tags.get("h", "").split(":"))
    if len(names) > NAMES_MAX or b"from" not in names or (is_arc and b"arc-seal" in names):
        raise BadSignature("the signature does not cover the From field" if b"from" not in names else "bad h=")
    header_form, _, body_form = tags.get("c", "relaxed/relaxed" if is_arc else "simple/simple").lower().partition("/")
    if not {header_form, body_form or "simple"} <= {"simple", "relaxed"}:
        raise BadSignature("the signature is of an unknown canonical form")
    if "dns/txt" not in [each.strip(" \t\r\n").lower() for each in tags.get("q", "dns/txt").split(":")]:
        raise BadSignature("the signature's key is not in the DNS")
    identity = domain if is_arc else tags.get("i", domain).rpartition("@")[2].lower().removesuffix(".")
    if identity != domain.lower() and not identity.endswith("." + domain.lower()):
        raise BadSignature("the signature's identity is not of its domain")
    made_at, expires_at = _number(tags, "t"), _number(tags, "x")
    if made_at is not None and expires_at is not None and expires_at < made_at:
        raise BadSignature("the signature expires before it was made")
    return Signature(
        field,
        algorithm,
        domain.lower(),
        selector,
        signature,
        body,
        names,
        header_form,
        body_form or "simple",
        _number(tags, "l"),
        made_at,
        expires_at,
        identity,
        re.sub(r"[ \t\r\n]+", "", tags["b"])[:8],
    )


def _number(tags: dict[str, str], name: str) -> int | None:
    value = tags.get(name)
    if value is None:
        return None
    if not _NUMBER.fullmatch(value):
        raise BadSignature("the signature has a syntax error")
    return int(value)


def selected(fields: Sequence[Field], names: Sequence[bytes]) -> list[bytes]:
    """Returns the fields that h= names, the last one of a name first; one that is not there is nothing (RFC 6376 5.4.2)."""
    there: dict[bytes, list[bytes]] = {}
    for name, field in fields:
        there.setdefault(name, []).append(field)
    return [there[name].pop() for name in names if there.get(name)]


def covers(signature: Signature, fields: Sequence[Field], key: PublicKey) -> bool:
    """Returns whether the signature is that of these header fields."""
    unsigned = without_value(signature.field, b"b")
    chosen = selected(fields, signature.names)
    if signature.header_form == "relaxed":
        lines = [*map(relaxed_field, chosen), relaxed_field(unsigned)]
    else:
        lines = [*chosen, unsigned]
    data = CRLF.join(lines)
    return key.verifies(signature.signature, hashlib.sha256(data).digest(), data)


class BodyCheck:
    """Hashes the body once for all signatures that want the same form and length."""

    def __init__(self, signatures: Sequence[Signature]) -> None:
        self._hashes: dict[tuple[str, int | None], tuple[PartialHash, BodyHash | SimpleBody]] = {}
        for each in signatures:
            wanted = each.body_form, each.length
            if wanted not in self._hashes:
                into = PartialHash(each.length)
                self._hashes[wanted] = into, body_hash(each.body_form, into)
        self._digests: dict[tuple[str, int | None], bytes] = {}

    def __bool__(self) -> bool:
        return bool(self._hashes)

    def feed(self, block: bytes) -> None:
        """Takes the next bytes of the body, as stored."""
        for _, body in self._hashes.values():
            body.feed(block)

    def end(self) -> None:
        """Ends the body."""
        self._digests = {wanted: body.digest() for wanted, (_, body) in self._hashes.items()}

    def fits(self, signature: Signature) -> bool:
        """Returns whether the body is the one that was signed; after the end."""
        into, _ = self._hashes[signature.body_form, signature.length]
        is_there = signature.length is None or signature.length <= into.size
        return is_there and self._digests[signature.body_form, signature.length] == signature.body

    def is_partial(self, signature: Signature) -> bool:
        """Returns whether the body has more than what was signed (l=); after the end."""
        return (
            signature.length is not None
            and signature.length < self._hashes[signature.body_form, signature.length][0].size
        )
