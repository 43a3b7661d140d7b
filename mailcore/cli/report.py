"""``waypost report``: the report of a day, made by hand. The portal's own command does it; this one finds the settings."""

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
    parser.add_argument("day", nargs="?", type=_day, metavar="DAY", help="2026-11-20; default: yesterday")
    add_common(parser)
    parser.set_defaults(run=_run)


def _day(text: str) -> datetime.date:
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no day; allowed: 2026-11-20") from None


def _run(arguments: argparse.Namespace) -> int:
    settings_of(arguments)  # what is wrong in the file is told here, in the words of every command
    command = [sys.executable, "-m", "django", "report", *([str(arguments.day)] if arguments.day else [])]
    given = {"WAYPOST_CONFIG": str(config_path(arguments).absolute()), "DJANGO_SETTINGS_MODULE": "appliance.settings"}
    with subprocess.Popen(  # noqa: S603  # our own command line
        [*command, *(["--json"] if arguments.json else [])], env={**os.environ, **given}
    ) as child:  # at the terminal: Ctrl-C reaches both
        status = child.wait()
    if status < 0:
        complain(f"report: ended by signal {-status}")
        return NOT_DONE
    return status
