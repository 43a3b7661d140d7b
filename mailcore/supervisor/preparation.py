"""Prepares a start: takes the home, checks the identity of the disks, makes what the children need, refuses ports in use.

Keeps law: one-waypost-per-home, law: one-identity (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import time
from collections.abc import Collection, Iterable
from pathlib import Path

from mailcore.config.settings import Settings
from mailcore.faults import Code
from mailcore.log.disk import Disk, Locked, is_full
from mailcore.queue.identity import Held, IdentityError, establish
from mailcore.supervisor.child import store_settings
from mailcore.supervisor.fresh_addresses import fresh_addresses, ports_of, unusable
from mailcore.supervisor.room import ballast_of
from mailcore.supervisor.users import Users

__all__ = [
    "HomeError",
    "identify",
    "make_home",
    "prepare",
    "prepare_home",
    "refuse_fresh_addresses",
    "refuse_shared_ports",
]

LOCK_WAIT_S = 3.0  # children of the previous supervisor may still be ending


class HomeError(Exception):
    """The home can't be used; the message says why."""


def make_home(settings: Settings) -> None:
    """Creates the home, or the place of a shard, with the directories of sockets and logs. Raises HomeError.

    The directories of mail are created by ``identify``: their disks may be missing.
    """
    disk = Disk()
    try:
        for directory in (settings.place, settings.run_directory, settings.log_directory):
            disk.make_directory(str(directory))
            if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
                raise HomeError(f"{directory} can't be read and written by this user (uid {os.getuid()})")
    except OSError as error:
        raise HomeError(f"{error.filename or settings.place}: {error.strerror}") from error


def prepare_home(settings: Settings) -> int:
    """Creates the home, or the place of a shard, and takes its lock; returns the descriptor that holds it. Raises HomeError."""
    make_home(settings)
    disk = Disk()
    try:
        path = settings.place / "lock"
        until = time.monotonic() + LOCK_WAIT_S
        while True:
            try:
                lock = disk.lock(str(path))
                break
            except Locked as error:
                if time.monotonic() > until:
                    pid = path.read_text(errors="replace").strip()
                    raise HomeError(f"another Waypost (process {pid}) is running on {settings.place}") from error
                time.sleep(0.1)
        # In place, and before it is cut to length: on a full disk there is no other block for it.
        with contextlib.suppress(OSError):  # only a sentence needs it
            os.ftruncate(lock, os.pwrite(lock, f"{os.getpid()}\n".encode(), 0))
    except OSError as error:
        raise HomeError(f"{error.filename or settings.place}: {error.strerror}") from error
    return lock


def identify(settings: Settings) -> Held:
    """Checks and locks the directories that carry the identity; at a first start creates them.

    Raises IdentityError.
    """
    directories = {name: str(path) for name, path in settings.identified_directories.items()}
    try:
        held = establish(
            Disk(),
            directories,
            str(settings.log_directory),
            str(settings.reports_directory),
            time.time(),
            lambda: secrets.token_hex(16),
            LOCK_WAIT_S,
        )
    except OSError as error:
        raise IdentityError(f"{error.filename or settings.home}: {error.strerror}", code=Code.INTERNAL) from error
    for directory in directories.values():
        if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
            raise IdentityError(f"{directory} can't be read and written by this user (uid {os.getuid()})")
    return held


def prepare(settings: Settings, users: Users, stored: Path) -> None:
    """Prepares directories and settings for the children; on a full disk with space that was set aside. Raises OSError."""
    try:
        users.prepare(settings)
        store_settings(settings, stored)
    except OSError as error:
        if not is_full(error):
            raise
        ballast_of(settings, Disk()).make_room()
        users.prepare(settings)
        store_settings(settings, stored)


def refuse_shared_ports(settings: Settings) -> None:
    """Raises OSError if another process listens on a port of ours.

    Receivers share their ports with each other (SO_REUSEPORT), so two Wayposts on one port would each get half of the mail.
    """
    _refuse(settings, [each.address for each in settings.all_listeners], is_start=True)


def refuse_fresh_addresses(old: Settings, new: Settings) -> None:
    """Raises OSError if no receiver could listen on an address that a reload adds.

    At a start an address may not exist yet, and receivers wait for it. In a reload those that listen now would end for it, and
    no other would begin.
    """
    _refuse(new, fresh_addresses(old, new), is_start=False, own_ports=ports_of(old))


def _refuse(
    settings: Settings, addresses: Iterable[str], *, is_start: bool, own_ports: Collection[int] = frozenset()
) -> None:
    for endpoint in addresses:
        until = time.monotonic() + LOCK_WAIT_S
        while why := unusable(endpoint, own_ports):
            if why.errno != errno.EADDRINUSE and is_start:
                break  # the address does not exist yet; the receivers wait for it
            if why.errno != errno.EADDRINUSE or time.monotonic() > until:
                name = "[receiver] listen" if endpoint in settings.receiver.listen else "[[listener]] address"
                raise OSError(f"{name}: {endpoint} {why.words}") from None
            time.sleep(0.05)
