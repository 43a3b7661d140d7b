"""Divides a limit fairly: no shard gets more than it wants, or less than another that wants as much."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["divided"]


def divided(limit: int, wanted: Mapping[str, int], turn: int = 0) -> dict[str, int]:
    """Returns the share of each; together at most ``limit``.

    With a limit below the number of those who want something, some get nothing in this ``turn``, and others in the next. Else
    the turn changes nothing: to move what does not divide evenly would leave it unused for a moment each time.
    """
    names = sorted(name for name, number in wanted.items() if number > 0)
    if 0 < limit < len(names):
        start = turn * limit % len(names)
        names = names[start:] + names[:start]
    left, remaining = limit, len(names)
    shares = dict.fromkeys(wanted, 0)
    for name in sorted(names, key=lambda name: wanted[name]):  # the smallest wish first: its rest is for the others
        shares[name] = min(wanted[name], left // remaining)
        left -= shares[name]
        remaining -= 1
    for name in names:
        if left > 0 and shares[name] < wanted[name]:
            shares[name] += 1
            left -= 1
    return shares
