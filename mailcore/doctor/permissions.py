"""Permissions: who owns what Waypost writes, and who else may read mail, secrets, or change either.

A mode counts only where its owner's directories let others come that far.
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

from mailcore.doctor.disk import places
from mailcore.doctor.finding import Finding, bad, good, not_known, warn
from mailcore.doctor.host import PROC, Patient
from mailcore.log.segment import SUFFIX

__all__ = ["look"]

CLOSED = ("queue", "spool")  # what others may read there is mail
PRIVATE = ("log", "events", "reports")  # and there who wrote to whom
PASSWORD = re.compile(r"://[^\s/@]*:[^\s/@]+@")  # in database_url or broker_url
FILES_SEEN_MAX = 2_000
NAMES_TOLD = 3


def look(patient: Patient) -> Iterator[Finding]:
    owner = _owner(patient)
    for name, path in places(patient.settings).items():
        if path.exists():
            yield _directory(name, path, owner if name != "reports" else None)  # those are the portal's
    yield from _strangers(patient, owner)
    for what, path in _secrets(patient):
        if os.path.lexists(path):
            yield _secret(what, path)
    yield from _tuned(patient.settings.home / "tuned.toml", owner)
    yield from _lanes(patient, owner)


def _owner(patient: Patient) -> int | None:
    """Whose Waypost is: the supervisor's user or, when it is down, the home's."""
    supervisor = patient.processes.get("supervisor")
    try:
        if supervisor is not None and supervisor.pid is not None and supervisor.is_up:
            return (PROC / str(supervisor.pid)).stat().st_uid
        return patient.settings.home.stat().st_uid
    except OSError:
        return None


def _directory(name: str, path: Path, owner: int | None) -> Finding:
    status = path.stat()
    mode = stat.S_IMODE(status.st_mode)
    told = f"{_shown(status)} {path}"
    mode_remedy = f"chmod o-rwx {path}"
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        return bad(name, f"{told}: everybody on this host may change it", f"Run: {mode_remedy}", mode=f"{mode:o}")
    if owner is not None and owner not in (0, status.st_uid):
        return bad(
            name, f"{told}: it is not {_user(owner)}'s, as whom Waypost runs",
            f"Run: chown {_user(owner)} {path}", owner=status.st_uid,
        )  # fmt: skip
    seen = mode & stat.S_IROTH and _others_reach(path)
    if seen and name in CLOSED:
        return bad(name, f"{told}: everybody on this host may read mail", f"Run: {mode_remedy}", mode=f"{mode:o}")
    if seen and name in PRIVATE:
        return warn(
            name, f"{told}: everybody on this host may read who writes to whom", f"Run: {mode_remedy}", mode=f"{mode:o}"
        )
    return good(name, told, mode=f"{mode:o}", owner=_user(status.st_uid))


def _strangers(patient: Patient, owner: int | None) -> Iterator[Finding]:
    """Files in the queue that Waypost can't write: somebody once started it as root."""
    if owner in (None, 0) or not patient.settings.queue_directory.is_dir():
        return
    found: list[str] = []
    seen = 0
    for directory, _, names in os.walk(patient.settings.queue_directory):
        for path in (directory, *(os.path.join(directory, name) for name in names)):
            seen += 1
            if os.lstat(path).st_uid == 0:
                found.append(path)
        if seen > FILES_SEEN_MAX:
            break
    if found:
        yield bad(
            "queue",
            f"root owns {len(found)} of its files, such as {found[0]}: somebody once started Waypost as root",
            f"Run, while Waypost is down: chown -R --from=root {_user(owner or 0)} {patient.settings.queue_directory}",
            files=found[:NAMES_TOLD],
        )


def _lanes(patient: Patient, owner: int | None) -> Iterator[Finding]:
    """Each lane and its newest segment. A lane of arrivals may be its receiver's (docs/decisions/0015)."""
    queue = patient.settings.queue_directory
    lanes = sorted(each for each in queue.iterdir() if each.is_dir()) if queue.is_dir() else []
    receivers = set()
    for name, each in patient.processes.items():
        with contextlib.suppress(OSError):  # it has just ended
            if name.startswith("receiver.") and each.is_up:
                receivers.add((PROC / str(each.pid)).stat().st_uid)
    strange: dict[int, list[Path]] = {}
    open_: list[Path] = []
    for lane in lanes:
        for path, status in _newest(lane):
            arrives = lane.name.startswith("incoming.") and (status.st_uid in receivers or not receivers)
            if owner not in (None, 0, status.st_uid) and status.st_uid != 0 and not arrives:  # root's are told already
                strange.setdefault(status.st_uid, []).append(path)
            if status.st_mode & stat.S_IWOTH:
                open_.append(path)
    for uid, paths in strange.items():
        yield bad(
            "lanes", f"{_listed(paths)}: {_user(uid)}'s, and Waypost runs as {_user(owner or 0)}",
            f"Run, while Waypost is down: chown -R --from={_user(uid)} {_user(owner or 0)} {queue}",
            files=[str(each) for each in paths],
        )  # fmt: skip
    if open_:
        yield _open("lanes", _listed(open_), open_[0], f"Run: chmod -R o-w {queue}")
    if lanes and not strange and not open_:
        yield good("lanes", f"{len(lanes)}, they and their newest segments are written by nobody else")


def _newest(lane: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """The lane itself, and the segment that is written; one that goes just now is passed over."""
    segments = [each for each in lane.iterdir() if each.name.endswith(SUFFIX)]
    for path in (lane, *sorted(segments)[-1:]):
        with contextlib.suppress(FileNotFoundError):
            yield path, path.stat()


def _tuned(path: Path, owner: int | None) -> Iterator[Finding]:
    """What is set there counts before the configuration."""
    if not path.exists():
        return
    status = path.stat()
    told = f"{_shown(status)} {path}"
    if status.st_mode & stat.S_IWOTH:
        yield _open(
            "tuned values", told, path, f"Run: chmod o-w {path}, and look at what is set: waypost transport list"
        )
    elif owner not in (None, 0, status.st_uid):
        yield bad(
            "tuned values", f"{told}: it is not {_user(owner or 0)}'s, as whom Waypost runs",
            f"Run: chown {_user(owner or 0)} {path}",
        )  # fmt: skip
    else:
        yield good("tuned values", told)


def _open(what: str, told: str, path: Path, remedy: str) -> Finding:
    if _others_reach(path):
        return bad(what, f"{told}: everybody on this host may change it", remedy)
    return warn(what, f"{told}: everybody might change it, but for the directories above, which are closed", remedy)


def _listed(paths: list[Path]) -> str:
    more = f" and {len(paths) - NAMES_TOLD} more" if len(paths) > NAMES_TOLD else ""
    return ", ".join(map(str, paths[:NAMES_TOLD])) + more


def _secrets(patient: Patient) -> list[tuple[str, Path]]:
    settings = patient.settings
    portal = settings.home / "portal"
    found = [("portal's key", portal / "secret.key"), ("portal's database", portal / "portal.sqlite3")]
    if settings.receiver.tls_key:
        found.insert(0, ("TLS key", Path(settings.receiver.tls_key)))
    if PASSWORD.search(settings.portal.database_url) or PASSWORD.search(settings.reports.broker_url):
        found += [("configuration", patient.config), ("settings", settings.run_directory / "settings.json")]
    return found


def _secret(what: str, path: Path) -> Finding:
    try:
        status = path.stat()
    except PermissionError:
        return not_known(what, f"{path} is closed to this user", "Run it as root.")
    mode = stat.S_IMODE(status.st_mode)
    told = f"{_shown(status)} {path}"
    if mode & (stat.S_IROTH | stat.S_IWOTH) and _others_reach(path):
        verb = "change" if mode & stat.S_IWOTH else "read"
        return bad(
            what, f"{told}: everybody on this host may {verb} it",
            f"Run: chmod o-rwx {path}, and make it anew if strangers have been here.", mode=f"{mode:o}",
        )  # fmt: skip
    return good(what, told, mode=f"{mode:o}")


def _others_reach(path: Path) -> bool:
    """Whether all directories above let everybody pass."""
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in Path(os.path.realpath(path)).parents)


def _shown(status: os.stat_result) -> str:
    """drwxr-x--- waypost:mail"""
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
