"""The settings that are in force: they change while the processes of the portal run (``waypost reload``, the settings pages).

The supervisor replaces a file in its run directory whenever other settings come into force. The portal's user may not read that
file; that it is another one says that the configuration file and the managed one are to be read again. Files that can't be
used change nothing: the settings before stay.

The sections [portal] and [oidc] are read when a process starts (``appliance.settings``).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from django.conf import settings

from mailcore.config.load import ConfigError, Settings, load
from mailcore.config.settings_files import IN_FORCE

__all__ = ["CurrentSettings", "current_settings"]

LOOK_S = 0.5  # between two looks at the file of the supervisor
_State = tuple[int, int]  # of the file: its inode and when it was written
_log = logging.getLogger("waypost.settings")


class CurrentSettings:
    """Reads the settings again when others are in force. For several threads."""

    def __init__(
        self,
        first: Callable[[], Settings],
        read: Callable[[], Settings],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``first`` returns the settings of the start, ``read`` those of the files; it raises ConfigError."""
        self._first = first
        self._read = read
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._looked_at = float("-inf")
        self._state: _State | None = None  # that was read
        self._found: Settings | None = None

    def __call__(self) -> Settings:
        """Returns the settings."""
        with self._lock:
            now = self._monotonic()
            if now - self._looked_at >= LOOK_S:
                self._looked_at = now
                self._look()
            return self._found or self._first()

    def _look(self) -> None:
        state = _state_of(self._first().run_directory / IN_FORCE)
        if state is None or state == self._state:
            return
        try:
            self._found = self._read()
        except ConfigError as error:
            _log.warning("the settings before stay: %s", error)
        self._state = state


def _state_of(path: Path) -> _State | None:
    """Returns the state of the file; None if there is none, as while the core has never run."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _first() -> Settings:
    found: Settings = settings.WAYPOST
    return found


current_settings = CurrentSettings(
    _first, lambda: load(settings.CONFIG, look_at_certificate=False, managed_may_be_hidden=True)
)
