"""What every command has in common: its options, the settings, the way to the control socket, and how it ends.

Exit statuses (docs/cli.md): 0 done; 1 not done, or not all of it; 2 wrong usage or configuration; 3 the appliance is not
running or does not answer; 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import pwd
import re
import time
from pathlib import Path
from typing import Any, NoReturn

from mailcore.config.load import ConfigError, load
from mailcore.config.settings import Settings
from mailcore.control.client import ControlClient
from mailcore.terminal.times import TimeError, duration_of, time_of

__all__ = [
    "CONFIGURATIONS",
    "DONE",
    "INTERRUPTED",
    "NOT_DONE",
    "NOT_RUNNING",
    "WRONG_USE",
    "Parser",
    "UsageError",
    "add_common",
    "config_path",
    "control_client",
    "duration",
    "moment",
    "settings_of",
]

DONE = 0
NOT_DONE = 1
WRONG_USE = 2  # what argparse uses, too
NOT_RUNNING = 3
INTERRUPTED = 130

CONFIGURATIONS = (Path("waypost.toml"), Path("/etc/waypost/waypost.toml"))


class UsageError(Exception):
    """The command line asks for what cannot be; one line for a person."""


class Parser(argparse.ArgumentParser):
    """argparse with our way of complaining: one line."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        # "-50%" is a wrong value, as "-50" is, and no option: so whoever reads the value says what is allowed.
        self._negative_number_matcher = re.compile(r"-\d+(\.\d*)?%?$|-\.\d+%?$")

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog.removeprefix('waypost ')}: {message}")


def add_common(parser: argparse.ArgumentParser) -> None:
    """--config and --json; they may also stand in front of the command, so nothing is set here when they are not given."""
    parser.add_argument(
        "--config",
        metavar="FILE",
        type=Path,
        default=argparse.SUPPRESS,
        help="default: ./waypost.toml, else /etc/waypost/waypost.toml",
    )
    parser.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="one JSON document instead of text"
    )


def config_path(arguments: argparse.Namespace) -> Path:
    """The file given, or the first of the usual ones that is there. Raises ConfigError."""
    given: Path | None = arguments.config
    if given is not None:
        return given
    for path in CONFIGURATIONS:
        if path.exists():
            return path
    raise ConfigError(f"there is no {' and no '.join(map(str, CONFIGURATIONS))}; give one with --config FILE")


def settings_of(arguments: argparse.Namespace) -> Settings:
    """Raises ConfigError."""
    return load(config_path(arguments))


def control_client(arguments: argparse.Namespace) -> ControlClient:
    """Nothing is connected yet. Raises ConfigError."""
    return ControlClient(settings_of(arguments).run_directory / "control.sock", who=_who())


def moment(text: str) -> float:
    """An argparse type: a time, as wall-clock seconds."""
    try:
        return time_of(text, time.time())
    except TimeError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def duration(text: str) -> float:
    """An argparse type: a duration in seconds."""
    try:
        return duration_of(text)
    except TimeError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _who() -> str:
    """Who is at the keyboard: behind sudo it is still the person."""
    for name in ("SUDO_USER", "LOGNAME"):
        if os.environ.get(name):
            return os.environ[name]
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return ""
