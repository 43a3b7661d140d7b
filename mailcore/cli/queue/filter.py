"""Filter options of list, purge and every change with --all-matching."""

from __future__ import annotations

import argparse
from typing import Any

from mailcore.terminal.command import duration

__all__ = ["add_filters", "filter_of"]

_TEXTS = {
    "sender": "address, or pattern with * and ?; <> is the empty sender",
    "recipient": "address or pattern that at least one recipient matches",
    "destination": "TRANSPORT:NEXTHOP or pattern",
    "lane": "lane or pattern, such as incoming.0, retry.*, hold, deleted",
    "reason": "text that the last reply contains",
}


def add_filters(parser: argparse.ArgumentParser) -> None:
    """Adds the filter options to ``parser``."""
    group = parser.add_argument_group("filters (a message must match all; case-insensitive)")
    for name, summary in _TEXTS.items():
        group.add_argument(f"--{name}", default="", metavar=name.upper(), help=summary)
    group.add_argument(
        "--older-than", type=duration, default=0.0, metavar="AGE", help="arrived more than AGE ago: 90s, 2h, 1d"
    )
    group.add_argument(
        "--younger-than", type=duration, default=0.0, metavar="AGE", help="arrived less than AGE ago: 90s, 2h, 1d"
    )
    group.add_argument("--larger-than", type=int, default=0, metavar="BYTES", help="larger than BYTES")
    group.add_argument("--smaller-than", type=int, default=0, metavar="BYTES", help="smaller than BYTES")


def filter_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns the filter for the control socket; {} without filter options."""
    filter_: dict[str, Any] = {name: getattr(arguments, name) for name in _TEXTS if getattr(arguments, name)}
    if arguments.older_than:
        filter_["older_than_s"] = arguments.older_than
    if arguments.larger_than:
        filter_["larger_than_bytes"] = arguments.larger_than
    if arguments.younger_than:
        filter_["younger_than_s"] = arguments.younger_than
    if arguments.smaller_than:
        filter_["smaller_than_bytes"] = arguments.smaller_than
    return filter_
