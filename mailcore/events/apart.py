"""Runs a piece of work in a child process, which ends with it and gives back the memory that it took.

pyarrow takes 50 MB from its import on, and as much again after the first file is written. The exporter writes files for a
second, and then waits for minutes or hours; a child that is forked for each piece of work imports pyarrow, and ends.

Laws
- The caller has one thread: a fork copies only the thread that calls it, and locks of others stay locked.
- The child ends when its parent does. It never returns into the caller's code.
- What the work raises is raised in the caller, if it is one of the errors that are named; any other ends the child with its
  traceback on standard error, and the caller gets ChildFailed.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable
from typing import TypeVar

from mailcore.supervisor.forked import end_with, run_and_exit

__all__ = ["ChildFailed", "at_once", "in_a_child"]

R = TypeVar("R")
_READ_BYTES = 1 << 16


class ChildFailed(Exception):
    """The child ended without a result: it was killed, or a fault of ours is in its traceback."""


def at_once(work: Callable[[], R], expected: tuple[type[Exception], ...]) -> R:
    """Does the work here."""
    return work()


def in_a_child(work: Callable[[], R], expected: tuple[type[Exception], ...]) -> R:
    """Does the work in a child; returns its result or raises its error, if that is one of ``expected``. Both are pickled.

    Raises ChildFailed, and OSError if there is no process or no memory.
    """
    parent = os.getpid()
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()  # or the child would write the rest, too
    try:
        pid = os.fork()
    except OSError:
        os.close(reader)
        os.close(writer)
        raise
    if not pid:
        run_and_exit(lambda: _answer(work, expected, writer, parent))
    os.close(writer)
    parts = []
    with open(reader, "rb", buffering=0) as pipe:
        while part := pipe.read(_READ_BYTES):
            parts.append(part)
    _, status = os.waitpid(pid, 0)
    if status:
        raise ChildFailed(f"the process that writes events ended with status {os.waitstatus_to_exitcode(status)}")
    result, error = pickle.loads(b"".join(parts))  # noqa: S301 - from our own child
    if error is not None:
        raise error
    done: R = result
    return done


def _answer(work: Callable[[], object], expected: tuple[type[Exception], ...], writer: int, parent: int) -> int:
    """Does the work in the child and writes what became of it; returns the exit status."""
    if not end_with(parent):
        return 1
    try:
        answer = pickle.dumps((work(), None))
    except expected as error:
        answer = pickle.dumps((None, error))
    with open(writer, "wb") as pipe:
        pipe.write(answer)
    return 0
