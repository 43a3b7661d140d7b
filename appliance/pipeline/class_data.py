"""Keeps what Java knows of Spark's classes once it has loaded them, so that the next run need not load and check them again.

Most of what Spark costs a small day is loading classes. A Java that was started with ``-XX:ArchiveClassesAtExit`` writes them
into an archive when it ends, and one with ``-XX:SharedArchiveFile`` maps it. The archive is bound to the exact Java and jars.

Laws
- No report fails for the archive: without one, with one of another Java or other jars, or with a damaged one, Java starts
  without it. Java checks what it is bound to, but not its bytes, so these are checked here before each use.
- An archive that a run began to use and did not end with is not used again: it may be why.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyspark

from appliance.pipeline.java import behind

__all__ = ["ClassData", "bound_to"]

WRITE_S = 300.0  # how long Java may take to end; it writes for some twenty seconds
QUIET = (
    "-Xshare:auto",
    "-Xlog:disable",
    "-Xlog:all=error:stderr",
)  # else it says on standard output why it does without
_CHUNK_BYTES = 1 << 22


class ClassData:
    """The archive in a directory. ``make``: whether a run that finds no good one makes one."""

    def __init__(self, directory: Path, make: bool = False) -> None:
        self.archive = directory / "classes.jsa"
        self._make = make
        self._made_of = directory / "classes.json"  # its length, its checksum and what it is bound to
        self._in_use = directory / "classes.in-use"
        self._bound_to = ""
        self._writing: Path | None = None

    def is_good(self, bound_to: str) -> bool:
        """Returns whether there is an archive for this Java and these jars, unchanged since it was written."""
        told = self._told()
        return (
            told.get("bound_to") == bound_to
            and told.get("bytes") == _size(self.archive)
            and not self._in_use.exists()
            and told.get("crc32") == _crc32(self.archive)
        )

    def options(self, home: Path) -> Sequence[str]:
        """Returns the options for the Java in ``home``: those that use the archive if it is good; else, with ``make``, those
        that write one when Java ends; else none."""
        self._bound_to = bound_to(home)
        try:
            if self.is_good(self._bound_to):
                self._in_use.touch()
                return (f"-XX:SharedArchiveFile={self.archive}", *QUIET)
            self.forget()
            if self._make and self._told().get("none_for") != self._bound_to:
                self._writing = self.archive.with_suffix(f".{os.getpid()}")
                return (f"-XX:ArchiveClassesAtExit={self._writing}", *QUIET)
        except OSError:  # a full disk: Java does without
            pass
        return ()

    def forget(self) -> None:
        """Deletes the archive, and what runs that were killed left of others."""
        told = self._told()
        for path in (self.archive, self._in_use, *self.archive.parent.glob(f"{self.archive.stem}.[0-9]*")):
            path.unlink(missing_ok=True)
        if "none_for" not in told:
            self._made_of.unlink(missing_ok=True)

    def ended(self, java: subprocess.Popen[Any] | None) -> bool:
        """Says that the run came to its end with the archive that it used. If Java is to write one, waits for that. Returns
        whether there is a new one."""
        self._in_use.unlink(missing_ok=True)
        if self._writing is None or java is None:
            return False
        try:
            if java.stdin is not None:
                java.stdin.close()  # Java ends with this pipe
            java.wait(WRITE_S)
        except (OSError, subprocess.TimeoutExpired):
            java.kill()
            java.wait()
        writing, self._writing = self._writing, None
        with contextlib.suppress(OSError):
            size = _size(writing)
            told: dict[str, Any] = {"none_for": self._bound_to}  # Java cannot, and is not asked again
            if size > 0:
                told = {"bound_to": self._bound_to, "bytes": size, "crc32": _crc32(writing)}
                writing.replace(self.archive)
            fresh = self._made_of.with_suffix(".new")
            fresh.write_text(json.dumps(told), encoding="utf-8")
            fresh.replace(self._made_of)
            return size > 0
        return False

    def _told(self) -> dict[str, Any]:
        try:
            told = json.loads(self._made_of.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return told if isinstance(told, dict) else {}


def bound_to(home: Path) -> str:
    """Returns a text that changes with Java and with the jars."""
    java = behind(home)
    jars = sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar"))
    told = [str(java), pyspark.__version__]
    for file in (java / "release", java / "bin" / "java", java / "lib" / "server" / "libjvm.so", *jars):
        with contextlib.suppress(OSError):
            stat = file.stat()
            told.append(f"{file} {stat.st_size} {stat.st_mtime_ns}")
    return hashlib.sha256("\n".join(told).encode()).hexdigest()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _crc32(path: Path) -> int:
    found = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            found = zlib.crc32(chunk, found)
    return found
