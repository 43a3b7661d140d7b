"""Adoption: an operator makes a directory one of this home, although it is empty or carries another identity.

For a disk whose contents are lost: Waypost continues without them, and the lost disk does not count any more when it comes
back.

Laws
- The directory gets its identity first, with a new mark, then the home its mark. Killed in between, the start is refused, and
  the same command is given again.
- A directory that a running Waypost uses is not touched.

Keeps law: one-identity (docs/laws.md).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

import msgspec

from mailcore.log.disk import Disk
from mailcore.queue.first_start import holds_spool_files, queue_has_begun
from mailcore.queue.identity import (
    HOME,
    Identity,
    IdentityDamaged,
    IdentityError,
    Token,
    described,
    lock_directory,
    marked_as,
    new_identity,
    read_identity,
    write_identity,
)

__all__ = ["adopt"]


def adopt(disk: Disk, name: str, directories: Mapping[str, str], now: float, token: Token) -> Identity:
    """Makes the directory ``name`` one of this home; returns the home's identity. The caller holds the home's lock.

    Raises IdentityError if another Waypost uses it, or mail would be lost by it; OSError.
    """
    home = directories[HOME]
    own = _read(disk, HOME, home)
    others = {each: path for each, path in directories.items() if each != HOME}
    if name == HOME:
        if own is not None and own.directory == HOME:
            raise IdentityError(f"the home {home} carries an identity already, {described(own)}")
        return _adopt_home(disk, home, others, now, token)
    if own is None:
        if any(_read(disk, each, path) is not None for each, path in others.items()):
            raise IdentityError(f"the home {home} carries no identity; adopt it first: waypost identity adopt home")
        own = new_identity(home, now, token)
        write_identity(disk, home, own)
    path = others[name]
    if name == "queue" and not queue_has_begun(disk, path) and holds_spool_files(disk, others["spool"]):
        raise IdentityError(
            f"{path} holds no queue, and the files in the spool directory {others['spool']}, which are mail of the lost one, "
            "would be deleted as unknown: rename that directory first, and adopt spool too"
        )
    disk.make_directory(path)
    lock = lock_directory(disk, name, path)
    try:
        given = marked_as(own, name, token)
        write_identity(disk, path, given)
        own = msgspec.structs.replace(own, marked={**own.marked, name: given.mark})
        write_identity(disk, home, own)
    finally:
        disk.close(lock)
    return own


def _adopt_home(disk: Disk, home: str, others: Mapping[str, str], now: float, token: Token) -> Identity:
    """Gives the home the identity that its other directories carry, or a new one if none does."""
    carried = {name: found for name, path in others.items() if (found := _read(disk, name, path)) is not None}
    different = {found.identity: name for name, found in carried.items()}
    if len(different) > 1:
        names = " and ".join(f"{name} ({described(carried[name])})" for name in different.values())
        raise IdentityError(
            f"the directories of the home {home} belong to different homes: {names}; correct the configuration"
        )
    own = new_identity(home, now, token)
    locks = []
    try:
        for name, found in carried.items():
            if found.home != home and _read(disk, HOME, found.home) is not None:
                raise IdentityError(
                    f"the {name} directory {others[name]} belongs to the home {found.home}, which exists: correct the "
                    "configuration"
                )
            locks.append(lock_directory(disk, name, others[name]))
            own = msgspec.structs.replace(own, identity=found.identity, marked={**own.marked, name: found.mark})
        write_identity(disk, home, own)
    finally:
        for lock in locks:
            disk.close(lock)
    return own


def _read(disk: Disk, name: str, directory: str) -> Identity | None:
    """Returns None for a damaged identity, too."""
    with contextlib.suppress(IdentityDamaged):
        return read_identity(disk, name, directory)
    return None
