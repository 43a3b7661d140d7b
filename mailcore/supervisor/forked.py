"""The rules of a forked child: it ends with its parent, and never returns into the code that forked it.

Must not know: what the child is for.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

__all__ = ["end_with", "run_and_exit"]

_PR_SET_PDEATHSIG = 1  # prctl(2)


def end_with(parent: int) -> bool:
    """Makes this process end when its parent does. Returns False if the parent has ended already."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    return os.getppid() == parent


def run_and_exit(work: Callable[[], int]) -> NoReturn:
    """Runs ``work`` and ends this process with the status that it returns; 1 after an error, whose traceback is printed.

    ``sys.exit`` with words prints them, as a program of its own does.
    """
    status = 1
    try:
        status = work()
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            with contextlib.suppress(OSError):
                os.write(2, f"{error.code}\n".encode(errors="backslashreplace"))
    except BaseException:  # nothing may return into the code that forked
        with contextlib.suppress(OSError):
            os.write(2, traceback.format_exc().encode())
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)
