"""``waypost node``: lets nodes in among those that trust each other, removes and lists them (docs/nodes.md)."""

from __future__ import annotations

import argparse
import getpass
import sys
from collections.abc import Callable
from typing import TypeVar

from mailcore.bounds import BadValue
from mailcore.cli.node_drain import add_drain_commands
from mailcore.cli.node_settings import add_settings_command
from mailcore.config.settings import Settings
from mailcore.faults import FaultError
from mailcore.nodes import joining
from mailcore.nodes.parameters import node_of
from mailcore.replication.faults import NotReached, StoreError
from mailcore.terminal.command import DONE, NOT_DONE, NOT_RUNNING, UsageError, add_common, settings_of
from mailcore.terminal.output import complain_fault, plain, print_json, say, whole_table, width

__all__ = ["add_trust_commands", "configure"]

LIST_HELP = "list the nodes that are in, and where others reach them"
BEGIN_HELP = "let the first node in; it makes the authority that signs the certificates of all"
ADD_HELP = "print a token with which another node joins, once"
JOIN_HELP = "let this node in, by a token that is read from the terminal or stdin"
REMOVE_HELP = "end the trust in a node at once: its certificate is refused by all others"
_TOKEN_CHARACTERS_MAX = 200
_Result = TypeVar("_Result")


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command to ``parser``."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    add_trust_commands(commands)
    add_drain_commands(commands)
    add_settings_command(commands)


def add_trust_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the subcommands of this file."""
    for name, what, run in (
        ("list", LIST_HELP, _list),
        ("begin", BEGIN_HELP, _begin),
        ("add", ADD_HELP, _add),
        ("join", JOIN_HELP, _join),
        ("remove", REMOVE_HELP, _remove),
    ):
        command = commands.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.")
        if name in ("add", "remove"):
            command.add_argument("node", metavar="NAME", help="name of the node, as its setting node has it")
        if name == "add":
            command.add_argument(
                "--minutes",
                metavar="N",
                type=_minutes,
                default=joining.TOKEN_MINUTES,
                help=f"how long the token counts; default: {joining.TOKEN_MINUTES}, at most 1440",
            )
        if name == "begin":
            command.add_argument(
                "--again",
                action="store_true",
                help="make another authority; all other nodes are out, and join again",
            )
        add_common(command)
        command.set_defaults(run=run)


def _minutes(given: str) -> int:
    if not given.isdecimal() or not 1 <= int(given) <= 1440:
        raise argparse.ArgumentTypeError(f"must be a number of minutes from 1 to 1440 (got {given!r})")
    return int(given)


def _done(arguments: argparse.Namespace, work: Callable[[Settings], _Result]) -> tuple[int, _Result | None]:
    """Returns the exit status, and what ``work`` returned. NOT_RUNNING: the database does not answer."""
    settings = settings_of(arguments)
    if not settings.nodes.is_on:
        raise UsageError("node: no database keeps this queue; set database in [nodes]")
    try:
        return DONE, work(settings)
    except BadValue as error:
        raise UsageError(f"node: {error}", argument="node") from None
    except NotReached as error:
        complain_fault(error.fault)
        return NOT_RUNNING, None
    except (StoreError, FaultError) as error:
        complain_fault(error.fault)
        return NOT_DONE, None
    except OSError as error:
        raise UsageError(f"node: {error.filename or ''}: {error.strerror or error}") from None


def _list(arguments: argparse.Namespace) -> int:
    settings = settings_of(arguments)
    status, rows = _done(arguments, joining.nodes_of)
    if rows is None:
        return status
    if arguments.json:
        print_json(
            {
                "nodes": [
                    {
                        "name": row.node, "address": row.address, "joined_s_ago": row.joined_s_ago,
                        "here": joining.is_here(settings, row),
                    }
                    for row in rows
                ]
            }
        )  # fmt: skip
        return status
    shown = [
        (
            plain(row.node), plain(row.address) or "-", f"{row.joined_s_ago:.0f} s ago",
            "this node" if joining.is_here(settings, row) else "",
        )
        for row in rows
    ]  # fmt: skip
    for line in whole_table(("NODE", "ADDRESS", "JOINED", ""), shown, width(sys.stdout)):
        say(line)
    return status


def _begin(arguments: argparse.Namespace) -> int:
    def begin(settings: Settings) -> str:
        joining.begin(settings, again=arguments.again)
        return node_of(settings)

    status, node = _done(arguments, begin)
    return _tell(arguments, status, node, f"node {node} is in, as the first one")


def _add(arguments: argparse.Namespace) -> int:
    status, token = _done(arguments, lambda settings: joining.add(settings, arguments.node, arguments.minutes))
    if token is None:
        return status
    if arguments.json:
        print_json({"node": arguments.node, "token": token, "minutes": arguments.minutes})
    else:
        say(token)
        if sys.stdout.isatty():
            say(f"It counts once, for {arguments.minutes} minutes: run waypost node join on {plain(arguments.node)}.")
    return status


def _join(arguments: argparse.Namespace) -> int:
    is_person = sys.stdin.isatty()
    token = getpass.getpass("token of waypost node add: ") if is_person else sys.stdin.readline(_TOKEN_CHARACTERS_MAX)

    def join(settings: Settings) -> str:
        joining.join(settings, token)
        return node_of(settings)

    status, node = _done(arguments, join)
    return _tell(arguments, status, node, f"node {node} is in")


def _remove(arguments: argparse.Namespace) -> int:
    def remove(settings: Settings) -> str:
        joining.remove(settings, arguments.node)
        return str(arguments.node)

    status, node = _done(arguments, remove)
    return _tell(
        arguments, status, node,
        f"node {node} is out. It still knows the password of the database, and the authority: if it is in other hands, change"
        " the password and run waypost node begin --again",
    )  # fmt: skip


def _tell(arguments: argparse.Namespace, status: int, node: str | None, words: str) -> int:
    if node is not None:
        if arguments.json:
            print_json({"node": node})
        else:
            say(plain(words))
    return status
