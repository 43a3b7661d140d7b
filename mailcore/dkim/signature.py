"""The DKIM-Signature field of a message (RFC 6376), made from its header section and the hash of its body.

Signed are the fields that RFC 6376 5.4.1 recommends, as often as they are there. Those that a message has once are named once
more, so that a second From cannot be put in front of the signed one (8.15).

A signature speaks for the domain of the From field: a message with none or with several From fields or addresses is not signed.

Pure.
"""

from __future__ import annotations

import base64
import email.utils
import hashlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

from mailcore.dkim.canonical import CRLF, relaxed_field
from mailcore.dkim.key import SigningKey
from mailcore.routing.address import a_labels

__all__ = ["Signer", "arc_message_signature", "arc_seal", "author_domain", "signature"]

# In this order in h=.
ONCE = (
    b"from",
    b"to",
    b"cc",
    b"subject",
    b"date",
    b"message-id",
    b"reply-to",
    b"sender",
    b"in-reply-to",
    b"references",
)
SIGNED = (
    *ONCE,
    *(b"mime-version", b"content-type", b"content-transfer-encoding", b"content-id", b"content-description"),
    *(b"resent-date", b"resent-from", b"resent-to", b"resent-cc", b"list-id", b"list-help", b"list-unsubscribe"),
    *(b"list-unsubscribe-post", b"list-subscribe", b"list-post", b"list-owner", b"list-archive"),
)
OVERSIGNED = (b"from", b"to", b"cc", b"subject", b"date", b"message-id")
LINE_WIDTH, VALUE_WIDTH = 76, 72
FOLD = "\r\n\t"

Field = tuple[bytes, bytes]


class Signer(NamedTuple):
    """A key and the names under which its public half is in the DNS: SELECTOR._domainkey.DOMAIN."""

    domain: str
    selector: str
    key: SigningKey


def author_domain(fields: list[Field]) -> str:
    """Returns the domain of the From field as A-labels; "" if there is not exactly one address with a domain."""
    values = [field.partition(b":")[2] for name, field in fields if name == b"from"]
    if len(values) != 1:
        return ""
    text = values[0].replace(CRLF, b"").decode("utf-8", "replace")
    try:
        addresses = [address for _, address in email.utils.getaddresses([text]) if address]
    except RecursionError:  # of thousands of comments inside one another
        return ""
    if len(addresses) != 1 or "@" not in addresses[0]:
        return ""
    try:
        return a_labels(addresses[0].rpartition("@")[2])
    except UnicodeError:
        return ""


def signature(fields: list[Field], body_hash: bytes, signer: Signer, now: float) -> bytes:
    """Returns the field with its CRLF. ``fields`` as ``fields_of`` returns them; ``now``: wall-clock seconds."""
    return _signed("DKIM-Signature", "v=1", SIGNED, fields, body_hash, signer, now)


def arc_message_signature(fields: list[Field], body_hash: bytes, signer: Signer, now: float, instance: int) -> bytes:
    """Returns the ARC-Message-Signature of a set (RFC 8617 4.1.2), with its CRLF; it signs DKIM signatures, too."""
    return _signed(
        "ARC-Message-Signature", f"i={instance}", (*SIGNED, b"dkim-signature"), fields, body_hash, signer, now
    )


def arc_seal(signer: Signer, now: float, instance: int, state: str, data_of: Callable[[bytes], bytes]) -> bytes:
    """Returns the ARC-Seal of a set (RFC 8617 4.1.3), with its CRLF. ``data_of``: what is signed, of the seal without b=."""
    tags = f"i={instance}; a={signer.key.algorithm}; cv={state}; d={signer.domain}; s={signer.selector}; t={int(now)}"
    unsigned = f"ARC-Seal: {tags.replace('; d=', f';{FOLD}d=')};{FOLD}b=".encode("ascii")
    return unsigned + _signature_of(data_of(unsigned), signer)


def _signed(
    name: str,
    first: str,
    names_signed: Sequence[bytes],
    fields: list[Field],
    body_hash: bytes,
    signer: Signer,
    now: float,
) -> bytes:
    there: dict[bytes, list[bytes]] = {}
    for key, field in fields:
        there.setdefault(key, []).append(field)
    names: list[bytes] = []
    signed: list[bytes] = []
    for key in names_signed:
        for field in reversed(there.get(key, ())):  # RFC 6376 5.4.2: the last one first
            names.append(key)
            signed.append(relaxed_field(field))
        if key in OVERSIGNED:
            names.append(key)
    tags = [
        first,
        f"a={signer.key.algorithm}",
        "c=relaxed/relaxed",
        f"d={signer.domain}",
        f"s={signer.selector}",
        f"t={int(now)}",
        f"h={':'.join(key.decode('ascii') for key in names)}",
        f"bh={base64.b64encode(body_hash).decode('ascii')}",
        "b=",
    ]
    lines = [f"{name}: {tags[0]};"]
    for tag in tags[1:]:
        lines += _folded(tag if tag == "b=" else f"{tag};")
    unsigned = FOLD.join(lines).encode("ascii")
    return unsigned + _signature_of(CRLF.join([*signed, relaxed_field(unsigned)]), signer)


def _signature_of(data: bytes, signer: Signer) -> bytes:
    """Returns the value of b=, folded, and the end of the field."""
    made = base64.b64encode(signer.key.sign(hashlib.sha256(data).digest(), data)).decode("ascii")
    pieces = [made[at : at + VALUE_WIDTH] for at in range(0, len(made), VALUE_WIDTH)]
    return f"{FOLD} ".join(["", *pieces]).encode("ascii") + CRLF


def _folded(tag: str) -> list[str]:
    """Breaks a long list of names behind its colons; white space is allowed there (RFC 6376 3.5)."""
    lines = [""]
    for piece in tag.replace(":", ":\0").split("\0"):
        if len(lines[-1]) + len(piece) > LINE_WIDTH and lines[-1]:
            lines.append("")
        lines[-1] += piece
    return [lines[0], *(f" {line}" for line in lines[1:])]
