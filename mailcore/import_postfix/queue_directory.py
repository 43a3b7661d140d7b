"""Postfix's queue directory: where it is, its messages, and the lock that keeps Postfix from starting.

Keeps law: a-copy-is-another-host (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path

from mailcore.import_postfix.machine import Machine
from mailcore.import_postfix.tables import TableFault
from mailcore.terminal.command import UsageError

__all__ = ["MasterRuns", "aside", "message_files", "other_files", "postfix_stopped", "queue_directory"]

# Mail that Postfix was about to send comes first.
QUEUES = ("active", "incoming", "deferred", "hold", "maildrop")
_DEPTH_MAX = 5  # hash_queue_depth is 1 or 2
_QUEUE_ID = re.compile(r"[0-9A-Za-z]{5,64}")  # short: hexadecimal; long (enable_long_queue_ids): 52 letters and digits


class MasterRuns(Exception):
    """Postfix is running on this queue."""


def queue_directory(machine: Machine, given: Path | None) -> Path:
    """Returns the queue directory: the one given, or that of main.cf if it is of the same Postfix. Raises UsageError."""
    name = machine.cf.value("queue_directory")
    try:
        if given is None:
            if not name:
                raise TableFault("it is empty")
            given = machine.tables.path(name)
    except TableFault as fault:
        raise UsageError(
            f"import-postfix: {machine.what('queue_directory')}: {fault}. Give the queue, or a copy of it, with "
            "--queue-directory DIR"
        ) from None
    if not given.is_dir():
        raise UsageError(f"import-postfix: {given} is not a directory; give the queue with --queue-directory DIR")
    return given


@contextlib.contextmanager
def postfix_stopped(directory: Path) -> Iterator[None]:
    """Holds the lock that Postfix's master holds while it runs, so that Postfix cannot start.

    A copy of a queue has its own lock file, which is free. Raises MasterRuns, OSError.
    """
    try:
        descriptor = os.open(directory / "pid" / "master.pid", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        yield  # a copy without lock file, or a Postfix that has never run
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            raise MasterRuns(
                f"Postfix is running on {directory} (process {pid}); stop it first, or import a copy of its queue"
            ) from None
        yield
    finally:
        os.close(descriptor)


def message_files(directory: Path) -> Iterator[tuple[str, Path]]:
    """Yields queue and file in the order of QUEUES, then of queue IDs. Raises OSError if a directory is unreadable."""
    for queue in QUEUES:
        place = directory / queue
        if place.is_dir():
            yield from ((queue, path) for path in sorted(_messages(place), key=lambda path: path.name))


def other_files(directory: Path) -> list[str]:
    """Returns names of files that are not messages. Postfix ignores them, too; a new file has such a name at first."""
    places = [directory / queue for queue in QUEUES]
    found = [path for place in places if place.is_dir() for path, is_message in _below(place, 0) if not is_message]
    return sorted(os.fsencode(path.relative_to(directory)).decode("utf-8", "replace") for path in found)


def aside(directory: Path, name: str) -> set[str]:
    """Returns the queue IDs in another directory of the queue, such as "corrupt" or "bounce"."""
    place = directory / name
    return {path.name for path in _messages(place)} if place.is_dir() else set()


def _messages(place: Path) -> Iterator[Path]:
    return (path for path, is_message in _below(place, 0) if is_message)


def _below(place: Path, depth: int) -> Iterator[tuple[Path, bool]]:
    """Yields all files, and whether each may be a message."""
    with os.scandir(place) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if depth < _DEPTH_MAX:
                    yield from _below(Path(entry.path), depth + 1)
            else:
                is_message = entry.is_file(follow_symlinks=False) and _QUEUE_ID.fullmatch(entry.name) is not None
                yield Path(entry.path), is_message
