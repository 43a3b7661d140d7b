"""The pickup: looks into the maildrop every second and moves the mail in it into the queue. It runs in the control process.

A home whose maildrop was never used has no lane for it, and the pickup then costs one look at a directory a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from mailcore.config.live_routes import LiveRoutes
from mailcore.config.settings import Settings
from mailcore.control.local_filter import LocalFilter, OpenFilter
from mailcore.control.local_stores import LocalStores, OpenLocalStores
from mailcore.log.disk import Disk, Locked
from mailcore.log.lane import LaneFailed
from mailcore.maillog import MailLog
from mailcore.pickup.dropped import DIRECTORY, names_of
from mailcore.pickup.taking import Taken, Taking
from mailcore.pickup.verification import OpenVerifier, Verifier
from mailcore.queue.lanes import incoming
from mailcore.queue.queue_id import PICKUP
from mailcore.receiver.manager_link import MANAGER_SOCKET, ManagerLink

if TYPE_CHECKING:  # a process without [rewriting] does not load it
    from mailcore.config.live_maps import LiveMaps

__all__ = ["LOOK_S", "Pickup", "open_maildrop", "run"]

LOOK_S = 1.0  # Postfix's pickup gets a signal from postdrop; a program of another user cannot send us one
TIDY_S = 3600.0
_ACL_OWNER, _ACL_GROUP, _ACL_OTHERS = 0x01, 0x04, 0x20  # linux/posix_acl.h
OPEN, SHUT = 0o3733, 0o3700  # every user may put a file there; only the directory's owner may list them


def open_maildrop(directory: str, *, shut: bool = False, disk: Disk | None = None) -> None:
    """Creates the maildrop, or lets users in again; with ``shut`` keeps them out. Raises OSError.

    Files in it get the directory's group (set-group-ID), so that Waypost reads what other users put there, and may only be
    renamed or removed by their author and by Waypost (sticky). ``disk`` syncs the names once, if it is kept.
    """
    (disk or Disk()).make_directory(directory)
    mode = SHUT if shut else OPEN
    if os.stat(directory).st_mode & 0o7777 != mode:
        _set_mode(directory, mode)


def _set_mode(directory: str, mode: int) -> None:
    """Sets the mode, also where this process may not give the setgid bit (systemd's RestrictSUIDSGID). Raises OSError."""
    try:
        os.chmod(directory, mode)
    except PermissionError:
        if os.stat(directory).st_mode & 0o7000 != mode & 0o7000:
            raise
        # The directory has these bits already: an access list of nothing but the mode leaves them as they are (acl(5)).
        entries = ((_ACL_OWNER, mode >> 6), (_ACL_GROUP, mode >> 3), (_ACL_OTHERS, mode))
        packed = [struct.pack("<HHI", tag, bits & 0o7, 0xFFFF_FFFF) for tag, bits in entries]
        os.setxattr(directory, "system.posix_acl_access", struct.pack("<I", 2) + b"".join(packed))


class Pickup:
    """The looks, one after the other, in a thread; logs what they bring, and reports it to the manager."""

    def __init__(
        self,
        settings: Settings,
        loop: asyncio.AbstractEventLoop,
        rewriting: LiveMaps | None = None,
        local_filter: LocalFilter | None = None,
        open_verifier: OpenVerifier | None = None,
        routes: LiveRoutes | None = None,
        stores: LocalStores | None = None,
    ) -> None:
        """``routes`` are those of the process; they are needed with ``open_verifier``."""
        self._stores = stores
        self._routes = routes
        self._open_verifier = open_verifier
        self._verifier: Verifier | None = None
        self._filter = local_filter
        self._rewriting = rewriting
        self._settings = settings
        self._loop = loop
        self._log = MailLog(settings.log_directory)
        self._directory = str(settings.home / DIRECTORY)
        self._hostname = settings.receiver.hostname or socket.gethostname()
        self._thread = ThreadPoolExecutor(1, "pickup")
        self._disk = Disk()
        self._taking: Taking | None = None
        self._link: ManagerLink | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._complaint = ""
        self._tidy_at = 0.0

    async def run(self) -> None:
        """Looks until it is cancelled."""
        while True:
            more = False
            try:
                taken = await self._loop.run_in_executor(self._thread, self._look)
                if taken is not None:
                    self._complain(self._tell(taken))
                    more = taken.more and bool(taken.envelopes)
            except Locked:
                self._complain("")  # the process before us is still ending
            except (OSError, LaneFailed) as error:
                self._complain(str(error))
            except Exception as error:  # a bug must not end the control process, nor be silent
                self._complain(f"internal error: {error!r}")
            if not more:
                await asyncio.sleep(LOOK_S)

    def _look(self) -> Taken | None:
        """Runs in the thread. Returns None as long as the maildrop was never used."""
        if self._taking is None:
            open_maildrop(self._directory, disk=self._disk)
            lane = str(self._settings.queue_directory / incoming(PICKUP))
            if not names_of(self._disk.list(self._directory)) and not self._disk.is_directory(lane):
                return None
            self._taking = Taking(
                self._disk,
                self._settings,
                hostname=self._hostname,
                clock=time.time,
                salt=lambda: secrets.randbits(64),
                written=_written,
                rewriting=self._rewriting,
                local_filter=self._filter,
                verifier=self._verify if self._open_verifier is not None else None,
                stores=self._stores,
            )
            # Mail that the process before us left is reported first: it does not arrive now.
            return Taken(end=self._taking.recover())
        if time.monotonic() >= self._tidy_at:
            self._tidy_at = time.monotonic() + TIDY_S
            self._taking.remove_unfinished()
        taken = self._taking.look()
        try:
            waiting = len(names_of(self._disk.list(self._directory)))
            open_maildrop(self._directory, shut=waiting > self._settings.maildrop.files_max, disk=self._disk)
        except OSError as error:  # the mail taken is reported all the same
            taken.shut_fault = str(error)
        return taken

    def _verify(self) -> Verifier:
        """Returns the verifier of addresses, which is loaded with the first request."""
        if self._verifier is None:
            routes = self._routes
            assert self._open_verifier is not None
            assert routes is not None
            self._verifier = self._open_verifier(self._settings, self._loop, lambda: routes.routing)
        return self._verifier

    def _tell(self, taken: Taken) -> str:
        """Logs what was taken, and then reports it: a delivery must not be logged before the arrival. Returns a complaint."""
        recipients = 0
        for envelope, uid in zip(taken.envelopes, taken.uids, strict=True):
            self._log.accepted(envelope, uid=uid)
            recipients += envelope.recipient_count
        for each in taken.checks:
            assert self._rewriting is not None
            self._rewriting.checked(each.queue_id, "local", each.sender, each.recipient, each.notes)
        for path, why in taken.damaged:
            self._log.maildrop_damaged(path, why)
        for name, why in taken.failed:
            self._log.failed("pickup", f"{name}: {why}")
        for name, why in taken.put_off:
            self._log.rewriting_failed(name, why)
        self._log.flush()
        if self._link is None:
            assert self._taking is not None
            socket_path = self._settings.run_directory / MANAGER_SOCKET
            self._link = ManagerLink(socket_path, PICKUP, self._taking.lane, taken.end, self._loop)
            self._tasks.append(self._loop.create_task(self._link.run()))
        elif taken.envelopes:
            self._link.durable(taken.end, len(taken.envelopes), recipients)
        if taken.is_full:
            return "the disk has less than [queue] reserve_bytes or reserve_inodes; mail waits"
        return taken.shut_fault

    def _complain(self, why: str) -> None:
        """Logs a trouble once, until it ends or changes."""
        if why and why != self._complaint:
            self._log.failed("pickup", why)
            self._log.flush()
        self._complaint = why

    def close(self) -> None:
        """Ends everything, for tests; the process itself just ends."""
        for task in self._tasks:
            task.cancel()
        self._thread.shutdown()
        if self._taking is not None:
            self._taking.close()
        self._log.close()


def _written(path: str) -> float:
    """Returns when a file was written last; now if it is gone."""
    with contextlib.suppress(FileNotFoundError):
        return os.lstat(path).st_mtime
    return time.time()


async def run(
    open_filter: OpenFilter,
    open_verifier: OpenVerifier,
    open_stores: OpenLocalStores,
    settings: Settings,
    rewriting: LiveMaps | None,
    routes: LiveRoutes,
) -> None:
    """Runs the pickup until it is cancelled. ``rewriting`` determines the final addresses; None: they are final."""
    loop = asyncio.get_running_loop()
    await Pickup(settings, loop, rewriting, open_filter(settings), open_verifier, routes, open_stores(settings)).run()
