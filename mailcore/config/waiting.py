"""Reads why the shard of a home waits before its processes start: its owner step writes that down for clients.

It stands apart from ``supervisor``: a client has no settings, and reads this only when no process answers.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import NamedTuple

__all__ = ["Waiting", "read_words", "waits_in", "write_waiting"]

OWNER_WAITS = "owner.txt"  # in the run directory: why the owner step waits; a second line if the node is in order
IN_ORDER = "in order"
_OWN = Path("shards", "00")  # in the run directory of a node: that of its own shard


class Waiting(NamedTuple):
    """Why a shard waits. ``is_in_order``: another node owns it, whose spare this one is; everything else needs a person."""

    words: str
    is_in_order: bool

    @property
    def sentence(self) -> str:
        """Returns the reason as a sentence for people."""
        return f"This node waits: {self.words.removesuffix('.')}."


def write_waiting(run_directory: Path, words: str, *, is_in_order: bool = False) -> None:
    """Writes why the shard waits, for all who may ask the control socket. Raises OSError."""
    path = run_directory / OWNER_WAITS
    path.write_text(f"{words}\n{IN_ORDER}\n" if is_in_order else f"{words}\n", encoding="utf-8")
    path.chmod(0o644)


def read_words(run_directory: Path) -> str:
    """Returns why the shard with this run directory waited last, in one line. Raises OSError."""
    return (run_directory / OWNER_WAITS).read_text(encoding="utf-8").partition("\n")[0]


def waits_in(run_directory: Path) -> Waiting | None:
    """Returns why the shard with this run directory, or that of this node, waits; None if it runs, or nothing does."""
    for place in (run_directory, run_directory / _OWN):
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            children = json.loads((place / "children.json").read_bytes())
            if "owner" in children and _lives(children["supervisor"]["pid"]):
                words, _, rest = (place / OWNER_WAITS).read_text(encoding="utf-8").partition("\n")
                return Waiting(words, rest.strip() == IN_ORDER) if words else None
    return None


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
