"""``waypost doctor``: checks this host and Waypost; prints each finding when it comes, with a remedy (docs/doctor.md).

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
from mailcore.doctor.checks import ALONE, CHECKS, in_order, run_checks
from mailcore.doctor.finding import Finding, State, worst
from mailcore.doctor.host import Host
from mailcore.terminal.command import add_common, config_path
from mailcore.terminal.output import cut, plain, print_json, say, width

__all__ = ["configure"]

STATUS = {State.GOOD: 0, State.WARN: 1, State.BAD: 2}
STATES = max(len(each.value) for each in State)
SUBJECTS = max(len(check.subject) for check in (*ALONE, *CHECKS))
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
    if arguments.json:
        findings = in_order(run_checks(host))
        state = worst(findings)
        print_json({"state": state.value, "at": host.wall(), "config": str(path), "findings": findings})
        return STATUS[state]
    findings = []
    columns = width(sys.stdout)
    for finding in run_checks(host):
        findings.append(finding)
        for line in lines(finding, columns):
            say(line)
        sys.stdout.flush()  # a check that hangs must not hide the finding that explains it
    for line in summary(findings, columns):
        say(line)
    return STATUS[worst(findings)]


def _settings(path: Path) -> Settings:
    """Loads the settings; a wrong certificate becomes a finding instead. Raises ConfigError."""
    try:
        return load(path)
    except ConfigError as wrong:
        try:
            return load(path, look_at_certificate=False)
        except ConfigError:
            raise wrong from None  # it lists all errors


def lines(finding: Finding, columns: int) -> Iterator[str]:
    """Yields the lines of one finding: state, subject, facts, and the remedy below."""
    indent = " " * (STATES + SUBJECTS + 4)
    found = plain(finding.found)
    text = f"{plain(finding.what)}: {found if len(found) <= FOUND_MAX else found[:FOUND_MAX] + '…'}"
    begin = f"{finding.state.value:<{STATES}}  {plain(finding.subject):<{SUBJECTS}}  "
    yield from _wrapped(text, begin, indent, columns)
    if finding.remedy:
        yield from _wrapped(plain(finding.remedy), f"{indent}Remedy: ", f"{indent}        ", columns)


def summary(findings: Sequence[Finding], columns: int) -> Iterator[str]:
    """Yields the end of the report: what needs action, worst first, and the number of findings by state."""
    counted = Counter(each.state for each in findings)
    yield ""
    needed = [each for state in STATUS if state is not State.GOOD for each in findings if each.state is state]
    for each in sorted(needed, key=lambda each: list(State).index(each.state)):
        line = f"{each.state.value:<{STATES}}  {plain(each.subject):<{SUBJECTS}}  {plain(each.what)}"
        yield cut(line, max(columns, COLUMNS_MIN))
    if needed:
        yield ""
    if counted[State.NOT_KNOWN]:
        yield from _wrapped(NOT_KNOWN, "", "", columns)
    yield ", ".join(f"{counted[state]} {state.value}" for state in State if counted[state])


def _wrapped(text: str, begin: str, indent: str, columns: int) -> list[str]:
    room = max(columns, len(indent) + COLUMNS_MIN)
    # Paths and commands are not split, so that they can be copied.
    return textwrap.wrap(
        text, room, initial_indent=begin, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    ) or [begin]
