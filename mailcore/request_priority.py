"""The priority that a client asks for (MT-PRIORITY, RFC 6710): -9 to 9, 0 for all other mail.

Pure.
"""

from __future__ import annotations

import re

from mailcore.envelope import Options

__all__ = ["MT_PRIORITY", "parse_priority", "priority_of"]

MT_PRIORITY = "MT-PRIORITY"

_priority = re.compile(r"-?[1-9]|0").fullmatch  # RFC 6710 3


def parse_priority(value: str) -> int | None:
    """Returns the priority; None if the value is wrong."""
    return int(value) if _priority(value) else None


def priority_of(options: Options) -> int:
    """Returns the priority of a message; 0 without one. ``options``: of the message."""
    for name, value in options:
        if name == MT_PRIORITY:
            return int(value)
    return 0
