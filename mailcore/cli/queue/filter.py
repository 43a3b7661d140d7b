"""Filter options of list, search, purge and every change with --all-matching."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from mailcore.control.protocol.operation import refusal
from mailcore.terminal.command import duration

__all__ = ["PATTERN_HELP", "add_filters", "condition", "filter_of"]

_ADDRESS = 'address or pattern: "*" and "?" match any characters, "\\*", "\\?" and "\\\\" themselves'
_TEXTS = {
    "sender": f'{_ADDRESS}; "<>" is the empty sender',
    "recipient": "address or pattern that at least one recipient matches",
    "destination": "TRANSPORT:NEXTHOP or pattern",
    "lane": "lane or pattern, such as incoming.0, retry.*, hold, deleted",
    "reason": "text that the last reply contains",
}
PATTERN_HELP = (
    "An empty value is an error. Upper and lower case of A to Z are equal; of a domain, both forms (Unicode and xn--) are. "
    'A "*" alone matches every value, the empty sender included; "*@*" every address.'
)


def condition(field: str, read: Callable[[str], Any] = str) -> Callable[[str], Any]:
    """Returns an argparse type that reads one condition of a filter or a search, and refuses what the core would refuse."""

    def checked(text: str) -> Any:
        value = read(text) if text.strip() else text  # which has the same words for every condition
        if error := refusal(field, value):
            raise argparse.ArgumentTypeError(error)
        return value

    checked.__name__ = read.__name__  # argparse names it in its own errors: invalid int value
    return checked


def add_filters(parser: argparse.ArgumentParser) -> None:
    """Adds the filter options to ``parser``."""
    group = parser.add_argument_group("filters (a message must match all)", PATTERN_HELP)
    for name, summary in _TEXTS.items():
        group.add_argument(f"--{name}", type=condition(name), metavar=name.upper(), help=summary)
    for name, field, summary in (
        ("older-than", "older_than_s", "arrived more than AGE ago: 90s, 2h, 1d"),
        ("younger-than", "younger_than_s", "arrived less than AGE ago: 90s, 2h, 1d"),
    ):
        group.add_argument(f"--{name}", dest=field, type=condition(field, duration), metavar="AGE", help=summary)
    for name, field, summary in (
        ("larger-than", "larger_than_bytes", "larger than BYTES"),
        ("smaller-than", "smaller_than_bytes", "smaller than BYTES"),
    ):
        group.add_argument(f"--{name}", dest=field, type=condition(field, int), metavar="BYTES", help=summary)


def filter_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns the filter for the control socket; {} without filter options."""
    names = (*_TEXTS, "older_than_s", "younger_than_s", "larger_than_bytes", "smaller_than_bytes")
    return {name: value for name in names if (value := getattr(arguments, name)) is not None}
