"""``waypost completion bash|zsh``: prints a completion script that is generated from the parsers of all commands.

The script has tables of commands, options and what each argument takes; it starts Python only for values of the running
Waypost, such as queue IDs, through ``waypost completion --values KIND``.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from mailcore.cli.completion_scripts import BASH, ZSH
from mailcore.cli.tree import Command, command_tree, options_of, positionals_of
from mailcore.config.load import ConfigError
from mailcore.control.client import ControlClient, ControlError
from mailcore.control.protocol.messages import ListPage
from mailcore.manager_answers import Destinations, Size
from mailcore.scheduler.parameters import DESTINATION_SCOPE, GLOBAL_SCOPE, TRANSPORT_SCOPE
from mailcore.terminal.command import DONE, UsageError, add_common, settings_of
from mailcore.terminal.output import plain, print_json, say

__all__ = ["bash_script", "configure", "zsh_script"]

TIMEOUT_S = 2.0  # an operator has pressed the tabulator key, and waits
VALUES_MAX = 100
KINDS = ("queue-ids", "transports", "destinations", "parameters", "lanes")
# The name of an argument says what it takes; one that is not here is completed by its choices, or not at all.
_KIND_OF = {
    "QUEUE_ID": "queue-ids",
    "TRANSPORT": "transports",
    "DESTINATION": "destinations",
    "PARAMETER": "parameters",
    "PARAMETER=VALUE": "parameters",
    "LANE": "lanes",
    **dict.fromkeys(("DIR", "FILE", "FILE.png", "FILE|-", "PATH", "SCENARIO.toml"), "files"),
}
NOTHING = "none"


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command to ``parser``."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        "bash: waypost completion bash > ~/.local/share/bash-completion/completions/waypost\n"
        "zsh:  waypost completion zsh > DIR/_waypost, where DIR is in $fpath\n"
        "The release has both files below share/; the Ansible collection installs them."
    )
    parser.add_argument("shell", metavar="SHELL", nargs="?", choices=("bash", "zsh"), help="bash or zsh")
    parser.add_argument("--values", choices=KINDS, help="print values of the running Waypost, one per line")
    add_common(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    if (arguments.shell is None) == (arguments.values is None):
        raise UsageError("completion: give SHELL (bash or zsh), or --values KIND", argument="SHELL")
    if arguments.values is not None:
        found = [plain(value) for value in _values(arguments, arguments.values)][:VALUES_MAX]
        if arguments.json:
            print_json({"values": found})
        else:
            for value in found:
                say(value)
        return DONE
    tree = command_tree(arguments.commands)
    script = bash_script(tree) if arguments.shell == "bash" else zsh_script(tree)
    if arguments.json:
        print_json({"shell": arguments.shell, "script": script})
    else:
        say(script.rstrip("\n"))
    return DONE


def _values(arguments: argparse.Namespace, kind: str) -> Iterable[str]:
    """Returns values of this installation; none if it does not run, because a completion cannot report an error."""
    if kind == "parameters":
        return sorted({*GLOBAL_SCOPE, *TRANSPORT_SCOPE, *DESTINATION_SCOPE})
    try:
        settings = settings_of(arguments)
        if kind == "transports":
            return [*sorted(settings.transports), "global"]
        with ControlClient(settings.run_directory / "control.sock", timeout_s=TIMEOUT_S) as control:
            if kind == "queue-ids":
                return [item.queue_id for item in control.ask("list", ListPage, {"limit": VALUES_MAX}).items]
            if kind == "lanes":
                return sorted(control.ask("size", Size).lanes)
            known = control.ask("destinations", Destinations, {"limit": VALUES_MAX})
            return [name for name in dict.fromkeys((*known.queued, *known.suspended, *known.without_mail)) if name]
    except (ConfigError, ControlError):
        return ()


def bash_script(tree: Command) -> str:
    """Returns the script for bash 4 and newer."""

    def words(pairs: Iterable[tuple[str, str]]) -> str:
        return " ".join(name for name, _ in pairs)

    return BASH.replace("@TABLES@", "\n".join(_tables(tree, words, "declare -gA")))


def zsh_script(tree: Command) -> str:
    """Returns the script for zsh: the file ``_waypost`` of a directory in $fpath."""

    def described(pairs: Iterable[tuple[str, str]]) -> str:
        return "\n".join(f"{name}:{' '.join(summary.split())}" for name, summary in pairs)

    return ZSH.replace("@TABLES@", "\n".join(_tables(tree, described, "typeset -gA")))


def _tables(tree: Command, listed: Callable[[Iterable[tuple[str, str]]], str], declare: str) -> Iterator[str]:
    """Yields the tables of all commands: subcommands, options, and the kind of value of each option and argument."""
    commands: dict[str, str] = {}
    options: dict[str, str] = {}
    takes: dict[str, str] = {}
    for command in tree.walk():
        path = " ".join(command.words)
        if command.children:
            commands[path] = listed((name, child.summary) for name, child in command.children.items())
        named = [(name, _help(command, action)) for action in options_of(command) for name in action.option_strings]
        options[path] = listed((name, text) for name, text in named if name.startswith("--"))
        for action in options_of(command):
            if action.nargs != 0:
                takes |= dict.fromkeys((f"{path} {name}" for name in action.option_strings), _kind(action))
        for number, action in enumerate(positionals_of(command)):
            takes[f"{path} {'*' if action.nargs in ('*', '+') else number}"] = _kind(action)
    # The words of ``waypost help queue list`` are those of ``waypost queue list``.
    commands |= {path.replace("waypost", "waypost help", 1): text for path, text in commands.items()}
    for name, table in (("commands", commands), ("options", options), ("takes", takes)):
        yield f"{declare} _waypost_{name}=("
        yield from (f"    [{shlex.quote(key)}]={shlex.quote(value)}" for key, value in table.items())
        yield ")"


def _help(command: Command, action: argparse.Action) -> str:
    if action.help is None or action.help == argparse.SUPPRESS:
        return ""
    return command.parser._get_formatter()._expand_help(action)


def _kind(action: argparse.Action) -> str:
    if action.choices is not None:
        return "words:" + " ".join(map(str, action.choices))
    if isinstance(action.type, type) and issubclass(action.type, Path):
        return "files"
    return _KIND_OF.get(str(action.metavar or action.dest.upper()), NOTHING)
