"""The options that say which messages: the filters of list, purge and every change with --all-matching."""

from __future__ import annotations

import argparse
from typing import Any

from mailcore.terminal.command import duration

__all__ = ["add_filters", "filter_of"]

_TEXTS = {
    "sender": "address, or pattern with * and ?; <> is the empty one",
    "recipient": "address or pattern: one recipient at least",
    "destination": "transport:next hop, or pattern",
    "lane": "lane or pattern: incoming.0, retry.*, hold, deleted",
    "reason": "part of the last reply",
}


def add_filters(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("which messages (all that is given must hold; case does not matter)")
    for name, what in _TEXTS.items():
        group.add_argument(f"--{name}", default="", metavar=name.upper(), help=what)
    group.add_argument("--older-than", type=duration, default=0.0, metavar="TIME", help="arrived before: 90s, 2h, 1d")
    group.add_argument("--younger-than", type=duration, default=0.0, metavar="TIME", help="arrived since: 90s, 2h, 1d")
    group.add_argument("--larger-than", type=int, default=0, metavar="BYTES")
    group.add_argument("--smaller-than", type=int, default=0, metavar="BYTES")


def filter_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """The filter as control wants it; {} when nothing was given."""
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
