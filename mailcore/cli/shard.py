"""``waypost shard``: lists the shards that the database of [nodes] has, moves, makes and closes them."""

from __future__ import annotations

import argparse
import sys

from mailcore.cli.database import asked
from mailcore.cli.node_drain import told_by_others
from mailcore.cli.shard_mail import add_mail_commands
from mailcore.nodes.moving import move
from mailcore.nodes.parameters import shard_of
from mailcore.replication.connection import Connection
from mailcore.replication.node_row import read_troubles
from mailcore.replication.shard import ShardRow, list_shards
from mailcore.terminal.command import DONE, add_common, settings_of
from mailcore.terminal.output import plain, print_json, say, whole_table, width

__all__ = ["configure"]

MOVE_HELP = "move a shard to another node; its mail is delivered there within seconds"
LIST_HELP = "list the shards, their owners, and how long ago each owner renewed its lease"


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command to ``parser``."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    listing = commands.add_parser(
        "list",
        help=LIST_HELP,
        description=f"{LIST_HELP[0].upper()}{LIST_HELP[1:]}. The database is asked, whether Waypost runs here or not.",
    )
    add_common(listing)
    listing.set_defaults(run=_list)
    moving = commands.add_parser(
        "move",
        help=MOVE_HELP,
        description=f"{MOVE_HELP[0].upper()}{MOVE_HELP[1:]}. Its owner gives out nothing more, lets deliveries end for up to"
        " hand_over_s of [nodes], and hands it over. It stays there until it is moved again, or that node is gone.",
    )
    moving.add_argument("shard", metavar="SHARD", help="name of the shard")
    moving.add_argument("--to", metavar="NODE", required=True, help="name of the node that is to have it")
    add_common(moving)
    moving.set_defaults(run=_move)
    add_mail_commands(commands)


def _list(arguments: argparse.Namespace) -> int:
    """Ends with NOT_RUNNING if the database does not answer."""
    settings = settings_of(arguments)

    def read(connection: Connection) -> tuple[list[tuple[ShardRow, float]], dict[str, list[str]]]:
        return list_shards(connection), read_troubles(connection)

    status, found = asked(settings, "shard", read)
    if found is None:
        return status
    shards, told = found
    if arguments.json:
        print_json(
            {
                "shards": [
                    {
                        "name": row.name, "number": row.number, "state": row.state, "epoch": row.epoch,
                        "owner": row.owner, "renewed_s_ago": age_s,
                        "placed": row.placed, "wanted": row.wanted, "here": row.name == shard_of(settings),
                    }
                    for row, age_s in shards
                ],
                "troubles": told,
            }
        )  # fmt: skip
        return DONE
    rows = [
        (plain(row.name), str(row.number), row.state, str(row.epoch), f"{age_s:.0f} s ago", plain(row.owner) or "-")
        for row, age_s in shards
    ]
    for line in whole_table(("SHARD", "NUMBER", "STATE", "EPOCH", "RENEWED", "OWNER"), rows, width(sys.stdout)):
        say(line)
    for words in told_by_others(told, ""):
        say(plain(words))
    return DONE


def _move(arguments: argparse.Namespace) -> int:
    settings = settings_of(arguments)

    def tell(words: str) -> None:
        if not arguments.json:
            say(plain(words))

    status, row = asked(settings, "shard", lambda opened: move(opened, arguments.shard, arguments.to, say=tell))
    if row is None:
        return status
    if arguments.json:
        print_json({"shard": row.name, "node": row.node, "epoch": row.epoch})
    else:
        say(plain(f"shard {row.name} is at {row.node}"))
    return DONE
