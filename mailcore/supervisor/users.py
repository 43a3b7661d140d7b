"""Who the processes are: receivers and deliverers may have users of their own (docs/decisions/0015-own-users.md).

The supervisor, the manager, control and the exporter are the user who starts the supervisor. It needs CAP_SETUID and
CAP_SETGID for the others, which no child keeps, and must be in their group and in the receivers' group.

Laws
- ``queue`` and ``spool`` are closed to everybody but the group: in them others may read. So a deliverer may read
  everything and write nothing, a receiver writes into its lane and the spool, and the portal opens none of it.
- Directories are made here, so that what is made in them has the right group without a single chown later.

Keeps law: deliverer-writes-nothing (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import ctypes
import grp
import os
import pwd
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mailcore.config.settings import Settings
from mailcore.log.disk import Disk
from mailcore.queue.lanes import incoming
from mailcore.queue.spool import FANOUT

__all__ = ["ALONE", "Users", "UsersError", "find_users", "share"]

SHARED = "WAYPOST_SHARED"  # in the environment of those who write into the queue
# Below a closed directory: the receivers' group writes, others read.
UMASK = 0o002
FILE_MODE, DIRECTORY_MODE = 0o664, 0o775
ENTERED = 0o751  # home: each room in it has its own door
CLOSED = 0o750
COMMON = 0o2775  # what is made in it has its group
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_LOWER = 47, 3  # prctl(2)
_CAP_KILL, _CAP_SETGID, _CAP_SETUID = 5, 6, 7  # capabilities(7)


class UsersError(Exception):
    """The users can't be taken; the message says why."""


@dataclass(frozen=True)
class User:
    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]


@dataclass(frozen=True)
class Users:
    """Who is what; nobody but ourselves when ``group`` is None."""

    receiver: User | None = None
    deliverer: User | None = None
    group: int | None = None

    def begin(self) -> None:
        """For the supervisor: the mail log is the receivers', too, and no child inherits the right to change users."""
        if self.group is not None:
            os.umask(UMASK)
            prctl = ctypes.CDLL(None, use_errno=True).prctl
            for capability in (_CAP_KILL, _CAP_SETGID, _CAP_SETUID):
                prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_LOWER, capability, 0, 0)

    def prepare(self, settings: Settings) -> None:
        """Owners and modes of the directories. Raises OSError."""
        if self.receiver is None or self.group is None:
            return
        _give(settings.home, self.group, ENTERED)
        _give(settings.run_directory, self.group, 0o2755)
        _give(settings.log_directory, self.receiver.gid, 0o2771)
        _give(settings.queue_directory, self.group, CLOSED)
        _give(settings.spool_directory, self.group, CLOSED)
        lanes = [settings.queue_directory / incoming(number) for number in range(settings.receiver.processes)]
        for directory in (*lanes, *(settings.spool_directory / f"{folder:02x}" for folder in range(FANOUT))):
            _give(directory, self.receiver.gid, COMMON)
        if settings.control.group and settings.export.enabled:
            # The portal, which makes reports of them.
            _give(settings.events_directory, grp.getgrnam(settings.control.group).gr_gid, 0o2750)

    def of(self, role: str) -> dict[str, Any]:
        """For ``subprocess.Popen``: whose a process of this role is, and what it makes."""
        if self.group is None:
            return {}
        user = {"receiver": self.receiver, "deliverer": self.deliverer}.get(role)
        return {} if user is None else {"user": user.uid, "group": user.gid, "extra_groups": user.groups}

    def environment(self, role: str) -> dict[str, str]:
        return {SHARED: "1"} if self.group is not None and role in ("receiver", "manager", "control") else {}


ALONE = Users()


def share() -> None:
    """In a child that writes into the queue: what it makes is for the others, too, where that is how it is."""
    if os.environ.pop(SHARED, ""):
        os.umask(UMASK)
        Disk.file_mode, Disk.directory_mode = FILE_MODE, DIRECTORY_MODE


def find_users(receiver: str, deliverer: str, group: str) -> Users:
    """All three or none. Raises UsersError."""
    if not (receiver or deliverer or group):
        return ALONE
    if not (receiver and deliverer and group):
        raise UsersError("--receiver-user, --deliverer-user and --group belong together: all three, or none")
    try:
        common = grp.getgrnam(group).gr_gid
    except KeyError:
        raise UsersError(f"there is no group {group!r}") from None
    found = Users(_user(receiver, common), _user(deliverer, common), common)
    assert found.receiver is not None
    assert found.deliverer is not None
    uids = (os.geteuid(), found.receiver.uid, found.deliverer.uid)
    if len(set(uids)) < len(uids) or 0 in uids[1:]:
        raise UsersError("receivers, deliverers and whoever starts this must be three users, the first two not root")
    if os.geteuid() != 0 and (missing := {common, found.receiver.gid} - {os.getegid(), *os.getgroups()}):
        names = ", ".join(sorted(grp.getgrgid(each).gr_name for each in missing))
        raise UsersError(f"whoever starts this must be in the groups of receivers and of all: {names} is missing")
    if found.deliverer.gid == found.receiver.gid or common in (found.receiver.gid, os.getegid()):
        raise UsersError(f"receivers, deliverers and {group} must be groups apart, or a deliverer could write")
    return found


def _user(name: str, common: int) -> User:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise UsersError(f"there is no user {name!r}") from None
    groups = {*os.getgrouplist(name, entry.pw_gid), common}
    return User(name, entry.pw_uid, entry.pw_gid, tuple(sorted(groups)))


def _give(directory: Path, group: int, mode: int) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(directory, 0o700)
    status = os.stat(directory)
    if status.st_gid != group:
        os.chown(directory, -1, group)
    if status.st_mode & 0o7777 != mode:
        os.chmod(directory, mode)
