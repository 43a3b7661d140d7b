"""Mail addresses: which of them may be put into an SMTP command, where their domain begins, and when two are the same.

The rule is RFC 5321 4.1.2 with RFC 6531 (any non-ASCII character), a little wider in the local part, as much mail is:
dots may stand anywhere. It is strict in what could end the path or the command: no control character, no bare space,
angle bracket or quote. aiosmtplib changes such addresses silently into other addresses; here they are refused.

Two addresses are the same if ``comparable`` returns the same text for both: the domain as DNS has it (A-labels, lower case,
no final dot), the local part with A-Z as a-z. No other letters are equal: the Kelvin sign is not a k, \u00df is not ss. Routes,
filters and searches all compare by this one function.

Keeps law: addresses-not-repaired, law: addresses-compare-exactly (docs/laws.md).
"""

from __future__ import annotations

import ipaddress
import re
import string
import unicodedata
from encodings.idna import nameprep
from functools import lru_cache

__all__ = [
    "a_labels",
    "ascii_lower",
    "comparable",
    "comparable_domain",
    "is_mailbox",
    "is_return_path",
    "split",
    "split_extension",
    "u_labels",
]

WITHOUT_EXTENSION = frozenset({"postmaster", "mailer-daemon", "double-bounce"})  # as Postfix

LOCAL_PART_MAX = 256  # octets; RFC 5321 4.5.3.1.1 says 64, real VERP senders are longer, a path has 256 (4.5.3.1.3)
ADDRESS_MAX = 512  # octets: such a local part, an @ and a domain of 255 (4.5.3.1.2)

_DOT_STRING = r"[^\x00-\x20\x7f-\x9f\ud800-\udfff()<>\[\]:;@\\,\"]+"
_QUOTED_STRING = r'"(?:[^\x00-\x1f\x7f-\x9f\ud800-\udfff"\\]|\\[\x20-\x7e])*"'
_LOCAL_PART = re.compile(rf"(?:{_DOT_STRING}|{_QUOTED_STRING})\Z")
_DOMAIN = r"(?:[^\x00-\x20\x7f-\x9f\ud800-\udfff()<>\[\]:;@\\,\"]+|\[[0-9A-Za-z.:_-]+\])"
_MAILBOX = re.compile(rf"(?:{_DOT_STRING}|{_QUOTED_STRING})@{_DOMAIN}\Z")

_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_DOTS = re.compile("[.\u3002\uff0e\uff61]")  # RFC 3490 3.1: all of them separate labels
# IDNA 2008 keeps these four; Python's codec, IDNA 2003, makes another domain of theirs (RFC 5894 7.2).
_KEPT = re.compile("([\u00df\u03c2\u200c\u200d])")
_LABEL_MAX = 63  # RFC 1035 2.3.4
DOMAINS_REMEMBERED = 4_096  # non-ASCII ones, about 1 MB


def split(address: str) -> tuple[str, str]:
    """Returns local part and domain, split at the last @; the domain is "" when there is no @."""
    local_part, at, domain = address.rpartition("@")
    return (local_part, domain) if at else (domain, "")


def split_extension(local_part: str, delimiter: str) -> tuple[str, str]:
    """Returns user and extension of a local part, the extension with its delimiter; "" without one.

    As Postfix's split_addr: some names have none, and neither has a quoted local part.
    """
    name = local_part.lower()
    if not delimiter or name.startswith('"') or name in WITHOUT_EXTENSION:
        return local_part, ""
    if "-" in delimiter and (name.startswith("owner-") or (name.endswith("-request") and len(name) > 8)):
        return local_part, ""
    at = min((place for place in map(local_part.find, delimiter) if place >= 0), default=0)
    return (local_part[:at], local_part[at:]) if at else (local_part, "")


def is_mailbox(address: str) -> bool:
    """Returns whether the address may be used in RCPT TO:<...>: local part and domain, or a domain literal."""
    return _MAILBOX.match(address) is not None and _fits(address)


def is_return_path(address: str) -> bool:
    """Returns whether the address may be used in MAIL FROM:<...>: a mailbox, "" (a bounce), or a local part alone."""
    return not address or is_mailbox(address) or (_LOCAL_PART.match(address) is not None and _fits(address))


def ascii_lower(text: str) -> str:
    """Returns the text with A-Z as a-z; all other characters stay, unlike with ``str.lower``."""
    return text.lower() if text.isascii() else text.translate(_LOWER)


def comparable(address: str) -> str:
    """Returns the form of an address, or of a local part alone, that is equal for equal addresses."""
    if address.isascii() and address[-1:] not in (".", "]"):
        return address.lower()
    local_part, domain = split(address)
    return f"{ascii_lower(local_part)}@{comparable_domain(domain)}" if domain else ascii_lower(address)


def comparable_domain(domain: str) -> str:
    """Returns the form of a domain or address literal that is equal for equal ones; of an invalid one ASCII lower case."""
    if domain.startswith("["):
        return _comparable_literal(domain)
    try:
        return a_labels(domain).removesuffix(".")
    except UnicodeError:
        return ascii_lower(domain)


def a_labels(domain: str) -> str:
    """Returns the domain with A-labels in lower case. Raises UnicodeError if a label cannot be one."""
    return domain.lower() if domain.isascii() else _a_labels(domain)


@lru_cache(DOMAINS_REMEMBERED)
def _a_labels(domain: str) -> str:
    return ".".join(map(_a_label, _DOTS.split(domain)))


def _a_label(label: str) -> str:
    """Returns a label as RFC 5891 has it, after the mapping of RFC 3491. Raises UnicodeError."""
    if label.isascii():
        return label.lower()
    if not _KEPT.search(label) and "\u1e9e" not in label:
        return label.encode("idna").decode("ascii").lower()
    pieces = _KEPT.split(label.replace("\u1e9e", "\u00df"))
    prepared = "".join(piece if _KEPT.fullmatch(piece) else nameprep(piece) for piece in pieces)
    prepared = unicodedata.normalize("NFC", prepared)
    a_label = "xn--" + prepared.encode("punycode").decode("ascii")
    if len(a_label) > _LABEL_MAX or prepared.startswith("xn--"):
        raise UnicodeError(f"{label!a} is not a label of a domain name")
    return a_label


def u_labels(domain: str) -> str:
    """Returns the domain, in its comparable form, with Unicode in place of A-labels."""
    return ".".join(map(_u_label, domain.split("."))) if "xn--" in domain else domain


@lru_cache(DOMAINS_REMEMBERED)
def _u_label(label: str) -> str:
    if not label.startswith("xn--"):
        return label
    try:
        decoded = label[4:].encode("ascii").decode("punycode")
        return decoded if _a_label(decoded) == label else label
    except UnicodeError:
        return label


def _comparable_literal(domain: str) -> str:
    kind, colon, text = domain[1:-1].lower().partition(":")
    try:
        if kind == "ipv6" and colon:
            return f"[ipv6:{ipaddress.IPv6Address(text).compressed}]"
    except ValueError:
        pass
    return ascii_lower(domain)


def _fits(address: str) -> bool:
    if len(address) <= LOCAL_PART_MAX // 4:  # no character takes more than four octets
        return True
    octets = address.encode()
    return len(octets) <= ADDRESS_MAX and (b"@" not in octets or octets.rindex(b"@") <= LOCAL_PART_MAX)
