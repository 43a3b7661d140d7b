"""``waypost log``: looking at the files of the log. ``dump`` has a command line of its own; with --config it needs no path."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mailcore.config.load import load
from mailcore.lookup import dump
from mailcore.terminal.command import DONE, WRONG_USE, Parser, UsageError
from mailcore.terminal.output import say

__all__ = ["main"]


def main(argv: Sequence[str]) -> int:
    """Raises UsageError, ConfigError."""
    if not argv or argv[0] in ("-h", "--help"):
        say(
            "usage: waypost log dump PATH ...   a segment, a lane's directory, or a queue directory\n"
            "       waypost log dump --config FILE ...   the queue directory of a configuration\n\n"
            "waypost log dump --help says more"
        )
        return DONE if argv else WRONG_USE
    if argv[0] != "dump":
        raise UsageError(f"log: there is no command {argv[0]!r}; allowed: dump")
    parser = Parser(prog="waypost log dump", add_help=False, allow_abbrev=False)
    parser.add_argument("--config", type=Path)
    given, rest = parser.parse_known_args(argv[1:])
    if given.config is not None:
        rest = [str(load(given.config).queue_directory), *rest]
    return dump.main(rest)
