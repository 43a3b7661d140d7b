"""Where tables lie, and how they come to be seen: whole, or not at all.

```
OUTPUT/versions/gold.day=2026-11-20.TOKEN/   written here, synced,
OUTPUT/gold/day=2026-11-20 -> ../versions/…  then pointed at: one rename
OUTPUT/lock                                  held by the run that writes
OUTPUT/scratch/                              Spark's own, while it runs
```

Laws
- What a name points at is never written to again. A run killed at any point leaves the pointers as they were, and a
  version without a pointer, which the next run removes, with the temporary files of its Java.
- A replaced version stays until the next run begins, for processes that still read it. A reader of several tables of a day
  resolves its pointer once.

Keeps law: day-published-whole (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

__all__ = ["DELETED", "VERSION", "Busy", "Store", "report_fingerprint", "tells"]

# Of the tables and report.json: raise it to have days made again by the next run. 2: attempts are what a next hop was asked;
# mail that was put off and mail returned without attempt are columns of their own.
VERSION = 2
DELETED = ".deleted"  # behind a table's name: an empty file where the portal deleted it because of its age
SPILLED = ("blockmgr-*", "spark-*")  # what Spark calls its directories; it clears them when it ends in peace


def report_fingerprint(said: bytes) -> str:
    """Returns a hash of a day's ``report.json``, which names its events, its counts and its balance; its tables follow
    from these."""
    return hashlib.sha256(said).hexdigest()


def tells(said: bytes) -> bool:
    """Returns whether a day's ``report.json`` has the fields that weeks and pages need; otherwise it counts as
    missing."""
    try:
        told = json.loads(said)
    except (ValueError, RecursionError):
        return False
    return (
        isinstance(told, dict)
        and isinstance(told.get("day"), str)
        and isinstance(told.get("damaged"), list)
        and isinstance(told.get("balance"), dict)
        and "balances" in told["balance"]
    )


class Busy(Exception):
    """Another run writes there."""


class Store:
    """The directory of reports: what a run writes is published as a whole or not at all."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.versions = self.root / "versions"
        self.scratch = self.root / "scratch"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the lock of the store, so that one run at a time writes; the lock ends with its process, also after a
        crash. Raises Busy."""
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / "lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Busy(f"another run is writing to {self.root}") from None
            self.versions.mkdir(exist_ok=True)
            self._sweep()
            yield

    def begin(self, name: str) -> Path:
        """Creates an empty directory for the next version of ``name``, such as "gold/day=2026-11-20"."""
        aside = self.versions / f"{name.replace('/', '.')}.{os.getpid()}-{time.time_ns()}"
        aside.mkdir()
        return aside

    def publish(self, aside: Path, name: str) -> None:
        """Publishes the content of ``aside`` as the current version of ``name``."""
        _sync_tree(aside)
        _sync(self.versions)
        pointer = self.root / name
        pointer.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.versions / f"{aside.name}.pointer"
        fresh.symlink_to(os.path.relpath(aside, pointer.parent))
        fresh.replace(pointer)
        _sync(pointer.parent)

    def current(self, name: str) -> Path | None:
        """Returns the directory of the version that ``name`` points at, or None."""
        pointer = self.root / name
        return pointer.resolve() if pointer.exists() else None

    def names(self, family: str) -> list[str]:
        """Returns the names published under a directory: "day=2026-11-20" of "gold"."""
        directory = self.root / family
        return sorted(pointer.name for pointer in directory.iterdir() if pointer.exists()) if directory.is_dir() else []

    def _sweep(self) -> None:
        used = {
            pointer.resolve()
            for family in self.root.iterdir()
            if family.is_dir() and family != self.versions
            for pointer in family.iterdir()
            if pointer.is_symlink()
        }
        for version in self.versions.iterdir():
            if version.is_symlink():
                version.unlink()
            elif version not in used:
                shutil.rmtree(version)
        for spilled in SPILLED:
            for left in self.scratch.glob(spilled):
                shutil.rmtree(left, ignore_errors=True)  # a Java that is about to end may still write there


def _sync_tree(directory: Path) -> None:
    for path in directory.rglob("*"):
        _sync(path)
    _sync(directory)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
