"""Owners of files and directories that a restore puts in place, and checks of what is already there."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from mailcore.queue.identity import LOCK, NAME

__all__ = [
    "BEFORE",
    "FOLDER_MODE",
    "OF_STARTS",
    "SUFFIX",
    "give",
    "give_as",
    "has_something",
    "is_mounted",
    "make_folder",
    "named",
    "remove",
]

FOLDER_MODE = 0o700
OF_STARTS = ("lock", NAME, LOCK)  # files that a start makes, with or without mail
SUFFIX = ".restoring"  # of restored files until everything is complete
BEFORE = ".before-"  # of files that were moved aside, with the time


def give(path: Path, user: str, group: str, mode: int) -> None:
    """Gives a path to its owner, and sets its mode. Only root changes the owner; a name unknown here is ignored."""
    if os.geteuid() == 0 and user:
        with contextlib.suppress(LookupError):
            shutil.chown(path, user, group or None)
    path.chmod(mode)  # afterwards: giving away takes the setgid bit


def give_as(like: Path, paths: Iterable[Path]) -> None:
    """Gives files that root created to the owner of ``like``."""
    if os.geteuid() == 0:
        owner = like.stat()
        for path in paths:
            os.chown(path, owner.st_uid, owner.st_gid)


def has_something(place: Path) -> bool:
    """Returns whether the place contains files. Files that an earlier restore left or moved aside do not count: they
    stay where a disk is mounted."""
    if place.is_dir():
        return any(
            path.is_file()
            and path.name not in OF_STARTS
            and not path.relative_to(place).parts[0].startswith((SUFFIX, BEFORE))
            for path in place.rglob("*")
        )
    return place.exists()


def is_mounted(place: Path) -> bool:
    """Returns whether something is mounted exactly there (proc_pid_mountinfo(5)): such a place cannot be renamed."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as mounts:
        points = {re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), line.split()[4]) for line in mounts}
    return os.path.realpath(place) in points


def make_folder(folder: Path) -> None:
    """Creates a directory and its parents."""
    folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)


@contextlib.contextmanager
def named(path: Path) -> Iterator[None]:
    """Adds the path to an OSError that names no file: that of a full disk does not, because it comes from a descriptor."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def remove(path: Path) -> None:
    """Removes a file or a directory tree."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
