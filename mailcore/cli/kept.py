"""``waypost kept``: the files that Waypost keeps itself; and what ``certificate``, ``map`` and ``dkim`` share.

A file is checked and handed to the core, which keeps it; then the settings that use it are changed, as with
``waypost settings``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from mailcore.cli.settings import apply_changes
from mailcore.control.protocol.kept import Kept, KeptFile, KeptMade, KeptUse
from mailcore.counted import counted
from mailcore.terminal.command import DONE, WRONG_USE, UsageError, add_common, control_client
from mailcore.terminal.output import complain, plain, print_json, say, whole_table, width
from mailcore.terminal.times import shown

__all__ = ["FILE_HELP", "add_change", "configure", "content_of", "faulty", "list_files", "use_file"]

FILE_BYTES_MAX = 4 << 20
FILE_HELP = "as waypost kept list shows it: kept:KIND/NAME.DIGEST"


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command to ``parser``."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    listing = commands.add_parser("list", help="list all files that Waypost keeps")
    listing.set_defaults(run=lambda arguments: list_files(arguments, ""))
    stopping = commands.add_parser("unuse", help="change the settings so that none uses a file")
    stopping.set_defaults(run=_unuse)
    add_change(stopping)
    removing = commands.add_parser(
        "remove", help="remove a file that no setting uses, such as a key that is known to others"
    )
    removing.set_defaults(run=_remove)
    for each in (stopping, removing):
        each.add_argument("file", metavar="FILE", help=FILE_HELP)
    for each in (listing, stopping, removing):
        add_common(each)


def add_change(parser: argparse.ArgumentParser) -> None:
    """Adds the options of a command that changes settings."""
    parser.add_argument("--why", default="", metavar="TEXT", help="reason, recorded with your user name")
    parser.add_argument("--yes", action="store_true", help="skip the confirmation prompt")
    parser.add_argument("--dry-run", action="store_true", help="only show what would change and restart")


def list_files(arguments: argparse.Namespace, kind: str) -> int:
    """Prints the files of a kind; "" is all. Returns the exit status."""
    with control_client(arguments) as control:
        found = control.ask("kept", Kept)
    files = [each for each in found.files if kind in ("", each.kind)]
    if arguments.json:
        print_json(Kept(files=files))
        return DONE
    rows = [(each.file, _about(each), ", ".join(each.used) or "not used") for each in files]
    for line in whole_table(("FILE", "ABOUT", "USED BY"), rows, width(sys.stdout)):
        say(line)
    for each in files:
        if each.fault:
            complain(f"{each.file}: {plain(each.fault)}")
    return DONE


def _about(file: KeptFile) -> str:
    if file.certificate is not None:
        facts = file.certificate
        return plain(f"{', '.join(facts.names)}; by {facts.issuer}, until {shown(facts.not_after)}")
    if file.dkim is not None:
        return f"{file.dkim.algorithm}, record {file.dkim.record_name}"
    return counted(file.lines, "line") if file.kind == "map" else f"{file.size_bytes} bytes"


def _unuse(arguments: argparse.Namespace) -> int:
    return use_file(arguments, arguments.file, {"remove": True})


def _remove(arguments: argparse.Namespace) -> int:
    with control_client(arguments) as control:
        made = control.ask("kept_remove", KeptMade, {"file": arguments.file})
    if arguments.json:
        print_json(made)
    else:
        say(f"{arguments.file} is removed{' from this node' if made.elsewhere else ''}")
        if made.elsewhere:
            complain(plain(made.elsewhere))
    return DONE


def use_file(arguments: argparse.Namespace, file: str, given: dict[str, Any]) -> int:
    """Changes the settings so that they use the file, and waits until that is in force; returns the exit status."""
    with control_client(arguments) as control:
        found = control.ask("kept_use", KeptUse, {"file": file, **given})
    if not found.changes:
        say("nothing changes")
        return DONE
    for each in found.words:
        complain(plain(each))
    changes = [{"key": each.key, "value": each.value} for each in found.changes]
    return apply_changes(arguments, changes)


def faulty(arguments: argparse.Namespace, made: KeptMade) -> int:
    """Prints the faults of what was handed in; returns the exit status, DONE without one."""
    if not made.faults:
        return DONE
    if arguments.json:
        print_json(made)
    for fault in () if arguments.json else made.faults:
        complain(plain(f"{fault.key} {fault.reason}"))
    return WRONG_USE


def content_of(name: str) -> str:
    """Returns what is in a file, or comes on stdin. Raises UsageError."""
    try:
        if name == "-":
            return sys.stdin.buffer.read(FILE_BYTES_MAX).decode()
        with Path(name).open("rb") as file:
            return file.read(FILE_BYTES_MAX).decode()
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{name}: is not UTF-8") from None
