"""Postfix's queue directory: which messages are in it, and that no master works on them meanwhile."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path

__all__ = ["MasterRuns", "aside", "message_files", "nobody_else", "strangers"]

# As mail comes to rest nearer to its delivery: what was about to be sent goes first.
QUEUES = ("active", "incoming", "deferred", "hold", "maildrop")
_DEPTH_MAX = 5  # hash_queue_depth is 1 or 2
_QUEUE_ID = re.compile(r"[0-9A-Za-z]{5,64}")  # short: hexadecimal; long (enable_long_queue_ids): 52 letters and digits


class MasterRuns(Exception):
    """Postfix works on this queue."""


@contextlib.contextmanager
def nobody_else(directory: Path) -> Iterator[None]:
    """Holds the lock that Postfix's master holds while it runs, so that none starts meanwhile either. A queue that is a copy
    has a lock file of its own, which nobody holds. Raises MasterRuns, OSError."""
    try:
        descriptor = os.open(directory / "pid" / "master.pid", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield  # a copy without it, or one that never ran
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            raise MasterRuns(f"Postfix runs on {directory} (process {pid}): stop it first, or copy its queue") from None
        yield
    finally:
        os.close(descriptor)


def message_files(directory: Path) -> Iterator[tuple[str, Path]]:
    """Queue and file, in the order of ``QUEUES``, then of queue ids. Raises OSError where a directory can't be read."""
    for queue in QUEUES:
        place = directory / queue
        if place.is_dir():
            yield from ((queue, path) for path in sorted(_messages(place), key=lambda path: path.name))


def strangers(directory: Path) -> list[str]:
    """Names of what lies among the messages and is none: Postfix passes it over, too. A file that it had just begun to make has
    such a name."""
    places = [directory / queue for queue in QUEUES]
    found = [path for place in places if place.is_dir() for path, is_message in _below(place, 0) if not is_message]
    return sorted(os.fsencode(path.relative_to(directory)).decode("utf-8", "replace") for path in found)


def aside(directory: Path, name: str) -> set[str]:
    """Queue ids of which something lies in another directory of the queue: "corrupt", "bounce"."""
    place = directory / name
    return {path.name for path in _messages(place)} if place.is_dir() else set()


def _messages(place: Path) -> Iterator[Path]:
    return (path for path, is_message in _below(place, 0) if is_message)


def _below(place: Path, depth: int) -> Iterator[tuple[Path, bool]]:
    """All that is no directory, and whether it may be a message."""
    with os.scandir(place) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if depth < _DEPTH_MAX:
                    yield from _below(Path(entry.path), depth + 1)
            else:
                is_message = entry.is_file(follow_symlinks=False) and _QUEUE_ID.fullmatch(entry.name) is not None
                yield Path(entry.path), is_message
