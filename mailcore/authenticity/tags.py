"""Lists of tags: the form of signatures, keys and DMARC records (RFC 6376 3.2). Pure."""

from __future__ import annotations

import base64
import binascii
import re

__all__ = ["BadTags", "decoded", "tags_of", "without_value"]

TAGS_MAX = 100
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_BLANKS = re.compile(r"[ \t\r\n]+")


class BadTags(ValueError):
    """A list of tags that breaks the grammar, or has a tag twice."""


def tags_of(text: str) -> dict[str, str]:
    """Returns the values by name, without white space around them. Raises BadTags."""
    found: dict[str, str] = {}
    parts = text.split(";")
    if parts and not parts[-1].strip(" \t\r\n"):
        parts.pop()
    if len(parts) > TAGS_MAX:
        raise BadTags
    for part in parts:
        name, equals, value = part.partition("=")
        name = name.strip(" \t\r\n")
        if not equals or not _NAME.fullmatch(name) or name in found:
            raise BadTags
        found[name] = value.strip(" \t\r\n")
    return found


def decoded(value: str) -> bytes:
    """Returns the bytes of a value in base64, in which white space may stand. Raises BadTags."""
    try:
        return base64.b64decode(_BLANKS.sub("", value), validate=True)
    except (binascii.Error, ValueError):
        raise BadTags from None


def without_value(field: bytes, name: bytes) -> bytes:
    """Returns a field with the value of one tag removed, all else as it is (RFC 6376 3.7)."""
    head, _, value = field.partition(b":")
    parts = value.split(b";")
    for number, part in enumerate(parts):
        before, equals, _ = part.partition(b"=")
        if equals and before.strip(b" \t\r\n") == name:
            parts[number] = before + equals
    return head + b":" + b";".join(parts)
