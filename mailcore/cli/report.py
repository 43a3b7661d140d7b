"""``waypost report``: makes the report of a day by running the portal's own command."""

from __future__ import annotations

import argparse
import datetime
import os
import subprocess
import sys

from mailcore.terminal.command import NOT_DONE, add_common, config_path, settings_of
from mailcore.terminal.output import complain

__all__ = ["configure"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command to ``parser``."""
    parser.add_argument("day", nargs="?", type=_day, metavar="DAY", help="date such as 2026-11-20; default: yesterday")
    add_common(parser)
    parser.set_defaults(run=_run)


def _day(text: str) -> datetime.date:
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a date; expected YYYY-MM-DD, such as 2026-11-20") from None


def _run(arguments: argparse.Namespace) -> int:
    settings_of(arguments)  # reports errors of the configuration as every command does
    command = [sys.executable, "-m", "django", "report", *([str(arguments.day)] if arguments.day else [])]
    given = {"WAYPOST_CONFIG": str(config_path(arguments).absolute()), "DJANGO_SETTINGS_MODULE": "appliance.settings"}
    with subprocess.Popen(  # noqa: S603  # our own command line
        [*command, *(["--json"] if arguments.json else [])], env={**os.environ, **given}
    ) as child:  # same terminal: Ctrl-C reaches both
        status = child.wait()
    if status < 0:
        complain(f"report: the report process was killed by signal {-status}")
        return NOT_DONE
    return status
