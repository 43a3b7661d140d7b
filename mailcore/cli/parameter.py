"""A parameter on the command line: how its value and its end are written, read and shown."""

from __future__ import annotations

import argparse
import re
from typing import Any

from mailcore.bounds import number_from_text
from mailcore.terminal.command import UsageError, duration, moment
from mailcore.terminal.output import plain
from mailcore.terminal.times import TIME_FORMS, shown

__all__ = ["DEFAULT", "VALUE_HELP", "add_end", "described", "end_of", "origin_of", "value_of", "value_shown"]

DEFAULT = "default"  # as a value: back to the configured one
VALUE_HELP = f"a number, 50%% of what it is now, yes or no, a feedback like 1/concurrency, or {DEFAULT}: as configured"

_TEXT = re.compile(r"[\x21-\x7e]{1,100}")


def add_end(parser: argparse.ArgumentParser) -> None:
    """--for and --until; a value set with neither holds until it is taken back."""
    end = parser.add_mutually_exclusive_group()
    end.add_argument(
        "--for", dest="for_s", type=duration, metavar="DURATION", help="it ends by itself after 90s, 15m, 2h, 1d12h, 2w"
    )
    end.add_argument("--until", type=moment, metavar="TIME", help=f"it ends by itself then: {TIME_FORMS}")


def end_of(arguments: argparse.Namespace) -> dict[str, float]:
    """As arguments of a request; empty without end. Raises UsageError at a default with an end."""
    if getattr(arguments, "value", None) == DEFAULT and (arguments.for_s, arguments.until) != (None, None):
        raise UsageError(
            f"{DEFAULT} cannot be set for a time; allowed: a value, or {DEFAULT} without --for and --until"
        )
    if arguments.for_s is not None:
        return {"for_s": arguments.for_s}
    return {"until": arguments.until} if arguments.until is not None else {}


def value_of(text: str) -> float | int | str | None:
    """Returns the value for the control socket; None for "default". Raises UsageError if it is not a number or a word."""
    if text == DEFAULT:
        return None
    value = number_from_text(text)
    if value is None and not _TEXT.fullmatch(text):
        raise UsageError(f"{text!r} is no value; allowed: a number, a word, or {DEFAULT}")
    return text if value is None else value


def described(scope: str, parameter: str, answer: dict[str, Any], text: str) -> str:
    """What was done, in one line; the answer knows what became of a percentage."""
    value = answer.get("value")
    end = f" until {shown(answer['until'])}" if answer.get("until") is not None else ""
    return f"{plain(scope)}: {plain(parameter)} = {plain(text) if value is None else value_shown(value)}{end}"


def value_shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else plain(str(value))


def origin_of(known: dict[str, Any]) -> str:
    """Where a value comes from: its layer, its scope when that is another, and when it ends."""
    words = [str(known.get("origin", ""))]
    if known.get("scope"):
        words.append(f"of {plain(str(known['scope']))}")
    if known.get("until") is not None:
        words.append(f"until {shown(known['until'])}")
    return " ".join(words)
