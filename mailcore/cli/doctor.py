"""``waypost doctor``: what a support engineer would look at, worst first, each with a remedy (docs/doctor.md).

Exit status: 0 all is good, 1 a warning, 2 something is bad. What is not known does not count.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from mailcore.config.load import ConfigError, load
from mailcore.config.settings import Settings
from mailcore.doctor.checks import examine
from mailcore.doctor.finding import Finding, State, worst
from mailcore.doctor.host import Patient
from mailcore.terminal.command import add_common, config_path
from mailcore.terminal.output import plain, print_json, say, width

__all__ = ["configure"]

STATUS = {State.GOOD: 0, State.WARN: 1, State.BAD: 2}
COLUMNS_MIN = 40  # narrower than this is wrapped as if it were this wide
FOUND_MAX = 600  # characters; programs get all of it


def configure(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    path = config_path(arguments)
    patient = Patient.of(_settings(path), path)
    findings = examine(patient)
    state = worst(findings)
    if arguments.json:
        print_json({"state": state.value, "at": patient.wall(), "config": str(path), "findings": findings})
    else:
        for line in lines(findings, width(sys.stdout)):
            say(line)
    return STATUS[state]


def _settings(path: Path) -> Settings:
    """A wrong certificate is a finding, and no reason not to look at the rest. Raises ConfigError."""
    try:
        return load(path)
    except ConfigError as wrong:
        try:
            return load(path, look_at_certificate=False)
        except ConfigError:
            raise wrong from None  # it tells all faults


def lines(findings: Sequence[Finding], columns: int) -> Iterator[str]:
    """A table: state, subject, what was found; a remedy below it. The worst first, otherwise in the order of the checks."""
    order = list(State)
    rows = sorted(findings, key=lambda each: order.index(each.state))
    counted = Counter(each.state for each in rows)
    states = max((len(each.state.value) for each in rows), default=0)
    subjects = max((len(plain(each.subject)) for each in rows), default=0)
    indent = " " * (states + subjects + 4)
    before: State | None = None
    for each in rows:
        if before is not None and each.state is not before:
            yield ""
        before = each.state
        found = plain(each.found)
        text = f"{plain(each.what)}: {found if len(found) <= FOUND_MAX else found[:FOUND_MAX] + '…'}"
        begin = f"{each.state.value:<{states}}  {plain(each.subject):<{subjects}}  "
        yield from _wrapped(text, begin, indent, columns)
        if each.remedy:
            yield from _wrapped(plain(each.remedy), f"{indent}Remedy: ", f"{indent}        ", columns)
    yield ""
    yield ", ".join(f"{counted[state]} {state.value}" for state in order if counted[state])


def _wrapped(text: str, begin: str, indent: str, columns: int) -> list[str]:
    room = max(columns, len(indent) + COLUMNS_MIN)
    # A path or a command is one word, and is copied as one.
    return textwrap.wrap(
        text, room, initial_indent=begin, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    ) or [begin]
