"""The arguments of MAIL and RCPT: path and parameters in, values or the reply that refuses them out. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from mailcore.receiver.path import Path, parse_path

__all__ = ["Fault", "Mail", "parse_mail", "parse_rcpt"]

_PARAMETER = re.compile(r"([A-Za-z0-9][A-Za-z0-9-]*+)(?:=([\x21-\x3c\x3e-\x7e]++))?")  # RFC 5321 4.1.2 esmtp-param
SIZE_DIGITS_MAX = 20  # RFC 1870 3
_FROM = re.compile(
    r"FROM: *", re.IGNORECASE
)  # a space behind the colon is no RFC, but many clients; nothing can hide in it
_TO = re.compile(r"TO: *", re.IGNORECASE)


class Fault(NamedTuple):
    """The reply that refuses, without CRLF."""

    reply: bytes


class Mail(NamedTuple):
    sender: str
    size_bytes: int = 0  # as declared, 0 when it was not
    eight_bit: bool = False
    smtputf8: bool = False


_MAIL_SYNTAX = Fault(b"501 5.5.4 Syntax: MAIL FROM:<address>")
_RCPT_SYNTAX = Fault(b"501 5.5.4 Syntax: RCPT TO:<address>")
_BAD_SENDER = Fault(b"501 5.1.7 Bad sender address syntax")
_BAD_RECIPIENT = Fault(b"501 5.1.3 Bad recipient address syntax")
_BAD_PARAMETER = Fault(b"501 5.5.4 Bad parameter syntax")
_UNKNOWN_PARAMETER = Fault(b"555 5.5.4 Unsupported option")
_NOT_UTF8_SENDER = Fault(b"553 5.6.7 Sender address needs SMTPUTF8")
_NOT_UTF8_RECIPIENT = Fault(b"553 5.6.7 Recipient address needs SMTPUTF8")


def parse_mail(argument: bytes, extended: bool) -> Mail | Fault:
    """What stands behind ``MAIL ``. ``extended``: after EHLO; parameters exist only then."""
    found = _parse(argument, _FROM)
    if found is None:
        return _MAIL_SYNTAX if not _FROM.match(_text(argument)) else _BAD_SENDER
    path, rest = found
    if not path.domain and path.address:
        return _BAD_SENDER
    if not rest:
        return Mail(path.address) if path.address.isascii() else _NOT_UTF8_SENDER
    if not extended:
        return _UNKNOWN_PARAMETER
    return _with_parameters(path, rest)


def _with_parameters(path: Path, rest: str) -> Mail | Fault:
    size_bytes = 0
    eight_bit = smtputf8 = False
    seen: set[str] = set()
    for parameter in rest.split():
        match = _PARAMETER.fullmatch(parameter)
        if match is None or match[1].upper() in seen:
            return _BAD_PARAMETER
        keyword, value = match[1].upper(), match[2]
        seen.add(keyword)
        if keyword == "SIZE":
            if value is None or not value.isdecimal() or len(value) > SIZE_DIGITS_MAX:
                return _BAD_PARAMETER
            size_bytes = int(value)
        elif keyword == "BODY":
            if value is None or value.upper() not in ("7BIT", "8BITMIME"):
                return Fault(b"501 5.5.4 BODY is 7BIT or 8BITMIME")
            eight_bit = value.upper() == "8BITMIME"
        elif keyword == "SMTPUTF8":
            if value is not None:
                return _BAD_PARAMETER
            smtputf8 = True
        else:
            return _UNKNOWN_PARAMETER
    if not smtputf8 and not path.address.isascii():
        return _NOT_UTF8_SENDER
    return Mail(path.address, size_bytes, eight_bit, smtputf8)


def parse_rcpt(argument: bytes, smtputf8: bool) -> Path | Fault:
    """What stands behind ``RCPT ``. ``smtputf8``: MAIL said so. The path has an address; no domain only for postmaster."""
    found = _parse(argument, _TO)
    if found is None:
        return _RCPT_SYNTAX if not _TO.match(_text(argument)) else _BAD_RECIPIENT
    path, rest = found
    if not path.address:
        return _BAD_RECIPIENT
    if rest:
        return _UNKNOWN_PARAMETER
    if not smtputf8 and not path.address.isascii():
        return _NOT_UTF8_RECIPIENT
    return path


def _text(argument: bytes) -> str:
    return argument.decode("utf-8", "replace")


def _parse(argument: bytes, keyword: re.Pattern[str]) -> tuple[Path, str] | None:
    """Path, and the parameters without the space before them."""
    try:
        text = argument.decode()
    except UnicodeDecodeError:
        return None
    match = keyword.match(text)
    found = parse_path(text, match.end()) if match is not None else None
    if found is None:
        return None
    path, rest = found
    if not rest:
        return found
    return (path, rest.strip(" ")) if rest[0] == " " else None
