"""Makes the manual pages from the parsers: ``waypost.1``, and one for each command, in the macros of man(7).

``python -m mailcore.cli.manual DIRECTORY`` writes them; those of the release are below share/man/man1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from mailcore.cli.commands import COMMANDS
from mailcore.cli.tree import Command, command_tree, options_of, positionals_of

__all__ = ["pages"]

EXIT_STATUS = (
    ("0", "done"),
    ("1", "failed, or done in part; or the manager is not running"),
    ("2", "wrong usage, or wrong configuration"),
    ("3", "Waypost is not running or does not answer, or this user has no permission to use its socket"),
    ("130", "interrupted"),
)
_NAMED = {"QUEUE_ID": "queue ID"}  # of an argument whose help would say no more
REMOTE = (
    ("remote", "URL", "Address of the portal, https://HOST; default: WAYPOST_REMOTE."),
    ("token-file", "FILE", "File with a token; default: WAYPOST_TOKEN_FILE, otherwise ~/.config/waypost/token."),
    (
        "ca-file",
        "FILE",
        "Certificates of authorities to trust; default: WAYPOST_CA_FILE, otherwise those of the system.",
    ),
    ("fingerprint", "SHA256", "The only certificate to trust, by its SHA-256; default: WAYPOST_FINGERPRINT."),
    ("request-key", "KEY", "Key of a change that was interrupted, so that it is not made twice."),
)
OF_ALL = ("--config", "--json")  # explained in waypost(1)


def pages(tree: Command) -> dict[str, str]:
    """Returns the text of each page by the name of its file."""
    made = {"waypost.1": "\n".join(_first_page(tree)) + "\n"}
    for name, command in tree.children.items():
        made[f"waypost-{name}.1"] = "\n".join(_page(command)) + "\n"
    return made


def _first_page(tree: Command) -> Iterator[str]:
    yield from _head("waypost", tree.summary)
    yield ".SH SYNOPSIS"
    yield r".B waypost"
    yield _text(r"[--config FILE | --remote URL] [--here] [--json] COMMAND ...")
    yield ".SH DESCRIPTION"
    yield _text(tree.parser.description or "")
    yield _text("Each command has a page of its own, waypost-COMMAND(1), and --help.")
    yield ".SH COMMANDS"
    for name, child in tree.children.items():
        yield from (".TP", rf"\fBwaypost\-{_text(name)}\fR(1)", _text(_sentence(child.summary)))
    yield ".SH OPTIONS"
    yield "Before or behind the command:"
    yield from (".TP", r"\fB\-\-config\fR \fIFILE\fR")
    yield _text("Configuration file; default: ./waypost.toml, otherwise /etc/waypost/waypost.toml.")
    yield from (".TP", r"\fB\-\-json\fR")
    yield _text(
        "Print one JSON document instead of text. Lists print one object a line; the last line says how the list ended."
    )
    yield from (".TP", r"\fB\-\-version\fR", _text("Print the version and exit."))
    yield "Before the command only:"
    yield from (".TP", r"\fB\-\-here\fR")
    yield _text("Ask this node alone, and not the other nodes of [nodes].")
    yield "Before the command only, to ask a Waypost on another host through its portal:"
    for option, value, text in REMOTE:
        yield from (".TP", rf"\fB\-\-{_text(option)}\fR \fI{value}\fR", _text(text))
    yield ".SH EXIT STATUS"
    for status, meaning in EXIT_STATUS:
        yield from (".TP", rf"\fB{status}\fR", _text(meaning))
    yield ".SH FILES"
    yield from (".TP", r"\fI/etc/waypost/waypost.toml\fR", "The configuration.")
    yield ".SH SEE ALSO"
    yield ",\n".join(rf".BR waypost\-{_text(name)} (1)" for name in tree.children).replace(",\n", " ,\n")


def _page(command: Command) -> Iterator[str]:
    name = "-".join(command.words)
    yield from _head(name, command.summary)
    leaves = [each for each in command.walk() if not each.children]
    yield ".SH SYNOPSIS"
    for number, leaf in enumerate(leaves):
        if number:
            yield ".br"
        yield rf".B {_text(' '.join(leaf.words))}"
        options = [*map(_usage_of_option, _own_options(leaf)), *(f"[{_plural(group)} ...]" for group in _groups(leaf))]
        yield from filter(None, [" ".join([*options, *map(_usage_of_argument, positionals_of(leaf))])])
    yield ".SH DESCRIPTION"
    yield _text(_sentence(command.parser.description or command.summary))
    if command.children:
        yield ".SH COMMANDS"
        for leaf in leaves:
            yield f".SS {_text(' '.join(leaf.words))}"
            yield _text(_sentence(leaf.parser.description or leaf.summary))
            yield from _arguments(leaf, [*positionals_of(leaf), *_own_options(leaf)])
    else:
        yield ".SH OPTIONS"
        yield from _arguments(command, [*positionals_of(command), *_own_options(command)])
    shared = {title: leaf for leaf in leaves for title in _groups(leaf)}
    for title, leaf in shared.items():
        name, _, rest = title.partition(" (")
        yield f".SH {_text(name.upper())}"
        if rest:
            yield _text(_sentence(rest.removesuffix(")")))
        yield from _arguments(leaf, _groups(leaf)[title])
    for leaf in (command, *(leaves if command.children else ())):
        if leaf.parser.epilog:
            yield from (".SH NOTES", ".nf", *map(_text, leaf.parser.epilog.splitlines()), ".fi")
    yield ".SH SEE ALSO"
    yield ".BR waypost (1)"


def _head(name: str, summary: str) -> Iterator[str]:
    yield r".\" Made from the help of the commands: python -m mailcore.cli.manual share/man/man1"
    yield f'.TH {name.upper().replace("-", chr(92) + "-")} 1 "" Waypost "Waypost manual"'
    yield ".ad l"
    yield ".nh"
    yield ".SH NAME"
    yield rf"{_text(name)} \- {_text(summary)}"


def _own_options(command: Command) -> list[argparse.Action]:
    """Returns the options of a command without those that every command has, and without those of ``_groups``."""
    grouped = [action for actions in _groups(command).values() for action in actions]
    return [
        action
        for action in options_of(command)
        if not {*OF_ALL, "--help"} & set(action.option_strings) and action not in grouped
    ]


def _groups(command: Command) -> dict[str, list[argparse.Action]]:
    """Returns groups of options that have a title of their own, such as the filters, which several commands share."""
    _positionals, _options, *groups = command.parser._action_groups
    return {group.title: group._group_actions for group in groups if group.title}


def _plural(title: str) -> str:
    return rf"\fI{_text(title.partition(' (')[0].upper())}\fR"


def _arguments(command: Command, actions: Iterable[argparse.Action]) -> Iterator[str]:
    """Yields an item for each of the arguments and options."""
    for action in actions:
        yield ".TP"
        if action.option_strings:
            value = rf" \fI{_text(_name(action))}\fR" if action.nargs != 0 else ""
            yield ", ".join(rf"\fB{_text(option)}\fR" for option in action.option_strings) + value
        else:
            yield rf"\fI{_text(_name(action))}\fR"
        text = command.parser._get_formatter()._expand_help(action) if action.help else ""
        if action.choices is not None:
            text = f"{text}: {', '.join(map(str, action.choices))}" if text else ", ".join(map(str, action.choices))
        yield _text(_sentence(text or _NAMED.get(_name(action), _name(action).lower())))


def _name(action: argparse.Action) -> str:
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    return metavar or action.dest.upper()


def _usage_of_option(action: argparse.Action) -> str:
    option = rf"\fB{_text(action.option_strings[0])}\fR"
    text = option if action.nargs == 0 else rf"{option} \fI{_text(_name(action))}\fR"
    return text if action.required else f"[{text}]"


def _usage_of_argument(action: argparse.Action) -> str:
    name = rf"\fI{_text(_name(action))}\fR"
    return {"?": f"[{name}]", "*": f"[{name} ...]", "+": f"{name} [...]"}.get(str(action.nargs), name)


def _sentence(text: str) -> str:
    """Returns the text with a capital letter and a full stop."""
    text = f"{text[:1].upper()}{text[1:]}"
    return text if text.endswith((".", ":")) else f"{text}."


def _text(text: str) -> str:
    """Escapes what roff would read as a command; a hyphen stays one that can be copied."""
    escaped = (
        " ".join(text.split()).replace("\\", r"\e").replace("-", r"\-").replace("'", r"\(aq").replace("^", r"\(ha")
    )
    return rf"\&{escaped}" if escaped.startswith(".") else escaped.replace("~", r"\(ti")


def main(directory: Path) -> None:
    """Writes all pages into ``directory``."""
    for name, text in pages(command_tree(COMMANDS)).items():
        (directory / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
