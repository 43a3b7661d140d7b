"""The times that a client asks for: not before (FUTURERELEASE, RFC 4865), and not after (DELIVERBY, RFC 2852).

The value of BY is kept in the options of the message with the time at which it is over, so that it holds over restarts;
a next hop gets the seconds that are left.

Pure: time is an argument, wall clock, seconds.

Keeps law: by-its-time (docs/laws.md).
"""

from __future__ import annotations

import datetime
import math
import re
from typing import NamedTuple

from mailcore.envelope import Options

__all__ = [
    "BY",
    "HOLDFOR",
    "HOLDUNTIL",
    "DeliverBy",
    "deliver_by",
    "is_too_late",
    "owes_relayed",
    "parse_by",
    "parse_hold_for",
    "parse_hold_until",
    "stored_by",
    "written_by",
]

HOLDFOR, HOLDUNTIL, BY = "HOLDFOR", "HOLDUNTIL", "BY"

_seconds = re.compile(r"[0-9]{1,9}").fullmatch  # RFC 4865 4
_date_time = re.compile(  # RFC 3339 5.6
    r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII
).fullmatch
_by = re.compile(r"([+-]?[0-9]{1,9});([RrNn])([Tt]?)").fullmatch  # RFC 2852 4


class DeliverBy(NamedTuple):
    """Holds what BY asks for."""

    deadline: int  # wall clock
    returns: bool  # mode R: after the deadline the message is returned; mode N: the sender is notified
    traces: bool  # T: the sender wants to hear to which server the message was passed on


def parse_hold_for(value: str) -> int | None:
    """Returns the seconds of HOLDFOR; None if the value is wrong."""
    return int(value) if _seconds(value) else None


def parse_hold_until(value: str) -> float | None:
    """Returns the time of HOLDUNTIL; None if the value is wrong."""
    if not _date_time(value):
        return None
    try:
        return datetime.datetime.fromisoformat(value.upper()).timestamp()
    except (ValueError, OverflowError):  # the 30th of February; a year that no clock has
        return None


def parse_by(value: str) -> tuple[int, str] | None:
    """Returns seconds and mode ("R", "N", "RT" or "NT") of BY; None if the value is wrong: R needs a time to come."""
    found = _by(value)
    if found is None or (found[2] in "Rr" and int(found[1]) <= 0):
        return None
    return int(found[1]), (found[2] + found[3]).upper()


def stored_by(seconds: int, mode: str, now: float) -> str:
    """Returns the value that is kept in the options."""
    return f"{math.ceil(now) + seconds};{mode}"


def deliver_by(options: Options) -> DeliverBy | None:
    """Returns what BY asks for; None without it. ``options``: of the message."""
    for name, value in options:
        if name == BY:
            deadline, _, mode = value.partition(";")
            return DeliverBy(int(deadline), mode[:1] == "R", mode[1:] == "T")
    return None


def written_by(stored: str, now: float) -> str:
    """Returns the value for a next hop: the seconds that are left, and the mode."""
    deadline, _, mode = stored.partition(";")
    return f"{math.floor(int(deadline) - now)};{mode}"


def is_too_late(options: Options, now: float) -> bool:
    """Returns whether the message must not be passed on any more."""
    by = deliver_by(options)
    return by is not None and by.returns and now >= by.deadline


def owes_relayed(options: Options, offered: bool) -> bool:
    """Returns whether the sender must hear that the message was passed on (RFC 2852 4.1.4): it asked for a trace, or the next
    hop does not offer DELIVERBY, so that it will notify of no delay."""
    by = deliver_by(options)
    return by is not None and (by.traces or not (by.returns or offered))
