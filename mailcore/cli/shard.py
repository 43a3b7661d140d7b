"""``waypost shard list``: prints the shards that the database of [nodes] has, and who owns each."""

from __future__ import annotations

import argparse
import sys

from mailcore.nodes.parameters import parameters_of, shard_of
from mailcore.replication.connection import Connection
from mailcore.replication.faults import StoreError
from mailcore.replication.schema import check_schema
from mailcore.replication.shard import list_shards
from mailcore.terminal.command import DONE, NOT_RUNNING, UsageError, add_common, settings_of
from mailcore.terminal.output import complain_fault, plain, print_json, say, whole_table, width

__all__ = ["configure"]

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


def _list(arguments: argparse.Namespace) -> int:
    """Ends with NOT_RUNNING if the database does not answer."""
    settings = settings_of(arguments)
    if not settings.nodes.is_on:
        raise UsageError("shard: no database keeps this queue; set database in [nodes]")
    try:
        connection = Connection.open(parameters_of(settings))
        try:
            check_schema(connection)
            shards = list_shards(connection)
        finally:
            connection.close()
    except StoreError as error:
        complain_fault(error.fault)
        return NOT_RUNNING
    except OSError as error:
        raise UsageError(f"[nodes] password_file: {error.strerror or error}") from None
    if arguments.json:
        print_json(
            {
                "shards": [
                    {
                        "name": row.name, "number": row.number, "state": row.state, "epoch": row.epoch,
                        "owner": row.owner, "renewed_s_ago": age_s, "here": row.name == shard_of(settings),
                    }
                    for row, age_s in shards
                ]
            }
        )  # fmt: skip
        return DONE
    rows = [
        (plain(row.name), str(row.number), row.state, str(row.epoch), f"{age_s:.0f} s ago", plain(row.owner))
        for row, age_s in shards
    ]
    for line in whole_table(("SHARD", "NUMBER", "STATE", "EPOCH", "RENEWED", "OWNER"), rows, width(sys.stdout)):
        say(line)
    return DONE
