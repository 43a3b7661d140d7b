"""``waypost help [COMMAND...]``: prints the same as --help."""

from __future__ import annotations

import argparse

from mailcore.cli.tree import Table, command_of, top_level, unknown_command
from mailcore.terminal.command import DONE, add_common

__all__ = ["configure"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command to ``parser``."""
    parser.add_argument("words", metavar="COMMAND", nargs="*", help="command, and subcommand; default: all commands")
    add_common(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    commands: Table = arguments.commands
    if not arguments.words:
        top_level(commands).print_help()
        return DONE
    first, *rest = arguments.words
    if first not in commands:
        raise unknown_command(first, commands)
    command_of(commands, first).find(rest).parser.print_help()
    return DONE
