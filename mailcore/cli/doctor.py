"""``waypost doctor``: checks this host and Waypost; findings worst first, each with a remedy (docs/doctor.md).

Exit status: 0 good, 1 a warning, 2 a bad finding. Findings that are not known do not count.
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
from mailcore.doctor.checks import run_checks
from mailcore.doctor.finding import Finding, State, worst
from mailcore.doctor.host import Host
from mailcore.terminal.command import add_common, config_path
from mailcore.terminal.output import plain, print_json, say, width

__all__ = ["configure"]

STATUS = {State.GOOD: 0, State.WARN: 1, State.BAD: 2}
COLUMNS_MIN = 40  # text is never wrapped narrower than this
FOUND_MAX = 600  # characters; --json prints all
NOT_KNOWN = "not known: could not be checked (no answer, or no permission); does not change the exit status."


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command to ``parser``."""
    add_common(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    path = config_path(arguments)
    host = Host.of(_settings(path), path)
    findings = run_checks(host)
    state = worst(findings)
    if arguments.json:
        print_json({"state": state.value, "at": host.wall(), "config": str(path), "findings": findings})
    else:
        for line in lines(findings, width(sys.stdout)):
            say(line)
    return STATUS[state]


def _settings(path: Path) -> Settings:
    """Loads the settings; a wrong certificate becomes a finding instead. Raises ConfigError."""
    try:
        return load(path)
    except ConfigError as wrong:
        try:
            return load(path, look_at_certificate=False)
        except ConfigError:
            raise wrong from None  # it lists all errors


def lines(findings: Sequence[Finding], columns: int) -> Iterator[str]:
    """Yields the lines of the report: state, subject, finding, and the remedy below; worst first, then in order of checks."""
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
    if counted[State.NOT_KNOWN]:
        yield from _wrapped(NOT_KNOWN, "", "", columns)
    yield ", ".join(f"{counted[state]} {state.value}" for state in order if counted[state])


def _wrapped(text: str, begin: str, indent: str, columns: int) -> list[str]:
    room = max(columns, len(indent) + COLUMNS_MIN)
    # Paths and commands are not split, so that they can be copied.
    return textwrap.wrap(
        text, room, initial_indent=begin, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    ) or [begin]
