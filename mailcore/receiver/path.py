"""Paths and addresses of MAIL FROM and RCPT TO: the grammar of RFC 5321 4.1.2 and RFC 6531, and nothing beside it.

Laws: no control character, no bare LF, CR or NUL ever gets into an address; what is parsed is stored as it was written,
except for a source route, which is ignored (RFC 5321 appendix C), and for quotes that a local part does not need, which are
left out: with and without them it is the same mailbox (RFC 5321 4.1.2). A domain is not a number (an IPv4 address without
brackets), as in Postfix. Where this is wider or narrower than the RFC, decision 0004 says why: a label may hold an
underscore; of address literals only IPv4 and IPv6 exist; a local part may be as long as its path lets it.
Pure.

Keeps law: strict-paths (docs/laws.md).
"""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

__all__ = ["ADDRESS_OCTETS_MAX", "NULL_PATH", "Path", "parse_path", "plain_local_part"]

PATH_OCTETS_MAX = 256  # RFC 5321 4.5.3.1.3, brackets included
ADDRESS_OCTETS_MAX = PATH_OCTETS_MAX - 2
LABEL_OCTETS_MAX = 63  # RFC 1035 2.3.4

# Possessive quantifiers (++) and alternatives that begin differently: matching takes time linear in the line's length.
# Groups have plain ones: up to Python 3.11.4 (Debian 12) a possessive group that fails halfway keeps what it took.
# A set of characters is written as what is not in it: Python compiles one with a million characters of Unicode in 20 ms.
# Of what is not ASCII, the C1 controls and the surrogates are not in RFC 6532's UTF8-non-ascii.
_NEVER = r"\x00-\x1f\x7f-\x9f\ud800-\udfff"
_ATOM = rf'[^{_NEVER} "(),.:;<>@\[\\\]]++'
_DOT_STRING = rf"{_ATOM}(?:\.{_ATOM})*"
_QUOTED_STRING = rf'"(?:[^{_NEVER}"\\]|\\[\x20-\x7e])*"'
_LABEL = rf"(?!-)[^{_NEVER} -,./:-@\[-^`{{-~]++(?<!-)"
_DOMAIN = rf"{_LABEL}(?:\.{_LABEL})*"
_LITERAL = r"\[[0-9A-Za-z.:]++\]"
_ROUTE = rf"@{_DOMAIN}(?:,@{_DOMAIN})*:"
_PATH = re.compile(rf"<(?:{_ROUTE})?({_DOT_STRING}|{_QUOTED_STRING})@({_DOMAIN}|{_LITERAL})>")
_PLAIN = re.compile(rf"{_DOT_STRING}\Z")
_QUOTED_PAIR = re.compile(r"\\(.)")
_DIGITS = "0123456789"
_POSTMASTER = re.compile(r"<(postmaster)>", re.IGNORECASE)  # the one address without domain, RFC 5321 4.5.1


class Path(NamedTuple):
    """A parsed path. ``address`` is local part and domain, without needless quotes; "" is the null reverse-path."""

    address: str
    local_part: str
    domain: str  # "" for <postmaster> and the null path


NULL_PATH = Path("", "", "")


def parse_path(text: str, at: int = 0) -> tuple[Path, str] | None:
    """Returns the path in ``text`` from ``at`` on, and what follows it; None when there is no path.

    ``<>`` and ``<postmaster>`` are paths; the command decides whether they are allowed.
    """
    match = _PATH.match(text, at)
    if match is None:
        if text.startswith("<>", at):
            return NULL_PATH, text[at + 2 :]
        match = _POSTMASTER.match(text, at)
        return None if match is None else (Path(match[1], match[1], ""), text[match.end() :])
    local_part, domain = match.groups()
    if local_part[0] == '"':
        local_part = plain_local_part(local_part)
    address = f"{local_part}@{domain}"
    octets = len(address) if address.isascii() else len(address.encode())
    if octets > ADDRESS_OCTETS_MAX or not (_is_literal(domain) if domain[0] == "[" else _labels_fit(domain)):
        return None
    if domain[-1] in _DIGITS and not domain.strip(_DIGITS + "."):
        return None
    return Path(address, local_part, domain), text[match.end() :]


def plain_local_part(quoted: str) -> str:
    """Returns a local part without its quotes if it does not need them."""
    if quoted[:1] != '"':
        return quoted
    text = _QUOTED_PAIR.sub(r"\1", quoted[1:-1])
    return text if _PLAIN.match(text) else quoted


def _labels_fit(domain: str) -> bool:
    if len(domain) <= LABEL_OCTETS_MAX and domain.isascii():
        return True
    return all(len(label.encode()) <= LABEL_OCTETS_MAX for label in domain.split("."))


def _is_literal(domain: str) -> bool:
    text = domain[1:-1]
    try:
        if text[:5].lower() == "ipv6:":
            ipaddress.IPv6Address(text[5:])
        else:
            ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True
