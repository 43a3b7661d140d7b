"""The messages that wait in the maildrop: how many there are, and what is known of each.

They are not in the queue yet, so that the control process does not list them. The directory may be listed by its owner alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from mailcore.counted import counted
from mailcore.log.disk import Disk
from mailcore.pickup.dropped import DIRECTORY, Dropped, DroppedDamaged, names_of

__all__ = ["Letter", "Maildrop", "OpenMaildrop"]


class Letter(NamedTuple):
    """A message in the maildrop."""

    sender: str
    recipients: tuple[str, ...]
    submitted_at: float  # wall clock, seconds


class Maildrop:
    """The maildrop of a home."""

    def __init__(self, home: Path) -> None:
        self.directory = home / DIRECTORY

    def names(self) -> list[str] | None:
        """Returns the names of its files; None if this user may not list them. Raises OSError."""
        try:
            return names_of(os.listdir(self.directory))
        except FileNotFoundError:
            return []
        except PermissionError:
            return None

    def said(self) -> str:
        """Returns a sentence about the messages that wait; "" if there are none, or it is not known. Raises OSError."""
        names = self.names()
        return f"{counted(len(names), 'message')} in the maildrop, not in the queue yet" if names else ""

    def unlisted(self) -> str:
        """Returns the sentence for a user who may not list the directory."""
        return f"{self.directory}: only root and the user of Waypost may list the maildrop"

    def letters(self, names: list[str], notes: list[str]) -> Iterator[Letter]:
        """Yields what is known of each message that is still there; adds to ``notes`` what cannot be read."""
        disk = Disk()
        for name in names:
            try:
                dropped = Dropped(disk, str(self.directory), name)
            except FileNotFoundError:  # it was taken
                continue
            except (DroppedDamaged, OSError) as error:
                notes.append(f"{self.directory / name}: {error}")
                continue
            submission = dropped.submission
            dropped.close()
            yield Letter(submission.sender, submission.recipients, submission.submitted_at)


OpenMaildrop = Callable[[str], Maildrop]
"""Returns the maildrop of the configuration file given with -c."""
