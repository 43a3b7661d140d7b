"""``waypost identity``: shows which directories carry the identity of this Waypost, and adopts one whose disk is lost."""

from __future__ import annotations

import argparse
import contextlib
import os
import pwd
import secrets
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from mailcore.config.settings import Settings
from mailcore.log.disk import Disk, Locked
from mailcore.maillog.maillog import MailLog
from mailcore.queue.adoption import adopt
from mailcore.queue.identity import LOCK, NAME, IdentityError, described, look
from mailcore.terminal.command import DONE, NOT_DONE, UsageError, add_common, settings_of
from mailcore.terminal.output import complain, complain_fault, plain, print_json, say, whole_table, width

__all__ = ["configure"]

NAMES = ("home", "queue", "spool", "events")
ADOPT_HELP = "make a directory one of this home although it is empty or was another's; for a disk that is lost"


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command to ``parser``."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    showing = commands.add_parser("show", help="show the identity of each directory, and what is wrong")
    add_common(showing)
    showing.set_defaults(run=_show)
    adopting = commands.add_parser("adopt", help=ADOPT_HELP, description=f"{ADOPT_HELP[0].upper()}{ADOPT_HELP[1:]}.")
    adopting.add_argument("name", metavar="NAME", choices=NAMES, help=", ".join(NAMES))
    adopting.add_argument("--yes", action="store_true", help="skip the confirmation prompt")
    add_common(adopting)
    adopting.set_defaults(run=_adopt)


def _directories(settings: Settings) -> dict[str, str]:
    return {name: str(path) for name, path in settings.identified_directories.items()}


def _show(arguments: argparse.Namespace) -> int:
    """Ends with NOT_DONE if a directory does not carry the identity."""
    looks = look(Disk(), _directories(settings_of(arguments)))
    if arguments.json:
        print_json(
            {
                each.name: {
                    "directory": each.directory,
                    "identity": each.identity.identity if each.identity is not None else None,
                    "why_not": each.why_not,
                }
                for each in looks
            }
        )
    else:
        rows = [
            (each.name, each.directory, each.identity.identity if each.identity is not None else "-") for each in looks
        ]
        for line in whole_table(("NAME", "DIRECTORY", "IDENTITY"), rows, width(sys.stdout)):
            say(line)
        for each in looks:
            if each.why_not:
                complain(each.why_not)
    return NOT_DONE if any(each.why_not for each in looks) else DONE


def _adopt(arguments: argparse.Namespace) -> int:
    settings = settings_of(arguments)
    directories = _directories(settings)
    name = arguments.name
    if name not in directories:
        raise UsageError(f"identity adopt: {name} is not in use: [export] enabled is false")
    if not arguments.yes and not _asked(name, directories[name], arguments.json):
        return NOT_DONE
    try:
        with _home_locked(settings.home):
            own = adopt(Disk(), name, directories, time.time(), lambda: secrets.token_hex(16))
            _give_to_owner(settings.home, Path(directories[name]))
            if name == "home":
                _remove_witness(settings)
            _log(settings, name, directories[name])
    except IdentityError as error:
        complain_fault(error.fault)
        return NOT_DONE
    if arguments.json:
        print_json({"name": name, "directory": directories[name], "identity": own.identity})
    else:
        say(f"{plain(directories[name])} is the {name} directory of {plain(described(own))}")
    return DONE


def _asked(name: str, directory: str, json: bool) -> bool:
    """Asks for confirmation. Raises UsageError if stdin is not a terminal."""
    question = f"make {plain(directory)}, as it is now, the {name} directory of this Waypost"
    if not sys.stdin.isatty() or json:
        raise UsageError(f"this would {question}; nothing was changed. Confirm with --yes")
    return input(f"{question}? [y/N] ").strip().lower() in ("y", "yes")


@contextlib.contextmanager
def _home_locked(home: Path) -> Iterator[None]:
    """Holds the lock of the home. Raises IdentityError if Waypost runs on it."""
    disk = Disk()
    disk.make_directory(str(home))
    path = home / "lock"
    was_there = path.exists()
    try:
        lock = disk.lock(str(path))
    except Locked:
        raise IdentityError(f"Waypost runs on {home}; stop it first") from None
    try:
        yield
    finally:
        if not was_there:  # it would be root's
            path.unlink()
        disk.close(lock)


def _give_to_owner(home: Path, directory: Path) -> None:
    """Gives what root has created to the owner of the home."""
    if os.geteuid() != 0:
        return
    owner = home.stat()
    for path in (home / NAME, directory, directory / NAME, directory / LOCK):
        if path.exists() and path.stat().st_uid == 0:
            shutil.chown(path, owner.st_uid, owner.st_gid)


def _remove_witness(settings: Settings) -> None:
    """Removes the copy in the log directory, which would say that this home is missing."""
    if not settings.log_directory.is_relative_to(settings.home):
        (settings.log_directory / NAME).unlink(missing_ok=True)


def _log(settings: Settings, name: str, directory: str) -> None:
    """Writes the change into the mail log, if there is one: it would be root's."""
    if not (settings.log_directory / "mail.log").exists():
        return
    log = MailLog(settings.log_directory)
    log.adopted(name, directory, _who())
    log.close()


def _who() -> str:
    for variable in ("SUDO_USER", "LOGNAME"):
        if os.environ.get(variable):
            return os.environ[variable]
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
