"""Parameters of MAIL that change how the message is treated: settled when MAIL comes.

Pure.

Keeps law: by-its-time (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, cast

from mailcore.config.esmtp import Esmtp
from mailcore.envelope import Options
from mailcore.esmtp import Value
from mailcore.queue.aside import SLACK_S
from mailcore.request_priority import MT_PRIORITY
from mailcore.timed_request import BY, HOLDFOR, HOLDUNTIL, stored_by

__all__ = ["Settled", "settle"]

_BOTH = b"501 5.5.4 Error: HOLDFOR and HOLDUNTIL exclude each other"
_TOO_LONG = b"501 5.5.4 Error: the message would be held too long"
_TOO_SOON = b"555 5.5.4 Error: the time of BY is too short"
_RETURNED_FIRST = b"501 5.5.4 Error: the time of BY ends before the message is released"


class Settled(NamedTuple):
    """Holds what follows for the envelope."""

    not_before: float  # wall clock; 0.0: at once
    options: Options
    priority: int = 0


def settle(requests: Mapping[str, Value], limits: Esmtp, now: float, priority_max: int | None) -> Settled | bytes:
    """Returns what follows from the parameters, or the reply that refuses them. ``now``: wall clock, seconds.

    ``priority_max``: the highest priority that the client may give its mail; None: all of its mail has priority 0 (RFC 6710 5).
    """
    not_before = 0.0
    options: Options = ()
    if HOLDFOR in requests and HOLDUNTIL in requests:
        return _BOTH
    if HOLDFOR in requests:
        not_before = now + int(requests[HOLDFOR])
    elif HOLDUNTIL in requests:
        not_before = float(requests[HOLDUNTIL])
    if not_before > now + limits.hold_max_s:
        return _TOO_LONG
    if BY in requests:
        seconds, mode = cast(str, requests[BY]).split(";")
        if mode[0] == "R":
            if int(seconds) < limits.deliver_by_min_s:
                return _TOO_SOON
            if now + int(seconds) <= not_before:
                return _RETURNED_FIRST
        options = ((BY, stored_by(int(seconds), mode, now)),)
    priority = 0 if priority_max is None else min(int(requests.get(MT_PRIORITY, 0)), priority_max)
    if priority:
        options += ((MT_PRIORITY, str(priority)),)
    # RFC 4865: not before. The queue may try mail SLACK_S before its time.
    return Settled(not_before + SLACK_S if not_before > now else 0.0, options, priority)
