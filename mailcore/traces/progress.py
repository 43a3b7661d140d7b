"""How far the log was read for traces, and what became of the spans: ``events/_traces/progress.json``.

It is replaced atomically and synced after the collector has answered. So a kill in between sends the spans of one request
again, with the same ids.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from mailcore.config.settings import Settings
from mailcore.log.disk import Disk
from mailcore.queue.exported import UNEXPORTED

__all__ = ["TRACES", "Progress", "behind", "progress_directory", "read_progress", "write_progress"]

TRACES = "_traces"  # below the events; readers of events skip names that begin with an underscore
NAME = "progress.json"


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """Holds the contents of the file. Offsets are lane offsets."""

    lanes: dict[str, int] = {}  # read up to here
    again: dict[str, int] = {}  # a start reads from here, without sending, what later spans need to know
    sent: int = 0  # spans that the collector took, since the first start
    rejected: int = 0  # spans that the collector refused for good
    lost_bytes: int = 0  # of the log that was deleted before it was read
    failure: str = ""  # of the collector, now; "" if it answers
    failing_since: float = 0.0  # wall clock
    version: int = 1


def progress_directory(settings: Settings) -> Path:
    """Returns the directory of the file."""
    return settings.events_directory / TRACES


def read_progress(disk: Disk, directory: Path) -> Progress | None:
    """Reads the file; None if there is none. Raises OSError, or ValueError for a damaged file."""
    path = os.path.join(directory, NAME)
    try:
        return msgspec.json.decode(disk.read_whole(path), type=Progress)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise ValueError(f"{path}: {error}") from error


def write_progress(disk: Disk, directory: Path, progress: Progress) -> None:
    """Writes the file atomically and synced. Raises OSError; the old file then stays."""
    disk.make_directory(str(directory))
    disk.write_whole(
        os.path.join(directory, NAME), msgspec.json.format(msgspec.json.encode(progress), indent=1) + b"\n"
    )


def behind(ends: dict[str, int], progress: Progress) -> int:
    """Returns the bytes of the log that were not read yet. ``ends``: of each lane, the journal included."""
    return sum(max(0, end - progress.lanes.get(lane, 0)) for lane, end in ends.items() if lane not in UNEXPORTED)
