"""What every child of the supervisor does first: it ties its life to the supervisor's and reads the configuration."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from mailcore.config import ConfigError, load
from mailcore.settings import Settings

__all__ = ["run_child"]

_PR_SET_PDEATHSIG = 1  # prctl(2)
SWITCH_INTERVAL_S = (
    0.0005  # a sync that is done waits so long for the busy loop, not Python's 5 ms: messages wait for it
)


def run_child(main: Callable[[Settings, int], None]) -> int:
    """``main(settings, number)`` with the arguments of the command line: number, supervisor's process id, configuration."""
    number, parent, config = sys.argv[1:]
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(parent):  # it ended before we could say so
        return 1
    try:
        settings = load(Path(config))
    except ConfigError as error:
        print(f"waypost: {error}", file=sys.stderr)
        return 2
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    main(settings, int(number))
    return 0
