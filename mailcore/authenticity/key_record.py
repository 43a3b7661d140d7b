"""The DNS record of a key that signs our mail, compared with the key: as a server that checks our signatures reads it. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from mailcore.authenticity.public_key import read_key
from mailcore.authenticity.tags import tags_of
from mailcore.counted import counted

__all__ = ["Compared", "compared", "strings"]

STRING_MAX = 255  # characters of one string of a TXT record, RFC 1035 3.3.14
_ESCAPED = re.compile(r"\\([0-9]{3}|.)")  # RFC 1035 5.1
_PUBLIC = re.compile(r"(?:^|;)\s*p\s*=([^;]*)")


class Compared(NamedTuple):
    """The state of a record, "ok", "no_record", "other_key", "revoked", "not_valid" or "testing", and what to do."""

    state: str
    about: str


def strings(record: str) -> str:
    """Returns a record as the strings of a zone file."""
    return " ".join(f'"{record[at : at + STRING_MAX]}"' for at in range(0, len(record), STRING_MAX))


def compared(record: str, algorithm: str, name: str, texts: Sequence[str]) -> Compared:
    """Compares ``record``, which should be there, with the TXT records of ``name``, with escapes as in a zone file.

    ``algorithm``: rsa-sha256 or ed25519-sha256.
    """
    there = [(text, match[1]) for text in texts if (match := _PUBLIC.search(text))]
    if not there:
        return Compared("no_record", f"add {name}. IN TXT ( {strings(record)} )")
    if len(there) > 1:
        return Compared("other_key", f"{name} has {counted(len(there), 'record')}; it must have one")
    text, value = there[0]
    public, own = re.sub(r"\s", "", value), record.partition("p=")[2]
    if not public:
        return Compared("revoked", f"{name} has an empty key: signatures with it are not valid")
    if public != own:
        return Compared("other_key", f"{name} has another key: {ascii(public[:20])[1:-1]}…, here it is {own[:20]}…")
    # A key without k= is RSA, and s= and h= may exclude mail and SHA-256.
    whole = _ESCAPED.sub(_character, text)
    verifying = read_key(whole, algorithm)
    tags = {} if verifying.key is None else tags_of(whole)
    # Some servers are strict about it, and none of them says so.
    reason = "v= is not the first tag" if "v" in tags and next(iter(tags)) != "v" else verifying.reason
    better = f"change it to {name}. IN TXT ( {strings(record)} )"
    if reason:
        return Compared("not_valid", f"{name}: {reason}; {better}")
    if "y" in {flag.strip() for flag in tags.get("t", "").split(":")}:
        return Compared("testing", f"{name} has t=y: servers take the mail as unsigned (RFC 6376 3.6.1); {better}")
    return Compared("ok", "")


def _character(escaped: re.Match[str]) -> str:
    return chr(int(escaped[1])) if len(escaped[1]) > 1 else escaped[1]
