"""The actions of header checks, in the words of header_checks(5). Pure."""

from __future__ import annotations

import enum
from typing import NamedTuple

__all__ = ["Action", "Deed"]


class Deed(enum.StrEnum):
    """The names of actions on a field, or on its message."""

    BCC = "bcc"
    DISCARD = "discard"
    DUNNO = "dunno"
    HOLD = "hold"
    IGNORE = "ignore"
    INFO = "info"
    PASS = "pass"  # noqa: S105  no secret
    PREPEND = "prepend"
    REDIRECT = "redirect"
    REJECT = "reject"
    REPLACE = "replace"
    STRIP = "strip"
    WARN = "warn"


class Action(NamedTuple):
    """The action on a field that matches. ``place``: file and line."""

    deed: Deed
    text: str
    place: str
