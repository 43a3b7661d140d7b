"""The identity of what a restore puts in place: a new one, because the original may still run somewhere with its disks.

Its steps are part of the restore's: until ``restoring`` goes from the home, no core starts there, so a restore that was killed
between them is done again.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from mailcore.backup.places import give_as
from mailcore.log.disk import Disk
from mailcore.queue.identity import (
    HOME,
    LOCK,
    NAME,
    Identity,
    IdentityError,
    lock_directory,
    look,
    marked_as,
    new_identity,
    write_identity,
)

__all__ = ["directories_alone", "identify_home", "identify_staged"]


@contextlib.contextmanager
def directories_alone(disk: Disk, directories: Mapping[str, str]) -> Iterator[None]:
    """Holds the locks of queue, spool and events. Raises IdentityError if one is in use, or belongs to another home."""
    locks = []
    try:
        for each in look(disk, directories):
            if each.is_foreign:
                raise IdentityError(each.why_not)
            if each.name != HOME and Path(each.directory, LOCK).exists():  # else it would be root's
                locks.append(lock_directory(disk, each.name, each.directory))
        yield
    finally:
        for lock in locks:
            disk.close(lock)


def identify_staged(folders: Mapping[str, Path], home: Path, now: float) -> Identity:
    """Gives directories that are still aside a new identity; returns what the home must carry."""
    own = new_identity(str(home), now, _token)
    for name, folder in folders.items():
        own = _mark(own, name, folder)
    return own


def identify_home(own: Identity, directories: Mapping[str, str]) -> None:
    """Writes the new identity into the home, and into directories that stayed in place. Raises OSError."""
    for name, directory in directories.items():
        if name != HOME and name not in own.marked and Path(directory).is_dir():
            own = _mark(own, name, Path(directory))
    home = Path(directories[HOME])
    write_identity(Disk(), str(home), own)
    give_as(home, [home / NAME])


def _mark(own: Identity, name: str, directory: Path) -> Identity:
    given = marked_as(own, name, _token)
    write_identity(Disk(), str(directory), given)
    give_as(directory, [directory / NAME])
    return msgspec.structs.replace(own, marked={**own.marked, name: given.mark})


def _token() -> str:
    return secrets.token_hex(16)
