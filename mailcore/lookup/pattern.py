r"""Patterns of filters and searches: ``*`` stands for any characters, ``?`` for one; ``\*``, ``\?`` and ``\\`` for themselves.

Two parts of an address are compared, its local part and its domain (``routing.address.comparable``): the domain as DNS has it,
``xn--...``; a label with a wildcard and letters beyond ASCII is compared with the domain in Unicode instead. A pattern without
an @ is compared with the whole address. Brackets are plain characters, because next hops have them.

Laws: pure; a text that is not a pattern raises PatternError. An empty text is not one: it would match all by mistake.

Keeps law: addresses-compare-exactly, law: empty-is-an-error (docs/laws.md).
"""

from __future__ import annotations

import fnmatch
import re
import unicodedata
from collections.abc import Callable

from mailcore.routing.address import ascii_lower, comparable, comparable_domain, u_labels

__all__ = [
    "PatternError",
    "address_matcher",
    "destination_matcher",
    "fixed_part",
    "literal",
    "matches_all",
    "text_matcher",
    "text_refusal",
]

Test = Callable[[str], bool]

# In a parsed pattern the wildcards are two characters that no text of a pattern may have.
_ANY, _ONE = "\0", "\1"
_SPECIAL = "*?\\"
_WILD = re.compile("[\0\1]")
_CONTROL = re.compile("[\0-\x1f\x7f-\x9f\ud800-\udfff]")
_SIGN = {_ANY: "*", _ONE: "?", "[": "[[]", "*": "[*]", "?": "[?]"}  # for fnmatch.translate


class PatternError(ValueError):
    """A text that is not a pattern; the message is for a person."""


def text_refusal(text: str) -> str:
    """Returns why a text cannot be searched for; "" if it can."""
    if not text or text.isspace():
        return "an empty value is not allowed; leave it out for any value"
    if found := _CONTROL.search(text):
        return f"the character {found[0]!a} is not allowed"
    return ""


def literal(text: str) -> str:
    """Returns the pattern that matches this text alone."""
    return "".join(f"\\{character}" if character in _SPECIAL else character for character in text)


def matches_all(pattern: str) -> bool:
    """Returns True if the pattern is nothing but ``*``."""
    return bool(pattern) and not pattern.strip("*")


def text_matcher(pattern: str) -> Test:
    """Returns a test for a name, without regard to ASCII case. Raises PatternError."""
    test = _test(ascii_lower(_parsed(pattern)))
    return lambda text: test(ascii_lower(text))


def address_matcher(pattern: str) -> Test:
    """Returns a test for an address. Raises PatternError."""
    parsed = _parsed(pattern)
    if not _WILD.search(parsed):
        return _same(comparable(parsed))
    local_pattern, at, domain_pattern = parsed.rpartition("@")
    if not at:
        return _whole(ascii_lower(parsed))
    local_test, domain_test = _test(ascii_lower(local_pattern)), _domain_test(domain_pattern)

    def matches(address: str) -> bool:
        local_part, at, domain = comparable(address).rpartition("@")
        return bool(at) and domain_test(domain) and local_test(local_part)

    return matches


def fixed_part(pattern: str) -> tuple[str | None, str | None]:
    """Returns (the only address that matches, the only domain whose addresses match), in comparable form; None if there is
    none. Raises PatternError."""
    parsed = _parsed(pattern)
    if not _WILD.search(parsed):
        return comparable(parsed), None
    _, at, domain = parsed.rpartition("@")
    return None, comparable_domain(domain) if at and not _WILD.search(domain) else None


def destination_matcher(pattern: str) -> Test:
    """Returns a test for a destination, "transport:next hop", whose domain is always as DNS has it. Raises PatternError."""
    transport, colon, next_hop = _parsed(pattern).partition(":")
    domain, port_colon, port = next_hop.partition(":")
    if not next_hop.isascii() and not next_hop.startswith("["):
        next_hop = _labels(domain, comparable_domain) + port_colon + port
    test = _test(ascii_lower(transport + colon + next_hop))
    return lambda text: test(ascii_lower(text))


def _parsed(pattern: str) -> str:
    """Returns the pattern with ``_ANY`` and ``_ONE`` as wildcards; all other characters are plain. Raises PatternError."""
    if error := text_refusal(pattern):
        raise PatternError(error)
    parsed: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == "\\":
            escaped = next(characters, "")
            if not escaped or escaped not in _SPECIAL:
                what = f"\\{escaped}" if escaped else "a \\ at the end"
                raise PatternError(f"{what} has no meaning; write \\\\ for a backslash, \\* and \\? for * and ?")
            parsed.append(escaped)
        else:
            parsed.append({"*": _ANY, "?": _ONE}.get(character, character))
    return "".join(parsed)


def _same(wanted: str) -> Test:
    return lambda address: comparable(address) == wanted


def _whole(parsed: str) -> Test:
    """Returns the test of a pattern without an @, for the whole address."""
    test = _test(parsed)
    if parsed.isascii():
        return lambda address: test(comparable(address))
    return lambda address: test(_in_unicode(comparable(address)))


def _in_unicode(address: str) -> str:
    local_part, at, domain = address.rpartition("@")
    return local_part + at + u_labels(domain)


def _domain_test(parsed: str) -> Test:
    labels = parsed.split(".")
    if any(_WILD.search(label) and not label.isascii() for label in labels):
        test = _test(_labels(parsed, lambda label: u_labels(comparable_domain(label))))
        return lambda domain: test(u_labels(domain))
    return _test(_labels(parsed, comparable_domain))


def _labels(parsed: str, map_label: Callable[[str], str]) -> str:
    """Returns a pattern of a domain with its labels mapped, those with a wildcard only in case."""
    if not _WILD.search(parsed):
        return map_label(parsed)
    labels = parsed.removesuffix(".").split(".")
    return ".".join(_part(label) if _WILD.search(label) else map_label(label) for label in labels)


def _part(label: str) -> str:
    """Returns a label with wildcards, of which no A-label can be made, mapped as far as RFC 3491 maps its letters."""
    return unicodedata.normalize("NFKC", label).lower()


def _test(parsed: str) -> Test:
    if not _WILD.search(parsed):
        return parsed.__eq__
    match = re.compile(fnmatch.translate("".join(_SIGN.get(character, character) for character in parsed))).match
    return lambda text: match(text) is not None
