"""``waypost node state|drain|resume``: which nodes live, and taking one out of service and back without losing mail."""

from __future__ import annotations

import argparse
import sys
import time

from mailcore.cli.database import asked
from mailcore.config.known_nodes import CURRENT_S, read_seen, told_by
from mailcore.config.settings import Settings
from mailcore.nodes.moving import NO_OTHER, drain, resume, waiting_drains
from mailcore.nodes.parameters import node_of
from mailcore.replication.connection import Connection
from mailcore.replication.node_row import NodeRow, list_nodes, read_troubles
from mailcore.replication.shard import ShardRow, read_shards
from mailcore.terminal.command import DONE, add_common, settings_of
from mailcore.terminal.output import plain, print_json, say, whole_table, width

__all__ = ["add_drain_commands"]

STATE_HELP = "show the nodes: which live, which take shards, and which shards each has"
DRAIN_HELP = "move all shards of a node to others; it takes no mail then, until resume"
RESUME_HELP = "let a node that was drained take shards again; its own comes back"


def add_drain_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the subcommands of this file."""
    for name, what, run in (
        ("state", STATE_HELP, _state),
        ("drain", DRAIN_HELP, _drain),
        ("resume", RESUME_HELP, _resume),
    ):
        command = commands.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.")
        if name != "state":
            command.add_argument(
                "node", metavar="NODE", nargs="?", default="", help="name of the node; default: this one"
            )
        add_common(command)
        command.set_defaults(run=run)


def _named(arguments: argparse.Namespace, settings: Settings) -> str:
    return str(arguments.node or node_of(settings))


def _state(arguments: argparse.Namespace) -> int:
    settings = settings_of(arguments)

    def read(connection: Connection) -> tuple[list[NodeRow], list[ShardRow], dict[str, list[str]]]:
        return list_nodes(connection), list(read_shards(connection).values()), read_troubles(connection)

    status, found = asked(settings, "node", read)
    if found is None:
        return status
    nodes, shards, told = found
    told = {node.name: told[node.name] for node in nodes if node.is_alive and node.name in told}
    owned = {node.name: [row.name for row in shards if row.node == node.name] for node in nodes}
    waiting = waiting_drains(nodes, shards)
    troubles = _troubles(settings)
    if arguments.json:
        print_json(
            {
                "nodes": [
                    {
                        "name": node.name, "state": node.state, "alive": node.is_alive, "seen_s_ago": node.seen_s_ago,
                        "since": node.since, "shards": owned[node.name], "here": node.name == node_of(settings),
                        "waits": node.name in waiting, "troubles": told.get(node.name, []),
                    }
                    for node in nodes
                ],
                "troubles": troubles,
            }
        )  # fmt: skip
        return DONE
    rows = [
        (
            plain(node.name),
            node.state + ("" if node.is_alive else ", silent"),
            f"{node.seen_s_ago:.0f} s ago",
            plain(", ".join(owned[node.name]) or "-"),
        )
        for node in nodes
    ]
    for line in whole_table(("NODE", "STATE", "SEEN", "SHARDS"), rows, width(sys.stdout)):
        say(line)
    for name in waiting:
        say(plain(f"the drain of node {name} {NO_OTHER}"))
    own = node_of(settings)
    for words in [*troubles, *told_by_others(told, own)]:
        say(plain(words))
    return DONE


def told_by_others(told: dict[str, list[str]], own: str) -> list[str]:
    """Returns what the others have told (``read_troubles``), a sentence each."""
    return [words for name, troubles in told.items() if name != own for words in told_by(name, troubles)]


def _troubles(settings: Settings) -> list[str]:
    """Returns why this node does not take a shard, or why its drain waits, as its watching process has written it lately."""
    try:
        seen = read_seen(settings.node_run_directory)
    except (OSError, ValueError):
        return []
    return seen.troubles if seen is not None and abs(time.time() - seen.at) < CURRENT_S else []


def _drain(arguments: argparse.Namespace) -> int:
    settings = settings_of(arguments)
    node = _named(arguments, settings)

    def tell(words: str) -> None:
        if not arguments.json:
            say(plain(words))

    status, moved = asked(settings, "node", lambda connection: drain(connection, node, say=tell))
    if moved is None:
        return status
    if arguments.json:
        print_json({"node": node, "moved": moved})
    else:
        say(plain(f"node {node} has no shard, and takes none until waypost node resume {node}"))
    return DONE


def _resume(arguments: argparse.Namespace) -> int:
    settings = settings_of(arguments)
    node = _named(arguments, settings)

    def work(connection: Connection) -> bool:
        resume(connection, node)
        return True

    status, done = asked(settings, "node", work)
    if done is None:
        return status
    if arguments.json:
        print_json({"node": node})
    else:
        say(plain(f"node {node} takes shards again"))
    return DONE
