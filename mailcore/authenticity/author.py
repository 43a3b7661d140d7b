"""The domain of a message's author: that of the one address in its one From field (RFC 9989 5.3.1). Pure.

Law: a From field that two readers could read in two ways has no author. The address is where a mail program looks for it:
in the angle brackets, or what is there without any; never in a display name, a comment or a quoted text.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from mailcore.authenticity.answers import is_askable
from mailcore.authenticity.signed import Field
from mailcore.dkim.canonical import CRLF
from mailcore.routing.address import a_labels

__all__ = ["Author", "author_of"]

FIELD_BYTES_MAX = 64 << 10
COMMENTS_MAX = 50  # inside one another
_NAME = re.compile(r"[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*")
_ATOM = re.compile(r"[^ \t\r\n()<>@,;:\"\\\[\]]+")


class Author(NamedTuple):
    """The domain as A-labels; or "" and the reason."""

    domain: str
    reason: str = ""


class _Malformed(ValueError):
    """A From field that breaks the grammar."""


def author_of(fields: list[Field]) -> Author:
    """Returns the author's domain of a message with these fields."""
    values = [field.partition(b":")[2] for name, field in fields if name == b"from"]
    if len(values) != 1:
        return Author("", "the message has several From fields" if values else "the message has no From field")
    if len(values[0]) > FIELD_BYTES_MAX:
        return Author("", "the From field is too long")
    try:
        domains = _domains(_tokens(values[0].replace(CRLF, b"").decode("utf-8", "replace")))
    except _Malformed:
        return Author("", "the From field is malformed")
    if len(domains) != 1:
        return Author("", "the From field has several addresses" if domains else "the From field has no address")
    try:
        name = a_labels(domains[0])
    except UnicodeError:
        name = ""
    if not _NAME.fullmatch(name) or not is_askable(name):
        return Author("", "the domain of the From field is not valid")
    return Author(name)


def _tokens(text: str) -> list[str]:
    """Returns atoms, specials, and each quoted string or domain literal with its delimiters; comments and blanks are gone."""
    tokens: list[str] = []
    at = 0
    while at < len(text):
        character = text[at]
        if character in " \t":
            at += 1
        elif character in "\r\n":
            raise _Malformed
        elif character == "(":
            at = _end_of_comment(text, at)
        elif character in '"[':
            end = _end_of_quoted(text, at, '"' if character == '"' else "]")
            tokens.append(text[at:end])
            at = end
        elif character in "<>@,;:":
            tokens.append(character)
            at += 1
        else:
            match = _ATOM.match(text, at)
            if match is None:
                raise _Malformed
            tokens.append(match[0])
            at = match.end()
    return tokens


def _end_of_comment(text: str, at: int) -> int:
    depth = 0
    while at < len(text):
        character = text[at]
        if character == "\\":
            at += 1
        elif character == "(":
            depth += 1
            if depth > COMMENTS_MAX:
                raise _Malformed
        elif character == ")":
            depth -= 1
            if not depth:
                return at + 1
        at += 1
    raise _Malformed


def _end_of_quoted(text: str, at: int, end: str) -> int:
    at += 1
    while at < len(text):
        if text[at] == "\\":
            at += 1
        elif text[at] == end:
            return at + 1
        at += 1
    raise _Malformed


def _domains(tokens: list[str]) -> list[str]:
    """Returns the domain of each address, also of those in groups."""
    domains: list[str] = []
    part: list[str] = []  # of one mailbox
    in_group = False
    for each in [*tokens, ","]:
        if each == ":" and "<" not in part:
            if in_group:
                raise _Malformed
            in_group, part = True, []
        elif each in (",", ";") and ("<" not in part or ">" in part):
            if each == ";" and not in_group:
                raise _Malformed
            if part:
                domains.append(_domain(part))
            part = []
            in_group = in_group and each == ","
        else:
            part.append(each)
    if part or in_group:
        raise _Malformed
    return domains


def _domain(part: list[str]) -> str:
    """Returns the domain of a mailbox."""
    if "<" in part or ">" in part:
        if part.count("<") != 1 or part.count(">") != 1 or part[-1] != ">":
            raise _Malformed
        part = part[part.index("<") + 1 : -1]
        if ":" in part:  # a route, RFC 5322 4.4
            part = part[part.index(":") + 1 :]
    if part.count("@") != 1:
        raise _Malformed
    at = part.index("@")
    local, domain = part[:at], part[at + 1 :]
    if len(domain) != 1 or not local or domain[0][:1] == '"':
        raise _Malformed
    if len(local) > 1 and not all(each == "." or each.endswith(".") or each.startswith((".", '"')) for each in local):
        raise _Malformed  # two words before the @: which one is the address?
    return domain[0]
