"""``waypost import-postfix``: translates Postfix's settings to a waypost.toml, reports on each, and imports its queue.

Law: nothing in Postfix's directories is changed, and no existing file is overwritten.

Keeps law: import-reads-only, law: a-copy-is-another-host (docs/laws.md).
"""

from __future__ import annotations

import argparse
import os
import socket
from collections import Counter
from pathlib import Path

from mailcore.config import values
from mailcore.import_postfix import import_queue
from mailcore.import_postfix.draft import Draft, Fate
from mailcore.import_postfix.tables import is_of_this_host
from mailcore.import_postfix.translation import translate
from mailcore.terminal.command import DONE, UsageError, add_common, not_empty
from mailcore.terminal.output import plain, print_json, say

__all__ = ["configure"]

HOME = "/var/lib/waypost"  # home of an installation by Ansible
HEAD = [
    "Made by waypost import-postfix from Postfix's main.cf and master.cf. Its output lists the settings that were taken over,",
    "changed and left out. All keys and bounds: docs/configuration.md. Check a change with waypost check-config.",
]


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command to ``parser``."""
    parser.add_argument("directory", metavar="DIR", type=Path, help="directory of main.cf, such as /etc/postfix")
    parser.add_argument("--write", metavar="FILE", type=Path, help="write the configuration to FILE; default: print it")
    parser.add_argument(
        "--home",
        type=not_empty,
        default=HOME,
        metavar="DIR",
        help=f"home of Waypost, for the configuration; default: {HOME}",
    )
    parser.add_argument(
        "--hostname",
        type=_host_name,
        metavar="NAME",
        help="name of Postfix's host, used if main.cf sets no myhostname; default: that of this host, if DIR is not a copy",
    )
    import_queue.configure(parser)
    add_common(parser)
    parser.set_defaults(run=_run)


def _host_name(text: str) -> str:
    """Reads the name of a host; an argparse type."""
    try:
        return values.host_name(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _run(arguments: argparse.Namespace) -> int:
    if arguments.hostname is None:
        arguments.hostname = socket.gethostname() if is_of_this_host(arguments.directory) else ""
    if arguments.queue or arguments.dry_run or arguments.list_done:
        if arguments.write is not None:
            raise UsageError(
                "import-postfix: --write cannot be combined with --queue; import the settings first, then the queue"
            )
        return import_queue.run(arguments)
    try:
        draft, _ = translate(arguments.directory, arguments.hostname)
    except UnicodeDecodeError:
        raise UsageError(f"import-postfix: {arguments.directory}/main.cf is not UTF-8") from None
    text = draft.toml(arguments.home, HEAD)
    if arguments.write is not None:
        _write(arguments.write, text)
    if arguments.json:
        findings = [
            {"fate": each.fate.value, "where": each.where, "what": each.what, "said": each.said}
            for each in draft.findings
        ]
        print_json({"findings": findings, "settings": text, "file": str(arguments.write or "")})
        return DONE
    _say(draft)
    if arguments.write is None:
        say()
        say(text.rstrip())
    else:
        say(f"\nwrote {arguments.write}; check it with: waypost check-config --config {arguments.write}")
    return DONE


def _say(draft: Draft) -> None:
    for fate in Fate:
        found = [each for each in draft.findings if each.fate is fate]
        say(f"{fate.value}: {len(found)}")
        for each in found:
            say(f"  {plain(each.where)}: {plain(each.what)}")
            say(f"      {plain(each.said)}")
    counted = Counter(each.fate for each in draft.findings)
    say(", ".join(f"{counted[fate]} {fate.value}" for fate in Fate))


def _write(path: Path, text: str) -> None:
    """Writes a new file. Raises UsageError if it exists."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        raise UsageError(f"import-postfix: {path} already exists; give another name, or move it away") from None
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
