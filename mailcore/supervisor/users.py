"""The system users of the processes: receivers and deliverers may have their own (docs/decisions/0015-own-users.md).

The supervisor, the manager, control and the exporter run as the user that starts the supervisor. That user needs CAP_SETUID
and CAP_SETGID to start the others, and must be in the common group and in the receivers' group. No child keeps the rights.

Laws
- Only the common group may enter ``queue`` and ``spool``; inside, others may read. So a deliverer reads everything and writes
  nothing, a receiver writes into its lane and the spool, and the portal opens none of it.
- Directories are created here, so that files created in them have the right group without a chown later.

Keeps law: deliverer-writes-nothing (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import ctypes
import grp
import os
import pwd
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mailcore.config.kept_files import CA, CERTIFICATE, DKIM, KEY, MAP
from mailcore.config.kept_files import DIRECTORY as KEPT
from mailcore.config.recipients import STATE
from mailcore.config.settings import Settings
from mailcore.config.tlsrpt import DIRECTORY as TLSRPT
from mailcore.log.disk import Disk
from mailcore.queue.lanes import incoming
from mailcore.queue.spool import FANOUT

__all__ = ["ALONE", "User", "Users", "UsersError", "find_users", "share"]

SHARED = "WAYPOST_SHARED"  # set in the environment of processes that write into the queue
# Below a closed directory: the receivers' group writes, others read.
UMASK = 0o002
FILE_MODE, DIRECTORY_MODE = 0o664, 0o775
ENTERED = 0o751  # home: each directory in it has its own mode
CLOSED = 0o750
USERS_MODE = 0o640  # of the users who may log in: receivers read them
COMMON = 0o2775  # set-group-ID: files created in it get its group
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_LOWER = 47, 3  # prctl(2)
_CAP_KILL, _CAP_SETGID, _CAP_SETUID = 5, 6, 7  # capabilities(7)


class UsersError(Exception):
    """These users can't be used; the message says why."""


@dataclass(frozen=True)
class User:
    """A system user, its main group, and all its groups with the common one."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]


@dataclass(frozen=True)
class Users:
    """The users of receivers and deliverers, and the common group; ``group`` None: all processes share one user."""

    receiver: User | None = None
    deliverer: User | None = None
    group: int | None = None

    def begin(self) -> None:
        """Prepares the supervisor: receivers may write the mail log too, and no child inherits the right to change users."""
        if self.group is not None:
            os.umask(UMASK)
            prctl = ctypes.CDLL(None, use_errno=True).prctl
            for capability in (_CAP_KILL, _CAP_SETGID, _CAP_SETUID):
                prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_LOWER, capability, 0, 0)

    def prepare(self, settings: Settings) -> None:
        """Creates the directories with their groups and modes. Raises OSError."""
        if self.receiver is None or self.group is None:
            return
        # From another installation, or written before there were receivers. One that is another user's stops no mail: doctor
        # reports it.
        with contextlib.suppress(FileNotFoundError, PermissionError):
            status = settings.users_file.stat()
            if status.st_gid != self.receiver.gid:
                os.chown(settings.users_file, -1, self.receiver.gid)
            if status.st_mode & 0o7777 != USERS_MODE:
                settings.users_file.chmod(USERS_MODE)
        _give(settings.home, self.group, ENTERED)
        for directory in settings.shard_directories:
            _give(directory, self.group, ENTERED)
        self.prepare_run(settings)
        _give(settings.run_directory, self.group, 0o2755)
        if settings.sts_directory is not None:
            _give(settings.sts_directory, self.group, 0o3770)  # sticky; a deliverer believes only its own user's files
        if settings.tlsrpt.is_on:
            _give(settings.home / TLSRPT, self.group, 0o3770)
        if settings.recipients.is_on or settings.greylist.enabled:
            _give(settings.home / STATE, self.receiver.gid, 0o2770)
        self._prepare_kept(settings.home / KEPT)
        _give(settings.log_directory, self.receiver.gid, 0o2771)
        _give(settings.queue_directory, self.group, CLOSED)
        _give(settings.spool_directory, self.group, CLOSED)
        lanes = [settings.queue_directory / incoming(number) for number in range(settings.receiver.processes)]
        for directory in (*lanes, *(settings.spool_directory / f"{folder:02x}" for folder in range(FANOUT))):
            _give(directory, self.receiver.gid, COMMON)
        if settings.control.group and settings.export.enabled:
            # The portal makes reports of the events.
            _give(settings.events_directory, grp.getgrnam(settings.control.group).gr_gid, 0o2750)

    def prepare_run(self, settings: Settings) -> None:
        """Creates the directories that the run directories of shards are in. Raises OSError."""
        if self.group is None:
            return
        above = [] if settings.shard is None else [settings.run_directory.parent]
        for directory in (settings.node_run_directory, *above):
            _give(directory, self.group, 0o2755)

    def _prepare_kept(self, kept: Path) -> None:
        """Creates the directories of the kept files: receivers read keys of TLS and maps, deliverers DKIM keys."""
        assert self.receiver is not None
        assert self.deliverer is not None
        assert self.group is not None
        _give(kept, self.group, 0o751)
        for kind in (CERTIFICATE, CA):
            _give(kept / kind, self.group, 0o755)
        for kind in (KEY, MAP):
            _give(kept / kind, self.receiver.gid, 0o2750)
        with _member_of(self.deliverer.gid):
            _give(kept / DKIM, self.deliverer.gid, 0o2750)

    def of(self, role: str) -> User | None:
        """Returns the user of the processes of this role; None: that of the supervisor."""
        return {"receiver": self.receiver, "deliverer": self.deliverer}.get(role) if self.group is not None else None

    def environment(self, role: str) -> dict[str, str]:
        """Returns the variables that tell a process of this role to share what it writes (``share``)."""
        return {SHARED: "1"} if self.group is not None and role in ("receiver", "manager", "control", "owner") else {}


ALONE = Users()


def share() -> None:
    """Lets the group write, and others read, what this child creates, if the supervisor said so (``Users.environment``)."""
    if os.environ.pop(SHARED, ""):
        os.umask(UMASK)
        Disk.file_mode, Disk.directory_mode = FILE_MODE, DIRECTORY_MODE


def find_users(receiver: str, deliverer: str, group: str) -> Users:
    """Returns the users with these names; without any name, ``ALONE``. Raises UsersError."""
    if not (receiver or deliverer or group):
        return ALONE
    if not (receiver and deliverer and group):
        raise UsersError("give --receiver-user, --deliverer-user and --group together, or none of them")
    try:
        common = grp.getgrnam(group).gr_gid
    except KeyError:
        raise UsersError(f"there is no group {group!r}") from None
    found = Users(_user(receiver, common), _user(deliverer, common), common)
    assert found.receiver is not None
    assert found.deliverer is not None
    uids = (os.geteuid(), found.receiver.uid, found.deliverer.uid)
    if len(set(uids)) < len(uids) or 0 in uids[1:]:
        raise UsersError(
            "receivers, deliverers and the user that starts Waypost must be three different users, the first two not root"
        )
    if os.geteuid() != 0 and (missing := {common, found.receiver.gid} - {os.getegid(), *os.getgroups()}):
        names = ", ".join(sorted(grp.getgrgid(each).gr_name for each in missing))
        raise UsersError(
            f"the user that starts Waypost must be in the receivers' group and in --group; missing: {names}"
        )
    if found.deliverer.gid == found.receiver.gid or common in (found.receiver.gid, os.getegid()):
        raise UsersError(
            f"receivers, deliverers and {group} must be different groups; otherwise a deliverer could write into the queue"
        )
    return found


def _user(name: str, common: int) -> User:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise UsersError(f"there is no user {name!r}") from None
    groups = {*os.getgrouplist(name, entry.pw_gid), common}
    return User(name, entry.pw_uid, entry.pw_gid, tuple(sorted(groups)))


@contextlib.contextmanager
def _member_of(group: int) -> Iterator[None]:
    """Puts this process into a group, for as long as it gives something to the group: only a member may (chown(2))."""
    groups = os.getgroups()
    if os.geteuid() == 0 or group in (os.getegid(), *groups):
        yield
        return
    os.setgroups([*groups, group])
    try:
        yield
    finally:
        os.setgroups(groups)


def _give(directory: Path, group: int, mode: int) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(directory, 0o700)
    status = os.stat(directory)
    if status.st_gid != group:
        os.chown(directory, -1, group)
    if status.st_mode & 0o7777 != mode:
        os.chmod(directory, mode)
