"""The arguments of MAIL and RCPT: bytes in, path and parameters out, or the reply that refuses them. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

import msgspec

from mailcore.envelope import Options
from mailcore.esmtp import BINARY, EXTENSIONS, Parameter, ReplyOf, Value
from mailcore.receiver.path import Path, parse_path

__all__ = ["Mail", "PathReader", "ReplyOf", "parse_mail", "parse_rcpt"]

PathReader = Callable[[str, int], tuple[Path, str] | None]
# RFC 5321 4.1.2 esmtp-param, with the values of RFC 6531 3.3. Written as what is not in it, as in mailcore.receiver.path.
_PARAMETER = re.compile(r"([A-Za-z0-9][A-Za-z0-9-]*+)(?:=([^\x00-\x20=\x7f-\x9f\ud800-\udfff]++))?")
_WORD = re.compile(r"[^ \t]+")
# RFC 5321 has no space after the colon, but many clients send one, and nothing can hide in it.
_FROM = re.compile(r"FROM: *", re.IGNORECASE)
_TO = re.compile(r"TO: *", re.IGNORECASE)
_MAIL_PARAMETERS = {parameter.keyword: parameter for row in EXTENSIONS for parameter in row.mail}
_RCPT_PARAMETERS = {parameter.keyword: parameter for row in EXTENSIONS for parameter in row.rcpt}


class Mail(msgspec.Struct):
    """The argument of MAIL. Parameters with a field of their own are not among the ``options``."""

    sender: str
    size_bytes: int = 0  # as declared, 0 when it was not
    eight_bit: bool = False
    smtputf8: bool = False
    options: Options = ()
    submitter: str = ""  # AUTH=, which is accepted and ignored (RFC 4954 5)
    requests: Mapping[str, Value] = MappingProxyType({})  # parameters that the session must act on


_MAIL_SYNTAX = ReplyOf(b"501 5.5.4 Syntax: MAIL FROM:<address>")
_RCPT_SYNTAX = ReplyOf(b"501 5.5.4 Syntax: RCPT TO:<address>")
_BAD_SENDER = ReplyOf(b"501 5.1.7 Bad sender address syntax")
_BAD_RECIPIENT = ReplyOf(b"501 5.1.3 Bad recipient address syntax")
_BAD_PARAMETER = ReplyOf(b"501 5.5.4 Bad parameter syntax")
_UNKNOWN_PARAMETER = ReplyOf(b"555 5.5.4 Unsupported option")
_NOT_UTF8_SENDER = ReplyOf(b"553 5.6.7 Sender address needs SMTPUTF8")
_NOT_UTF8_RECIPIENT = ReplyOf(b"553 5.6.7 Recipient address needs SMTPUTF8")


def parse_mail(
    argument: bytes,
    extended: bool,
    parameters: Mapping[str, Parameter] = _MAIL_PARAMETERS,
    reader: PathReader = parse_path,
) -> Mail | ReplyOf:
    """Reads what follows ``MAIL ``. ``extended``: after EHLO; only then there are parameters. ``reader`` reads the path."""
    parsed = _parse(argument, _FROM, reader)
    if parsed is None:
        return _MAIL_SYNTAX if not _FROM.match(_text(argument)) else _BAD_SENDER
    path, rest = parsed
    address = path.address
    if not path.domain and address:
        return _BAD_SENDER
    mail = Mail(address)
    if rest:
        if not extended:
            return _UNKNOWN_PARAMETER
        refusal = _take_parameters(mail, rest, parameters)
        if refusal is not None:
            return refusal
    return mail if mail.smtputf8 or address.isascii() else _NOT_UTF8_SENDER


def parse_rcpt(
    argument: bytes,
    smtputf8: bool,
    parameters: Mapping[str, Parameter] = _RCPT_PARAMETERS,
    reader: PathReader = parse_path,
) -> tuple[Path, Options] | ReplyOf:
    """Reads what follows ``RCPT ``. ``smtputf8``: MAIL said so. ``parameters`` is empty after HELO.

    The path has an address; it has no domain only for postmaster.
    """
    parsed = _parse(argument, _TO, reader)
    if parsed is None:
        return _RCPT_SYNTAX if not _TO.match(_text(argument)) else _BAD_RECIPIENT
    path, rest = parsed
    if not path.address:
        return _BAD_RECIPIENT
    options: Options = ()
    if rest:
        if not parameters:
            return _UNKNOWN_PARAMETER
        taken = Mail("")
        refusal = _take_parameters(taken, rest, parameters, smtputf8)
        if refusal is not None:
            return refusal
        options = taken.options
    if not smtputf8 and not path.address.isascii():
        return _NOT_UTF8_RECIPIENT
    return path, options


def _take_parameters(
    mail: Mail, rest: str, parameters: Mapping[str, Parameter], smtputf8: bool = False
) -> ReplyOf | None:
    """Puts each parameter into its field of ``mail`` or into the options; the reply to the first that is wrong."""
    keywords: set[str] = set()
    for text in _WORD.findall(rest):
        match = _PARAMETER.fullmatch(text)
        if match is None:
            return _BAD_PARAMETER
        keyword, value = match.groups()
        keyword = keyword.upper()
        if keyword in keywords:
            return _BAD_PARAMETER
        keywords.add(keyword)
        parameter = parameters.get(keyword)
        if parameter is None:
            return _UNKNOWN_PARAMETER
        if value is not None and not value.isascii() and not (smtputf8 and parameter.takes_utf8):
            return _BAD_PARAMETER
        parsed = parameter.parse(value)
        if isinstance(parsed, ReplyOf):
            return parsed
        if parameter.field:
            if parsed == BINARY[1]:  # BODY has a field for 8BITMIME only
                mail.options = (*mail.options, BINARY)
                continue
            setattr(mail, parameter.field, parsed)
        elif parameter.is_request:
            mail.requests = {**mail.requests, keyword: parsed}
        else:
            mail.options = (*mail.options, (keyword, str(parsed)))
    return None


def _text(argument: bytes) -> str:
    return argument.decode("utf-8", "replace")


def _parse(argument: bytes, keyword: re.Pattern[str], reader: PathReader) -> tuple[Path, str] | None:
    """Returns the path, and the parameters without the space before them; None when there is no path."""
    try:
        text = argument.decode()
    except UnicodeDecodeError:
        return None
    match = keyword.match(text)
    parsed = reader(text, match.end()) if match is not None else None
    if parsed is None:
        return None
    path, rest = parsed
    if not rest:
        return parsed
    return (path, rest.strip(" ")) if rest[0] == " " else None
