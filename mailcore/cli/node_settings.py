"""``waypost node settings``: what each node has of the settings and users that all nodes share, and what becomes of those that
differ.
"""

from __future__ import annotations

import argparse
import os
import pwd
import sys

from mailcore.cli.database import asked
from mailcore.config.settings import Settings
from mailcore.config.shared_settings import KINDS, NAMES
from mailcore.nodes.decision import GIVE, TAKE, Decision, decide
from mailcore.nodes.parameters import node_of
from mailcore.nodes.settings_store import SettingsStore
from mailcore.replication.connection import Connection
from mailcore.replication.settings_rows import NodeTaken, read_heads, read_taken
from mailcore.terminal.command import DONE, NOT_DONE, UsageError, add_common, settings_of
from mailcore.terminal.output import plain, print_json, say, whole_table, width

__all__ = ["add_settings_command"]

SETTINGS_HELP = "show which version of the common settings and users each node has; decide about a node that has others"
_LINES = {
    GIVE: "the {} of this node become those of all nodes",
    TAKE: "this node takes over the {} of all nodes, and puts its own aside",
}


def add_settings_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the subcommand of this file."""
    command = commands.add_parser(
        "settings",
        help=SETTINGS_HELP,
        description=f"{SETTINGS_HELP[0].upper()}{SETTINGS_HELP[1:]}. A decision is carried out within seconds while Waypost"
        " runs here, otherwise when it starts. --give is carried out only if nothing was changed at any node until then.",
    )
    which = command.add_mutually_exclusive_group()
    which.add_argument(
        "--give",
        metavar="KIND",
        choices=KINDS,
        help="make the managed or tuned settings, or the users, of this node those of all",
    )
    which.add_argument(
        "--take",
        metavar="KIND",
        choices=KINDS,
        help="take those of all nodes, and put those of this node aside",
    )
    command.add_argument("--why", default="", metavar="TEXT", help="reason, recorded with your user name")
    add_common(command)
    command.set_defaults(run=_settings)


def _settings(arguments: argparse.Namespace) -> int:
    settings = settings_of(arguments)
    if arguments.give or arguments.take:
        return _decide(arguments, settings)

    def read(connection: Connection) -> tuple[dict[str, int], list[NodeTaken]]:
        return read_heads(connection), read_taken(connection)

    status, found = asked(settings, "node", read)
    if found is None:
        return status
    heads, rows = found
    behind = [row for row in rows if row.trouble or row.version != heads.get(row.kind, 0)]
    if arguments.json:
        print_json(
            {
                "newest": heads,
                "nodes": [
                    {
                        "name": row.node, "kind": row.kind, "version": row.version, "trouble": row.trouble,
                        "behind": row in behind, "here": row.node == node_of(settings),
                    }
                    for row in rows
                ],
            }
        )  # fmt: skip
        return NOT_DONE if behind else DONE
    shown = [
        (
            plain(row.node), row.kind, f"{row.version} of {heads.get(row.kind, 0)}",
            plain(row.trouble) or ("behind" if row in behind else "as all nodes"),
        )
        for row in rows
    ]  # fmt: skip
    for line in whole_table(("NODE", "SETTINGS", "VERSION", ""), shown, width(sys.stdout)):
        say(line)
    return NOT_DONE if behind else DONE


def _decide(arguments: argparse.Namespace, settings: Settings) -> int:
    if not settings.nodes.is_on:
        raise UsageError("node: no database keeps this queue; set database in [nodes]")
    if not SettingsStore(settings).is_on():
        raise UsageError(f"node: {node_of(settings)} is not in: run waypost node join")
    what, kind = (GIVE, arguments.give) if arguments.give else (TAKE, arguments.take)
    version = 0
    if what == GIVE:  # this node may be down: what others change meanwhile is not to be undone
        status, heads = asked(settings, "node", read_heads)
        if heads is None:
            return status
        version = heads.get(kind, 0)
    try:
        decide(settings, kind, Decision(what, _who(), arguments.why, version))
    except OSError as error:
        raise UsageError(f"node: {error.filename or ''}: {error.strerror or error}") from None
    words = _LINES[what].format(NAMES[kind])
    if arguments.json:
        print_json({"decision": what, "kind": kind})
    else:
        unless = f", unless there is another version than {version} by then" if what == GIVE else ""
        say(f"{words}: within seconds, if Waypost runs here{unless}; waypost node settings shows it")
    return DONE


def _who() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
