"""Processes beside the portal: each ends with its parent, and one of each kind runs at a time."""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
from pathlib import Path

__all__ = ["alone", "end_with_parent"]

_PR_SET_PDEATHSIG = 1  # prctl(2)


def end_with_parent(parent: int) -> bool:
    """Lets this process end with its parent; returns False if that has ended already."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    return os.getppid() == parent


def alone(lock: Path) -> int:
    """Waits until no other process holds the lock; returns the descriptor that keeps it while it is open."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    hold = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    fcntl.flock(hold, fcntl.LOCK_EX)
    return hold
