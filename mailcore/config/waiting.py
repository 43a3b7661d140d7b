"""Reads why the shard of a home waits before its processes start: its owner step writes that down for clients.

It stands apart from ``supervisor``: a client has no settings, and reads this only when no process answers.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

__all__ = ["OWNER_WAITS", "waits_in"]

OWNER_WAITS = "owner.txt"  # in the run directory: why the owner step waits, in one line
_OWN = Path("shards", "00")  # in the run directory of a node: that of its own shard


def waits_in(run_directory: Path) -> str:
    """Returns what the shard with this run directory, or that of this node, waits for; "" if it runs, or nothing does."""
    for place in (run_directory, run_directory / _OWN):
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            children = json.loads((place / "children.json").read_bytes())
            if "owner" in children and _lives(children["supervisor"]["pid"]):
                return (place / OWNER_WAITS).read_text(encoding="utf-8").strip()
    return ""


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
