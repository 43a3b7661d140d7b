"""The start of every child: it binds its life to the supervisor's and reads the settings that the supervisor stored.

The settings come from ``settings.json`` in the run directory, as the supervisor read them at its own start: a configuration
file that is being edited can't prevent the restart of a child.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from mailcore.config.settings import Settings
from mailcore.config.settings_files import IN_FORCE
from mailcore.log.disk import Disk
from mailcore.queue.identity import Identity, guards_of
from mailcore.supervisor.forked import end_with
from mailcore.supervisor.users import share

__all__ = ["IDENTITY", "SETTINGS_NAME", "Main", "identity_variable", "run_child", "store_settings", "stored_settings"]

Main: TypeAlias = Callable[[Settings, int], None]  # of a process: its settings, its number among those of its role

SETTINGS_NAME = IN_FORCE
IDENTITY = "WAYPOST_IDENTITY"  # in the environment: that of the home, which the supervisor has checked
# A thread that has finished a sync waits at most this long for the busy loop, instead of Python's 5 ms: messages wait for it.
SWITCH_INTERVAL_S = 0.0005
# There are thousands of live messages and sessions and few cycles; with Python's 700 the collector searches them too often.
COLLECT_AFTER = (50_000, 20, 50)


def store_settings(settings: Settings, path: Path) -> None:
    """Writes the settings to ``path``, for the children; replaces the file atomically. Raises OSError.

    A file that has them already stays: on a full disk there might be no room for another.
    """
    data = msgspec.json.encode(settings, enc_hook=str)
    with contextlib.suppress(FileNotFoundError):
        if path.read_bytes() == data:
            return
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)  # a password may be in it
    with open(descriptor, "wb") as file:
        file.write(data)
    new.replace(path)


def stored_settings(path: Path) -> Settings:
    """Returns the settings that the processes have. Raises OSError."""

    def convert(kind: type, value: Any) -> Any:
        return kind(value)

    return msgspec.json.decode(path.read_bytes(), type=Settings, dec_hook=convert)


def identity_variable(identity: Identity) -> str:
    """Returns the value of IDENTITY."""
    return msgspec.json.encode(identity).decode()


def guard(settings: Settings) -> None:
    """Refuses every change in a directory that does not carry the identity any more, in this process."""
    if found := os.environ.pop(IDENTITY, ""):
        directories = {name: str(path) for name, path in settings.identified_directories.items()}
        Disk.guards = guards_of(directories, msgspec.json.decode(found, type=Identity))


def run_child(load: Callable[[], Main], number: int, parent: int, stored: str) -> int:
    """Runs ``load()(settings, number)`` with the settings in the file ``stored``; returns the exit status.

    ``load`` imports the process's room: the child is bound to its parent before that, which takes a while, and everything
    that it has imported is frozen before its work begins. ``parent`` is the supervisor's process id.
    """
    if not end_with(parent):
        return 1
    settings = stored_settings(Path(stored))
    main = load()
    share()
    guard(settings)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)
    main(settings, number)
    return 0
