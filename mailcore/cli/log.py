"""``waypost log``: looking at the files of the log. ``dump`` has a command line of its own."""

from __future__ import annotations

from collections.abc import Sequence

from mailcore.cli.command import WRONG_USE, UsageError
from mailcore.cli.output import say
from mailcore.queue import dump

__all__ = ["main"]


def main(argv: Sequence[str]) -> int:
    """Raises UsageError."""
    if not argv or argv[0] in ("-h", "--help"):
        say("usage: waypost log dump ...; waypost log dump --help says more")
        return 0 if argv else WRONG_USE
    if argv[0] != "dump":
        raise UsageError(f"log: there is no command {argv[0]!r}; allowed: dump")
    return dump.main(list(argv[1:]))
