"""An SPF record (RFC 7208 4.6, 5, 6, 7): its terms, and the expansion of macros. Pure."""

from __future__ import annotations

import ipaddress
import re
import urllib.parse
from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["BadRecord", "Record", "Term", "expanded", "is_record", "parse_record", "wants_name"]

RECORD_CHARACTERS_MAX = 16_384  # ten times the largest in use; the parser's time grows with it
TERMS_MAX = 1_000
_NAMED = re.compile(r"([a-z][a-z0-9_.-]*)=(.*)", re.IGNORECASE | re.DOTALL)
_MECHANISM = re.compile(r"([+?~-]?)([a-z0-9]+)(.*)", re.IGNORECASE | re.DOTALL)
_CIDR = re.compile(r"(?:/(0|[1-9][0-9]{0,2}))?(?://(0|[1-9][0-9]{0,2}))?\Z")
_ONE_CIDR = re.compile(r"(?:/(0|[1-9][0-9]{0,2}))?\Z")
_MACRO = r"%(?:%|_|-|\{[slodiphcrtv][0-9]{0,3}r?[.+,/_=-]*\})"
_MACRO_STRING = re.compile(rf"(?:{_MACRO}|[!-$&-~])*", re.IGNORECASE)
_DOMAIN_END = re.compile(
    rf"(?:{_MACRO}|\.(?:[a-z0-9]*[a-z][a-z0-9]*|[a-z0-9]+-[a-z0-9-]*[a-z0-9])\.?)\Z", re.IGNORECASE
)
_EXPAND = re.compile(r"%(?:(%)|(_)|(-)|\{([slodiphcrtv])([0-9]*)(r?)([.+,/_=-]*)\})", re.IGNORECASE)
_ONLY_IN_EXPLANATIONS = re.compile(r"%\{[crt]", re.IGNORECASE)
_ZERO_LABELS = re.compile(r"%\{[a-z]0+[r}.+,/_=-]", re.IGNORECASE)
_NAME_WANTED = re.compile(r"%\{p", re.IGNORECASE)
_QUALIFIERS = {"": "pass", "+": "pass", "-": "fail", "~": "softfail", "?": "neutral"}


class BadRecord(Exception):
    """A record that breaks the grammar: permerror."""


class Term(NamedTuple):
    """One mechanism. ``domain`` with its macros, "" is the current one; the lengths are those of networks."""

    result: str  # if it matches
    kind: str
    domain: str = ""
    bits4: int = 32
    bits6: int = 128
    network: ipaddress.IPv4Network | ipaddress.IPv6Network | None = None


class Record(NamedTuple):
    """The mechanisms in order, and the domain that decides if none matches ("": nowhere)."""

    terms: tuple[Term, ...]
    redirect: str


def is_record(text: str) -> bool:
    """Returns whether a TXT record is an SPF record."""
    return text[:6].lower() == "v=spf1" and text[6:7] in ("", " ")


def parse_record(text: str) -> Record:
    """Reads a record. Raises BadRecord at any error in it, as section 4.6 demands."""
    words = [word for word in text[6:].split(" ") if word]
    if not text.isascii() or len(text) > RECORD_CHARACTERS_MAX or len(words) > TERMS_MAX:
        raise BadRecord
    terms: list[Term] = []
    modifiers: dict[str, str] = {}
    for word in words:
        named = _NAMED.fullmatch(word)
        if named is None:
            terms.append(_mechanism(word))
            continue
        name, value = named[1].lower(), named[2]
        if name in ("redirect", "exp"):
            if name in modifiers:
                raise BadRecord
            modifiers[name] = _domain(value)
        elif not _MACRO_STRING.fullmatch(value):
            raise BadRecord
    return Record(tuple(terms), modifiers.get("redirect", ""))


def _mechanism(word: str) -> Term:
    match = _MECHANISM.fullmatch(word)
    if match is None:
        raise BadRecord
    result, kind, rest = _QUALIFIERS[match[1]], match[2].lower(), match[3]
    if kind == "all" and not rest:
        return Term(result, kind)
    if kind in ("include", "exists") and rest[:1] == ":":
        return Term(result, kind, _domain(rest[1:]))
    if kind == "ptr" and rest[:1] in ("", ":"):
        return Term(result, kind, _domain(rest[1:]) if rest else "")
    if kind in ("a", "mx"):
        return _hosts(result, kind, rest)
    if kind in ("ip4", "ip6") and rest[:1] == ":":
        return Term(result, kind, network=_network(kind, rest[1:]))
    raise BadRecord


def _hosts(result: str, kind: str, rest: str) -> Term:
    cidr = _CIDR.search(rest)
    assert cidr is not None  # it may be empty
    bits4, bits6 = int(cidr[1] or 32), int(cidr[2] or 128)
    domain = rest[: cidr.start()]
    if bits4 > 32 or bits6 > 128 or domain[:1] not in ("", ":"):
        raise BadRecord
    return Term(result, kind, _domain(domain[1:]) if domain else "", bits4, bits6)


def _network(kind: str, text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    cidr = _ONE_CIDR.search(text)
    assert cidr is not None  # it may be empty
    address = text[: cidr.start()]
    try:
        if kind == "ip4":
            return ipaddress.IPv4Network((ipaddress.IPv4Address(address), int(cidr[1] or 32)), strict=False)
        return ipaddress.IPv6Network((ipaddress.IPv6Address(address), int(cidr[1] or 128)), strict=False)
    except ValueError:
        raise BadRecord from None


def _domain(text: str) -> str:
    """Checks a domain-spec of section 7.1."""
    if not _MACRO_STRING.fullmatch(text) or not _DOMAIN_END.search(text):
        raise BadRecord
    if _ONLY_IN_EXPLANATIONS.search(text) or _ZERO_LABELS.search(text):
        raise BadRecord
    return text


def wants_name(text: str) -> bool:
    """Returns whether a domain-spec needs the verified name of the client."""
    return _NAME_WANTED.search(text) is not None


def expanded(text: str, values: Mapping[str, str]) -> str:
    """Returns a domain-spec with its macros replaced; ``values`` by letter. Too long a name loses labels from the left."""

    def value_of(match: re.Match[str]) -> str:
        if match[1]:
            return "%"
        if match[2]:
            return " "
        if match[3]:
            return "%20"
        parts = re.split(f"[{re.escape(match[7] or '.')}]", values[match[4].lower()])
        if match[6]:
            parts.reverse()
        if match[5]:
            parts = parts[-int(match[5]) :]
        value = ".".join(parts)
        return urllib.parse.quote(value, safe="") if match[4].isupper() else value

    name = _EXPAND.sub(value_of, text).removesuffix(".")
    while len(name) > 253 and "." in name:
        name = name.partition(".")[2]
    return name
