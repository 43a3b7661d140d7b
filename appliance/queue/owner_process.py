"""The process that makes a change, and whether it still runs: a page shows at its next request that the portal was killed.

A process is named by its host, its pid and the kernel's time of its start (proc(5), stat), because pids are reused. Processes
of another host cannot be checked.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

__all__ = ["WORKER_MAX", "is_gone", "own"]

WORKER_MAX = 120  # characters: a host's name has at most 64
_START = 19  # of the fields behind the process's name; the first is its state
_ENDED = ("Z", "X")


def own() -> str:
    """Returns the name of this process, by which another one can tell whether it is gone."""
    return _named(os.getpid())


def is_gone(worker: str) -> bool:
    """Returns whether the process has ended; False if this cannot be checked."""
    host, _, rest = worker.partition(" ")
    number = rest.partition(" ")[0]
    return host == os.uname().nodename and number.isdecimal() and _told(int(number)) != rest


@cache
def _named(process: int) -> str:
    return f"{os.uname().nodename} {_told(process)}"


def _told(process: int) -> str:
    """Returns the pid and the start of a process; "" if it has ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in _ENDED else f"{process} {fields[_START]}"
