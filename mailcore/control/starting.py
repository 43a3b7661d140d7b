"""Waits for a process of a core that has just started: its processes listen one after another, within seconds.

Without it a command would say that Waypost is not running, because it came a second too early.
"""

from __future__ import annotations

import socket
import time
from pathlib import Path

__all__ = ["PATIENCE_S", "wait_until_it_listens"]

PATIENCE_S = 20.0  # a machine with little processor time loads the modules of a process for several seconds
LOOK_EVERY_S = 0.1


def wait_until_it_listens(path: Path, control: Path, patience_s: float = PATIENCE_S) -> bool:
    """Returns whether a process listens on the socket ``path``. Waits for it only while one listens on ``control``."""
    end = time.monotonic() + patience_s
    while not (listens := _listens(path)) and time.monotonic() < end and _listens(control):
        time.sleep(LOOK_EVERY_S)
    return listens


def _listens(path: Path) -> bool:
    """Returns False only if it is sure that no process listens: a socket that this user may not use has its own error."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except OSError:
            return True
    return True
