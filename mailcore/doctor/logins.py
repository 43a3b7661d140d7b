"""Logins: the file of users, its faults, its mode, and whether the receivers can read it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from mailcore.doctor.finding import Finding, bad, good, not_known, warn
from mailcore.doctor.host import Host
from mailcore.users.user_file import UserFileError, read_users

__all__ = ["look"]


def look(host: Host) -> Iterator[Finding]:
    """Yields findings about the users who may log in. Raises OSError."""
    path = host.settings.users_file
    listeners = [each.address for each in host.settings.all_listeners if each.auth != "off"]
    if not listeners and not os.path.lexists(path):
        yield good("users", "no listener has logins")
        return
    try:
        users = read_users(path)
    except PermissionError:
        yield not_known("users", f"this user cannot read {path}", "Run waypost doctor as root.")
        return
    except UserFileError as error:
        faults = "; ".join(str(error).splitlines())
        yield bad(
            "users",
            f"{faults}; receivers keep the users that they read before, and after a restart those of the other lines",
            f"Correct the line in {path}; receivers read the file within a second.",
        )
    else:
        enabled = sum(user.enabled for user in users)
        if listeners and not enabled:
            yield warn(
                "users",
                f"no user can log in on {', '.join(listeners)}",
                "Add one: waypost user add NAME",
                users=len(users),
            )
        else:
            yield good(
                "users", f"{len(users)}, of which {enabled} enabled; offered: {users.mechanisms}", users=len(users)
            )
    if path.exists():
        yield _mode(host)


def _mode(host: Host) -> Finding:
    """Returns a finding about the mode of the file: verifiers of passwords are in it."""
    path = host.settings.users_file
    status = path.stat()
    mode = stat.S_IMODE(status.st_mode)
    if mode & (stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP):
        return bad(
            "users", f"{path} has mode {mode:04o}: others can read verifiers of passwords, or change users",
            f"Run: chmod 0640 {path}. Set new passwords if untrusted users had access to this host.", mode=f"{mode:o}",
        )  # fmt: skip
    lane = host.settings.queue_directory / "incoming.0"
    if lane.exists() and not mode & stat.S_IRGRP and lane.stat().st_gid != status.st_gid:
        return bad("users", f"{path} has mode {mode:04o}: receivers cannot read it", f"Run: chmod 0640 {path}")
    if lane.exists() and lane.stat().st_gid != status.st_gid:
        return bad(
            "users", f"{path} has a group other than the receivers', which cannot read it",
            f"Run: chgrp --reference={lane} {path}", group=status.st_gid,
        )  # fmt: skip
    return good("users", f"{path} has mode {mode:04o}", mode=f"{mode:o}")
