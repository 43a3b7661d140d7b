"""Permissions: owners of Waypost's files, and access of other users to mail, secrets and settings.

A mode is reported only if the directories above give other users access to the file.
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from mailcore.counted import counted
from mailcore.doctor.disk import places
from mailcore.doctor.finding import Finding, bad, good, not_known, warn
from mailcore.doctor.host import PROC, Host
from mailcore.log.segment import SUFFIX

__all__ = ["look"]

CLOSED = ("queue", "spool")  # these contain mail
PRIVATE = ("log", "events", "reports")  # these contain senders and recipients
PASSWORD = re.compile(r"://[^\s/@]*:[^\s/@]+@")  # in database_url or broker_url
FILES_CHECKED_MAX = 2_000
NAMES_SHOWN = 3


def look(host: Host) -> Iterator[Finding]:
    """Yields findings about directories, files of other owners, secrets, tuned values and lanes."""
    owner = _owner(host)
    for name, path in places(host.settings).items():
        if path.exists():
            yield _directory(name, path, owner if name != "reports" else None)  # the portal writes those
    yield from _of_root(host, owner)
    for what, path in _secrets(host):
        if os.path.lexists(path):
            yield _secret(what, path)
    yield from _tuned(host.settings.home / "tuned.toml", owner)
    yield from _lanes(host, owner)


def _owner(host: Host) -> int | None:
    """Returns the user ID of the supervisor; if it is not running, the owner of the home."""
    supervisor = host.processes.get("supervisor")
    try:
        if supervisor is not None and supervisor.pid is not None and supervisor.is_up:
            return (PROC / str(supervisor.pid)).stat().st_uid
        return host.settings.home.stat().st_uid
    except OSError:
        return None


def _directory(name: str, path: Path, owner: int | None) -> Finding:
    status = path.stat()
    mode = stat.S_IMODE(status.st_mode)
    mode_and_path = f"{_shown(status)} {path}"
    mode_remedy = f"chmod o-rwx {path}"
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        return bad(name, f"{mode_and_path}: every local user can change it", f"Run: {mode_remedy}", mode=f"{mode:o}")
    if owner is not None and owner not in (0, status.st_uid):
        return bad(
            name, f"{mode_and_path}: wrong owner, Waypost runs as {_user(owner)}",
            f"Run: chown {_user(owner)} {path}", owner=status.st_uid,
        )  # fmt: skip
    seen = mode & stat.S_IROTH and _others_reach(path)
    if seen and name in CLOSED:
        return bad(name, f"{mode_and_path}: every local user can read mail", f"Run: {mode_remedy}", mode=f"{mode:o}")
    if seen and name in PRIVATE:
        return warn(
            name,
            f"{mode_and_path}: every local user can read senders and recipients",
            f"Run: {mode_remedy}",
            mode=f"{mode:o}",
        )
    return good(name, mode_and_path, mode=f"{mode:o}", owner=_user(status.st_uid))


def _of_root(host: Host, owner: int | None) -> Iterator[Finding]:
    """Yields a finding about files in the queue that belong to root: Waypost was once started as root."""
    if owner in (None, 0) or not host.settings.queue_directory.is_dir():
        return
    found: list[str] = []
    seen = 0
    for directory, _, names in os.walk(host.settings.queue_directory):
        for path in (directory, *(os.path.join(directory, name) for name in names)):
            seen += 1
            if os.lstat(path).st_uid == 0:
                found.append(path)
        if seen > FILES_CHECKED_MAX:
            break
    if found:
        yield bad(
            "queue",
            f"root owns {counted(len(found), 'file')} in it, such as {found[0]}: Waypost was started as root",
            f"Stop Waypost and run: chown -R --from=root {_user(owner or 0)} {host.settings.queue_directory}",
            files=found[:NAMES_SHOWN],
        )


def _lanes(host: Host, owner: int | None) -> Iterator[Finding]:
    """Yields findings about each lane and its newest segment; an incoming lane may belong to its receiver (decision 0015)."""
    queue = host.settings.queue_directory
    lanes = sorted(each for each in queue.iterdir() if each.is_dir()) if queue.is_dir() else []
    receivers = set()
    for name, each in host.processes.items():
        with contextlib.suppress(OSError):  # it has just ended
            if name.startswith("receiver.") and each.is_up:
                receivers.add((PROC / str(each.pid)).stat().st_uid)
    strange: dict[int, list[Path]] = {}
    open_: list[Path] = []
    for lane in lanes:
        for path, status in _newest(lane):
            arrives = lane.name.startswith("incoming.") and (status.st_uid in receivers or not receivers)
            if (
                owner not in (None, 0, status.st_uid) and status.st_uid != 0 and not arrives
            ):  # _of_root reports those of root
                strange.setdefault(status.st_uid, []).append(path)
            if status.st_mode & stat.S_IWOTH:
                open_.append(path)
    for uid, paths in strange.items():
        yield bad(
            "lanes", f"{_listed(paths)}: owned by {_user(uid)}, but Waypost runs as {_user(owner or 0)}",
            f"Stop Waypost and run: chown -R --from={_user(uid)} {_user(owner or 0)} {queue}",
            files=[str(each) for each in paths],
        )  # fmt: skip
    if open_:
        yield _open("lanes", _listed(open_), open_[0], f"Run: chmod -R o-w {queue}")
    if lanes and not strange and not open_:
        yield good("lanes", f"{len(lanes)}; only Waypost can write them and their newest segments")


def _newest(lane: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yields the lane and its newest segment; skips a segment that is deleted meanwhile."""
    segments = [each for each in lane.iterdir() if each.name.endswith(SUFFIX)]
    for path in (lane, *sorted(segments)[-1:]):
        with contextlib.suppress(FileNotFoundError):
            yield path, path.stat()


def _tuned(path: Path, owner: int | None) -> Iterator[Finding]:
    """Yields a finding about tuned.toml, whose values override the configuration."""
    if not path.exists():
        return
    status = path.stat()
    mode_and_path = f"{_shown(status)} {path}"
    if status.st_mode & stat.S_IWOTH:
        yield _open(
            "tuned values", mode_and_path, path, f"Run: chmod o-w {path}, then check the values: waypost transport list"
        )
    elif owner not in (None, 0, status.st_uid):
        yield bad(
            "tuned values", f"{mode_and_path}: wrong owner, Waypost runs as {_user(owner or 0)}",
            f"Run: chown {_user(owner or 0)} {path}",
        )  # fmt: skip
    else:
        yield good("tuned values", mode_and_path)


def _open(what: str, files: str, path: Path, remedy: str) -> Finding:
    if _others_reach(path):
        return bad(what, f"{files}: every local user can change it", remedy)
    return warn(what, f"{files}: writable by every user; only the directories above prevent access", remedy)


def _listed(paths: list[Path]) -> str:
    more = f" and {len(paths) - NAMES_SHOWN} more" if len(paths) > NAMES_SHOWN else ""
    return ", ".join(map(str, paths[:NAMES_SHOWN])) + more


def _secrets(host: Host) -> list[tuple[str, Path]]:
    settings = host.settings
    portal = settings.home / "portal"
    found = [("portal's key", portal / "secret.key"), ("portal's database", portal / "portal.sqlite3")]
    found = [*(("TLS key", Path(pair.key)) for pair in settings.certificate_pairs), *found]
    if PASSWORD.search(settings.portal.database_url) or PASSWORD.search(settings.reports.broker_url):
        found += [("configuration", host.config), ("settings", settings.run_directory / "settings.json")]
    return found


def _secret(what: str, path: Path) -> Finding:
    try:
        status = path.stat()
    except PermissionError:
        return not_known(what, f"this user cannot read {path}", "Run waypost doctor as root.")
    mode = stat.S_IMODE(status.st_mode)
    mode_and_path = f"{_shown(status)} {path}"
    if mode & (stat.S_IROTH | stat.S_IWOTH) and _others_reach(path):
        verb = "change" if mode & stat.S_IWOTH else "read"
        return bad(
            what, f"{mode_and_path}: every local user can {verb} it",
            f"Run: chmod o-rwx {path}. Replace it if untrusted users had access to this host.", mode=f"{mode:o}",
        )  # fmt: skip
    return good(what, mode_and_path, mode=f"{mode:o}")


def _others_reach(path: Path) -> bool:
    """Tells whether every user can pass through all directories above."""
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in Path(os.path.realpath(path)).parents)


def _shown(status: os.stat_result) -> str:
    """Returns mode and owner as ls shows them: drwxr-x--- waypost:mail"""
    try:
        group = grp.getgrgid(status.st_gid).gr_name
    except KeyError:
        group = str(status.st_gid)
    return f"{stat.filemode(status.st_mode)} {_user(status.st_uid)}:{group}"


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
