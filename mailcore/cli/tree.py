"""Builds the parsers of all commands, for ``waypost help``, for completion and for the manual pages."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType

from mailcore.terminal.command import Parser, UsageError, file_name
from mailcore.terminal.nearest import did_you_mean

__all__ = [
    "Command",
    "Table",
    "command_of",
    "command_tree",
    "options_of",
    "parser_of",
    "positionals_of",
    "top_level",
    "unknown_command",
]


Table = Mapping[str, tuple[Callable[[], ModuleType], str]]  # as mailcore.cli.commands.COMMANDS


@dataclass(frozen=True)
class Command:
    """A command or subcommand: its words, its line of help, its parser, and its subcommands by name."""

    words: tuple[str, ...]  # ("waypost", "queue", "list")
    summary: str
    parser: argparse.ArgumentParser
    children: dict[str, Command]

    def walk(self) -> Iterator[Command]:
        """Yields this command and all below it."""
        yield self
        for child in self.children.values():
            yield from child.walk()

    def find(self, words: list[str]) -> Command:
        """Returns the command below this one that ``words`` name. Raises UsageError with the nearest ones."""
        if not words:
            return self
        if words[0] not in self.children:
            prefix = f"{' '.join(self.words[1:])}: " if self.words[1:] else ""
            raise unknown_command(words[0], self.children, prefix, " ".join(self.words))
        return self.children[words[0]].find(words[1:])


def unknown_command(word: str, known: Iterable[str], prefix: str = "", program: str = "waypost") -> UsageError:
    """Returns the error for a mistyped command, with the nearest of ``known``."""
    return UsageError(f"{prefix}unknown command {word!r}{did_you_mean(word, known) or '.'} See {program} --help.")


def top_level(commands: Table) -> Parser:
    """Returns the parser of ``waypost`` itself: the options before the command, the command, and its words."""
    longest = max(map(len, commands))
    lines = [f"  {name:<{longest}}  {summary}" for name, (_, summary) in commands.items()]
    parser = Parser(
        prog="waypost",
        description="Waypost receives mail over SMTP, stores it in a queue, and delivers it.",
        epilog="Commands:\n"
        + "\n".join(lines)
        + "\n\nRun waypost COMMAND --help for its options. Exit statuses, --remote and --here: docs/cli.md.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="waypost [--config FILE | --remote URL] [--here] [--json] COMMAND ...",
    )
    parser.add_argument("--config", metavar="FILE", type=file_name, help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    for option in ("--remote", "--fingerprint", "--request-key"):
        parser.add_argument(option, metavar="VALUE", help=argparse.SUPPRESS)
    for option in ("--token-file", "--ca-file"):
        parser.add_argument(option, metavar="FILE", type=file_name, help=argparse.SUPPRESS)
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    parser.add_argument("command", nargs="?", help=argparse.SUPPRESS)
    # The parser of the command reads it again, and knows which of it are names of files.
    parser.add_argument("rest", nargs=argparse.REMAINDER, type=file_name, help=argparse.SUPPRESS)
    return parser


def parser_of(commands: Table, name: str) -> argparse.ArgumentParser:
    """Returns the parser of a command of the table."""
    load, summary = commands[name]
    module = load()
    if hasattr(module, "parser"):  # it parses its command line itself
        own: argparse.ArgumentParser = module.parser()
        return own
    parser = Parser(prog=f"waypost {name}", description=f"{summary[0].upper()}{summary[1:]}.")
    module.configure(parser)
    return parser


def command_tree(commands: Table) -> Command:
    """Returns ``waypost`` with all its commands. Imports the modules of all of them, which takes about a second."""
    children = {name: command_of(commands, name) for name in commands}
    return Command(("waypost",), "receive mail, store it in a queue, and deliver it", top_level(commands), children)


def command_of(commands: Table, name: str) -> Command:
    """Returns a command of the table with its subcommands."""
    return _command(("waypost", name), commands[name][1], parser_of(commands, name))


def _command(words: tuple[str, ...], summary: str, parser: argparse.ArgumentParser) -> Command:
    children = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            children = {name: _command((*words, name), helps[name], child) for name, child in action.choices.items()}
    return Command(words, summary, parser, children)


def options_of(command: Command) -> list[argparse.Action]:
    """Returns the options of a command; of ``waypost`` also those that its help does not list."""
    return [action for action in command.parser._actions if action.option_strings]


def positionals_of(command: Command) -> list[argparse.Action]:
    """Returns the arguments of a command that are neither options nor subcommands."""
    if command.words == ("waypost",):
        return []
    return [
        action
        for action in command.parser._actions
        if not action.option_strings and not isinstance(action, argparse._SubParsersAction)
    ]
