"""``waypost log dump``: prints records of the queue's log; with --config, of the configured queue directory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mailcore.config.load import load
from mailcore.lookup import dump
from mailcore.terminal.command import DONE, WRONG_USE, Parser, UsageError
from mailcore.terminal.output import say

__all__ = ["main"]


def main(argv: Sequence[str]) -> int:
    """Runs the command and returns its exit status. Raises UsageError, ConfigError."""
    if not argv or argv[0] in ("-h", "--help"):
        say(
            "usage: waypost log dump PATH ...            print a segment file, the directory of a lane, or a queue directory\n"
            "       waypost log dump --config FILE ...   print the queue directory of this configuration\n\n"
            "Run waypost log dump --help for all options."
        )
        return DONE if argv else WRONG_USE
    if argv[0] != "dump":
        raise UsageError(f"log: unknown command {argv[0]!r}; did you mean 'dump'?")
    parser = Parser(prog="waypost log dump", add_help=False, allow_abbrev=False)
    parser.add_argument("--config", type=Path)
    given, rest = parser.parse_known_args(argv[1:])
    if given.config is not None:
        rest = [str(load(given.config).queue_directory), *rest]
    return dump.main(rest)
