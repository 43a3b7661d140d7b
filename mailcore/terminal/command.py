"""Shared by all commands: common options, settings, the control client, and exit statuses.

Exit statuses (docs/cli.md): 0 done; 1 failed, or done in part; 2 wrong usage or configuration; 3 Waypost is not running or
does not answer; 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import pwd
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from mailcore.config.load import ConfigError, load
from mailcore.config.settings import Settings
from mailcore.control.client import ControlClient
from mailcore.control.protocol.operation import QUEUE_ID_PATTERN
from mailcore.faults import Code, Fault, FaultError
from mailcore.terminal.nearest import did_you_mean
from mailcore.terminal.output import plain
from mailcore.terminal.times import TimeError, duration_of, time_of

__all__ = [
    "DONE",
    "EMPTY",
    "INSTALLED",
    "INTERRUPTED",
    "NOT_DONE",
    "NOT_RUNNING",
    "WORDS",
    "WRONG_USE",
    "Parser",
    "UsageError",
    "add_common",
    "config_path",
    "control_client",
    "duration",
    "fault_of",
    "file_name",
    "first_configuration",
    "is_remote",
    "moment",
    "not_empty",
    "queue_id",
    "settings_of",
    "who",
]

DONE = 0
NOT_DONE = 1
WRONG_USE = 2  # as argparse
NOT_RUNNING = 3
INTERRUPTED = 130

WORDS = "words"  # attribute of parsed arguments: the subcommand, such as "queue list"
EMPTY = "an empty value is not allowed"
DOCUMENT = "print one JSON document instead of text"
LINES = "print one JSON object a line; the last line says how the list ended"
BESIDE = Path("waypost.toml")  # in the current directory
INSTALLED = Path("/etc/waypost/waypost.toml")


class UsageError(FaultError):
    """The command line is wrong. The message is one line for the operator; ``argument`` is the wrong one, if it has a name."""

    default = Code.INVALID


class Parser(argparse.ArgumentParser):
    """An argument parser that raises UsageError, and suggests the nearest commands and options for mistyped ones."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        # "-50%" is a value, as "-50" is, and not an option, so that the reader of the value can report what is allowed.
        self._negative_number_matcher = re.compile(r"-\d+(\.\d*)?%?$|-\.\d+%?$")

    def add_subparsers(self, **more: Any) -> Any:
        """Adds subcommands; each reports its own unknown arguments, because only it knows its options."""
        return super().add_subparsers(**{"parser_class": _Subcommand, **more})

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parses all arguments. Raises UsageError for unknown ones."""
        arguments, unknown = self.parse_known_args(args, namespace)
        self.refuse(unknown)
        return arguments

    def refuse(self, unknown: Sequence[str]) -> None:
        """Raises UsageError if there are unknown arguments; an option gets suggestions."""
        if not unknown:
            return
        first = unknown[0]
        if not first.startswith("-"):
            self.error(f"unexpected argument {first!r}")
        option = first.partition("=")[0]
        self.error(f"unknown option {option!r}{did_you_mean(option, self._option_string_actions)}")

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        # Names of files are any bytes. All other text is printed, stored or sent, and that needs UTF-8.
        is_file = action.type in (Path, file_name)
        of_subcommand = isinstance(action, argparse._SubParsersAction)  # its own parser checks them
        if not is_file and not of_subcommand and not _is_utf8(arg_string):
            raise argparse.ArgumentError(action, f"'{plain(arg_string)}' is not UTF-8")
        if is_file and not arg_string and action.nargs != argparse.REMAINDER:  # Path("") is the working directory
            raise argparse.ArgumentError(action, EMPTY)
        return super()._get_value(action, arg_string)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            see = f"See {self.prog} --help."
            self.error(f"unknown command {value!r}{did_you_mean(str(value), action.choices) or '.'} {see}")
        super()._check_value(action, value)

    def error(self, message: str) -> NoReturn:
        """Raises UsageError with the name of the command."""
        wrong = sys.exception()  # argparse catches an ArgumentError and calls this with its text
        argument = (wrong.argument_name or "") if isinstance(wrong, argparse.ArgumentError) else ""
        of_command = self.prog.removeprefix("waypost").lstrip()
        raise UsageError(f"{of_command}: {message}" if of_command else message, argument=argument)


class _Subcommand(Parser):
    """The parser of a subcommand: refuses unknown arguments itself."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        arguments, unknown = super().parse_known_args(args, namespace)
        self.refuse(unknown)
        if not hasattr(arguments, WORDS):  # the innermost one has set it
            setattr(arguments, WORDS, self.prog.removeprefix("waypost "))
        return arguments, unknown


def add_common(parser: argparse.ArgumentParser, *, document: bool = True, json_help: str = "") -> None:
    """Adds --config and --json. Both may also precede the command, so they have no default here.

    ``document``: --json prints one document; False for a list, which is one object a line. ``json_help``: what else it prints.
    """
    parser.add_argument(
        "--config",
        metavar="FILE",
        type=Path,
        default=argparse.SUPPRESS,
        help="configuration file; default: ./waypost.toml, otherwise /etc/waypost/waypost.toml",
    )
    parser.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help=json_help or (DOCUMENT if document else LINES)
    )


def file_name(text: str) -> str:
    """Returns the name of a file unchanged, also one that is not UTF-8; an argparse type."""
    return text


def not_empty(text: str) -> str:
    """Reads any text but an empty one; an argparse type."""
    if not text.strip():
        raise argparse.ArgumentTypeError(EMPTY)
    return text


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # a byte that Python could not decode
        return False
    return True


def fault_of(error: OSError, path: str = "") -> Fault:
    """Returns what a program reads of an error of the system; ``path`` is named if the error names none."""
    name = error.filename or path
    text = f"{name}: {error.strerror or error}" if name else str(error)
    return Fault(Code.NOT_FOUND if isinstance(error, FileNotFoundError) else Code.INTERNAL, text)


def config_path(arguments: argparse.Namespace) -> Path:
    """Returns the file given, or the first of the usual ones that exists. Raises ConfigError."""
    given: Path | None = arguments.config
    found = given or first_configuration()
    if found is None:
        raise ConfigError(
            f"no configuration file: neither {BESIDE} nor {INSTALLED} exists; give one with --config FILE"
        )
    return found


def first_configuration() -> Path | None:
    """Returns ./waypost.toml, otherwise the installed file, otherwise None. Raises ConfigError.

    A file of another user could name any home and any program, so the current directory counts only if the directory and the
    file belong to the caller, to the user who called sudo, or to root.
    """
    if not os.path.lexists(BESIDE):
        return INSTALLED if INSTALLED.exists() else None
    trusted = {0, os.geteuid()}
    if os.geteuid() == 0 and os.environ.get("SUDO_UID", "").isdecimal():
        trusted.add(int(os.environ["SUDO_UID"]))
    for path, follows in ((Path(), True), (BESIDE, False), (BESIDE, True)):
        try:
            owner = os.stat(path, follow_symlinks=follows).st_uid
        except OSError as error:
            raise ConfigError(
                f"{path.absolute()}: {error.strerror or error}; give the file with --config FILE"
            ) from None
        if owner not in trusted:
            text = f"{path.absolute()} belongs to another user (UID {owner}) and is not read; give the file with --config FILE"
            raise ConfigError(text)
    return BESIDE


def settings_of(arguments: argparse.Namespace) -> Settings:
    """Loads the settings that the options name. Raises ConfigError, UsageError with --remote: they are on the other host."""
    if is_remote(arguments):
        raise UsageError("this needs files of the other host; run it there")
    return load(config_path(arguments), look_at_certificate=False, managed_may_be_hidden=True)


def control_client(arguments: argparse.Namespace) -> ControlClient:
    """Returns a client that is not connected yet: of this host's Waypost and other nodes, with --here of it alone, or with
    --remote of another. Raises ConfigError."""
    remote = getattr(arguments, "remote", None)
    if remote is not None:
        client: ControlClient = remote()
        return client
    here = bool(getattr(arguments, "here", False))
    return ControlClient(settings_of(arguments).run_directory / "control.sock", who=who(), here=here)


def is_remote(arguments: argparse.Namespace) -> bool:
    """Returns whether the command asks a Waypost on another host, by --remote."""
    return getattr(arguments, "remote", None) is not None


def moment(text: str) -> float:
    """Parses a time to seconds since 1970; an argparse type."""
    try:
        return time_of(text, time.time())
    except TimeError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def duration(text: str) -> float:
    """Parses a duration to seconds; an argparse type."""
    try:
        return duration_of(text)
    except TimeError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def queue_id(text: str) -> str:
    """Returns a queue ID in upper case; an argparse type."""
    if not re.fullmatch(QUEUE_ID_PATTERN, text.upper()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a queue ID")
    return text.upper()


def who() -> str:
    """Returns the name of the calling user; under sudo, of the user who called sudo."""
    for name in ("SUDO_USER", "LOGNAME"):
        if os.environ.get(name):
            return plain(os.environ[name])
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return ""
