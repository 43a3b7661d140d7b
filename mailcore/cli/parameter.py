"""Parameters on the command line: parsing and formatting of values and of their end."""

from __future__ import annotations

import argparse
import re

from mailcore.bounds import number_from_text
from mailcore.manager_answers import InForce, ValueSet
from mailcore.terminal.command import UsageError, duration, moment
from mailcore.terminal.output import plain
from mailcore.terminal.times import TIME_FORMS, shown

__all__ = ["DEFAULT", "VALUE_HELP", "add_end", "described", "end_of", "origin_of", "value_of", "value_shown"]

DEFAULT = "default"  # as a value: remove the override
VALUE_HELP = (
    "number, percentage of the current value (50%%), yes, no, feedback such as 1/concurrency, "
    f"or {DEFAULT} (removes the override)"
)

_TEXT = re.compile(r"[\x21-\x7e]{1,100}")


def add_end(parser: argparse.ArgumentParser) -> None:
    """Adds --for and --until. Without them, a value stays until it is removed."""
    end = parser.add_mutually_exclusive_group()
    end.add_argument(
        "--for",
        dest="for_s",
        type=duration,
        metavar="DURATION",
        help="remove the override after 90s, 15m, 2h, 1d12h, 2w",
    )
    end.add_argument("--until", type=moment, metavar="TIME", help=f"remove the override at TIME: {TIME_FORMS}")


def end_of(arguments: argparse.Namespace) -> dict[str, float]:
    """Returns the end as arguments of a request; empty without one. Raises UsageError for ``default`` with an end."""
    if getattr(arguments, "value", None) == DEFAULT and (arguments.for_s, arguments.until) != (None, None):
        raise UsageError(f"{DEFAULT!r} removes a value and cannot have an end; omit --for and --until, or give a value")
    if arguments.for_s is not None:
        return {"for_s": arguments.for_s}
    return {"until": arguments.until} if arguments.until is not None else {}


def value_of(text: str) -> float | int | str | None:
    """Parses a value for the control socket; None for ``default``. Raises UsageError if it is not a number or a word."""
    if text == DEFAULT:
        return None
    value = number_from_text(text)
    if value is None and not _TEXT.fullmatch(text):
        raise UsageError(f"invalid value {text!r}; allowed: a number, a word, or {DEFAULT} (removes the override)")
    return text if value is None else value


def described(scope: str, parameter: str, answer: ValueSet, text: str) -> str:
    """Formats the new value as one line; the answer holds the result of a percentage."""
    end = f" until {shown(answer.until)}" if answer.until is not None else ""
    value = plain(text) if answer.value is None else value_shown(answer.value)
    return f"{plain(scope)}: {plain(parameter)} = {value}{end}"


def value_shown(value: object) -> str:
    """Formats a value: yes or no, or the shortest form of a number."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else plain(str(value))


def origin_of(known: InForce) -> str:
    """Formats where a value comes from: its layer, its scope if that differs, and its end."""
    parts = [known.origin]
    if known.scope:
        parts.append(f"of {plain(known.scope)}")
    if known.until is not None:
        parts.append(f"until {shown(known.until)}")
    return " ".join(parts)
