"""Notes of mails of reports that were handed in and of which the other nodes do not know yet: a file for each day.

A note is there before this node tells the others, and goes when the core's exporter has answered. So the others hear it when it
answers again, also after a restart, and this node does not mail the day again in between.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from datetime import date
from pathlib import Path

from django.conf import settings

__all__ = ["forget", "note", "noted"]

DIRECTORY = "handed-in"  # below the reports
KEPT_S = 86_400.0  # by then another node has mailed it, if it was to
_QUEUE_ID = re.compile("[0-9A-Za-z]{1,64}")


def note(day: date, queue_id: str) -> None:
    """Writes that the mail of a day was handed in. Raises OSError."""
    path = _path(day)
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    with new.open("w") as file:
        file.write(queue_id)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def noted() -> dict[date, str]:
    """Returns the queue id by day; what is old or cannot be read is left out."""
    found: dict[date, str] = {}
    directory = settings.REPORTS_DIRECTORY / DIRECTORY
    with contextlib.suppress(OSError):
        for path in directory.iterdir():
            with contextlib.suppress(OSError, ValueError):
                day, queue_id = date.fromisoformat(path.name), path.read_text()
                if time.time() - path.stat().st_mtime > KEPT_S:
                    path.unlink()
                elif _QUEUE_ID.fullmatch(queue_id):
                    found[day] = queue_id
    return found


def forget(day: date) -> None:
    """Removes the note of a day: the others know it."""
    with contextlib.suppress(OSError):
        _path(day).unlink(missing_ok=True)


def _path(day: date) -> Path:
    directory: Path = settings.REPORTS_DIRECTORY / DIRECTORY
    return directory / day.isoformat()
