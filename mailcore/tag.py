"""The tag of a message: the value of one header field, named in the settings, by which reports group mail.

A campaign, a customer, an application: reports count by it, so its length and its characters are bounded. A leaf: receiver and
control use it.
"""

from __future__ import annotations

import re

__all__ = ["TAG_CHARACTERS", "pattern_of", "tag_of"]

TAG_CHARACTERS = 128  # it is in each DELIVERY record and each event of the message

_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")


def tag_of(value: bytes) -> str:
    """Returns the tag that a field's value gives: without blanks around it and control characters, shortened."""
    return _CONTROL.sub(" ", value.decode("utf-8", "replace")).strip()[:TAG_CHARACTERS]


def pattern_of(name: str) -> re.Pattern[bytes] | None:
    """Returns the pattern that finds the field's value, also folded, as group 1 in a header section; None without a name."""
    if not name:
        return None
    return re.compile(rb"(?:\A|\r\n)%b[ \t]*:[ \t]*((?:\r\n[ \t]+)?[^\r\n]*)" % re.escape(name.encode()), re.IGNORECASE)
