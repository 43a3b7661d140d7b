"""The attributes of XCLIENT and XFORWARD: what another program says of its client (Postfix's XCLIENT_README, XFORWARD_README).

Laws
- A value is used only if it has the syntax of its attribute; otherwise the whole command is refused and changes nothing.
- No control character, space or text that is not ASCII comes out of a value.

Pure. Keeps law: client-address-believed (docs/laws.md).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable

__all__ = ["UNKNOWN", "XCLIENT", "XFORWARD", "AttributeRefused", "read_attributes"]

XCLIENT = ("NAME", "ADDR", "PORT", "PROTO", "HELO", "LOGIN")
XFORWARD = ("NAME", "ADDR", "PORT", "PROTO", "HELO", "IDENT", "SOURCE")
UNKNOWN = ""  # the value of an attribute that is [UNAVAILABLE] or [TEMPUNAVAIL]
VALUE_MAX = 255  # bytes: "attribute values must not be longer than 255 characters"
_NOT_KNOWN = ("[UNAVAILABLE]", "[TEMPUNAVAIL]")
_XTEXT = re.compile(
    r"(?:[!-*,-~]|\+[0-9A-Fa-f]{2})*"
)  # RFC 1891 5; as Postfix, with "=" and hexadecimal digits of any case
_HEX = re.compile(r"\+([0-9A-Fa-f]{2})")
_LABEL = r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)"
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?")
_PORT = re.compile(r"0|[1-9][0-9]{0,4}")
_IDENT = re.compile(r"[A-Za-z0-9._:-]{1,64}")


class AttributeRefused(ValueError):
    """An attribute that cannot be used. The message is the reply."""


def read_attributes(verb: str, argument: bytes, allowed: tuple[str, ...]) -> dict[str, str]:
    """Returns the attributes of a command by name, decoded; ``UNKNOWN`` for a value the client does not have.

    Raises AttributeRefused.
    """
    attributes: dict[str, str] = {}
    for word in argument.decode("ascii", "replace").split():
        name, equals, value = word.partition("=")
        name = name.upper()
        if not equals:
            raise AttributeRefused("501 5.5.4 Error: attribute=value expected")
        if name not in allowed:
            raise AttributeRefused(f"501 5.5.4 Bad {verb} attribute name: {_shown(name)}")
        attributes[name] = _read(name, value)
    if not attributes:
        raise AttributeRefused(f"501 5.5.4 Syntax: {verb} attribute=value...")
    return attributes


def _read(name: str, value: str) -> str:
    if value.upper() in _NOT_KNOWN:
        return UNKNOWN
    if not _XTEXT.fullmatch(value):
        raise AttributeRefused(f"501 5.5.4 Bad attribute value syntax: {_shown(value)}")
    text = _HEX.sub(lambda match: chr(int(match[1], 16)), value)
    if not _READERS[name](text):
        raise AttributeRefused(f"501 5.5.4 Bad {name} syntax: {_shown(value)}")
    return _address(text) if name == "ADDR" else text.upper() if name in ("PROTO", "SOURCE") else text


def _is_name(text: str) -> bool:
    return len(text) <= VALUE_MAX and _HOST.fullmatch(text) is not None


def _is_address(text: str) -> bool:
    return bool(_address(text))


def _address(text: str) -> str:
    """Returns an address as accept(2) gives it, "" if it is none. IPv6 has a prefix, "IPV6:"; Postfix takes it without, too."""
    bare = text[5:] if text[:5].upper() == "IPV6:" else text
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        return ""
    if "%" in bare or (bare is not text and address.version == 4):
        return ""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).compressed


def _is_word(text: str) -> bool:
    return 0 < len(text) <= VALUE_MAX and text.isascii() and text.isprintable() and " " not in text


_READERS: dict[str, Callable[[str], bool]] = {
    "NAME": _is_name,
    "ADDR": _is_address,
    "PORT": lambda text: _PORT.fullmatch(text) is not None and int(text) <= 65_535,
    "PROTO": lambda text: text.upper() in ("SMTP", "ESMTP"),
    "HELO": _is_word,
    "LOGIN": _is_word,
    "IDENT": lambda text: _IDENT.fullmatch(text) is not None,
    "SOURCE": lambda text: text.upper() in ("LOCAL", "REMOTE"),
}


def _shown(text: str) -> str:
    """Returns a part of the command for the reply."""
    return "".join(each if each.isascii() and each.isprintable() else "?" for each in text[:100])
