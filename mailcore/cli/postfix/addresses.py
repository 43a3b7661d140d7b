"""Reads a list of addresses as people and programs write them (RFC 5322 3.4), and guesses nothing.

Python's own parser joins what blanks separate or drops a part: ``a@b.c d`` becomes ``a@b.cd``, and mail goes to another person.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["NotAddresses", "addresses_in"]

_TOKEN = re.compile(
    r'[^\s"<>,;:()\[\]]*\[[^\[\]\s]*\]|"(?:[^"\\]|\\.)*"|<[^<>]*>|[,;:()]|\s+|[^\s"<>,;:()]+', re.DOTALL
)


class NotAddresses(ValueError):
    """Raised if the text is not a list of addresses."""


def addresses_in(text: str) -> list[str]:
    """Returns the addresses as written, without names, comments and groups' names. Raises NotAddresses."""
    found: list[str] = []
    words: list[str] = []  # of the current element; a blank between two words is one of them
    angle: str | None = None
    for part in _tokens(text):
        if part in ",;":
            found += _element(words, angle, text)
            words, angle = [], None
        elif part == ":":  # the words before it name a group
            if angle is not None or not words:
                raise NotAddresses(text)
            words = []
        elif part.startswith("<"):
            if angle is not None:
                raise NotAddresses(text)
            angle = part[1:-1].strip()
            words = []
        elif part.isspace():
            if words and words[-1] != " ":
                words.append(" ")
        elif angle is not None:
            raise NotAddresses(text)  # something follows the address
        else:
            words.append(part)
    return found + _element(words, angle, text)


def _tokens(text: str) -> Iterator[str]:
    """Yields tokens without comments, which may be nested. Raises NotAddresses."""
    at, depth = 0, 0
    while at < len(text):
        if depth and text[at] == "\\":
            at += 2
            continue
        if depth and text[at] not in "()":
            at += 1
            continue
        part = _TOKEN.match(text, at)
        if part is None:
            raise NotAddresses(text)
        at = part.end()
        if part[0] == "(":
            depth += 1
        elif part[0] == ")":
            depth -= 1
            if depth < 0:
                raise NotAddresses(text)
        else:
            yield part[0]
    if depth:
        raise NotAddresses(text)


def _element(words: list[str], angle: str | None, text: str) -> list[str]:
    if angle is not None:
        if not angle or any(word != " " for word in words):
            raise NotAddresses(text)
        return [angle.rpartition(":")[2] if angle.startswith("@") else angle]  # a source route is ignored (RFC 5321 C)
    while words and words[-1] == " ":
        words.pop()
    if " " in words:
        raise NotAddresses(text)
    return ["".join(words)] if words else []
