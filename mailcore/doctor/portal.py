"""The portal's part: database, Redis, Celery, Java, the last report. The portal's own command looks (``manage.py doctor``),
in a process of its own; this one starts it, bounds it, and believes no more of it than that these are findings.

Laws: it is asked with what the portal's service has in its environment, and by root as the portal's user: who may sign in to
PostgreSQL and open Redis' socket is told by the user.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from mailcore.backup.database import portal_environment
from mailcore.backup.postgresql import DatabaseFailed
from mailcore.doctor.finding import Finding, not_known, warn
from mailcore.doctor.host import Patient

__all__ = ["look"]

LIMIT_S = 28.0
OUTPUT_BYTES_MAX = 1 << 20
STARTED = re.compile(r"^ExecStart=(/\S+/python) -m django ", re.MULTILINE)
# Of root's environment another user is given no more.
HANDED_OVER = ("PATH", "LANG", "TZ", "JAVA_HOME", "DATABASE_URL", "REDIS_URL", "WAYPOST_SECRET_KEY")


def look(patient: Patient) -> Iterator[Finding]:
    says_more = "Run manage.py check, which says more."
    if patient.has_unit("waypost-portal"):
        says_more = "Run: journalctl --unit waypost-portal, which says more."
    who = _its_user(patient.settings.home / "portal")
    handed = {name: os.environ[name] for name in HANDED_OVER if name in os.environ} if who else dict(os.environ)
    try:
        service = portal_environment(patient.config, {})
    except DatabaseFailed as error:
        yield not_known("portal", str(error), "Run it as root.")
        return
    try:
        ended = subprocess.run(  # noqa: S603  # our own command line
            [_python(patient.unit("waypost-portal")), "-m", "django", "doctor"],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env=_environment(patient.config, service, handed),
            timeout=LIMIT_S,
            check=False,
            **who,
        )
    except subprocess.TimeoutExpired:
        yield warn(
            "portal", f"its part gave no answer within {LIMIT_S:g} s", "Look at the portal's database and Redis."
        )
        return
    except OSError as error:  # such as a Python that the portal's user may not open
        told = f"its part can't be asked as user {who.get('user', os.getuid())}: {error}"
        yield not_known("portal", told, says_more)
        return
    try:
        yield from msgspec.json.decode(ended.stdout[:OUTPUT_BYTES_MAX], type=list[Finding])
    except msgspec.MsgspecError:
        words = ended.stderr.decode("utf-8", "backslashreplace").strip().splitlines()
        told = words[-1] if words else f"exit status {ended.returncode}"
        yield not_known("portal", f"its part can't be asked: {told}", says_more)


def _python(unit: Path) -> str:
    """The service's: a portal may be of another version than the core, and its database with it."""
    with contextlib.suppress(OSError):
        if (found := STARTED.search(unit.read_text())) and os.access(found[1], os.X_OK):
            return found[1]
    return sys.executable


def _environment(config: Path, service: Mapping[str, str], handed: Mapping[str, str]) -> dict[str, str]:
    """``service``: of the portal's; what we are handed goes before it, but for which configuration is the portal's."""
    return {
        # The portal would make its own key where there is none, with our owner.
        "WAYPOST_SECRET_KEY": secrets.token_urlsafe(50),
        "WAYPOST_CONFIG": str(config.absolute()),
        **service,
        **{name: value for name, value in handed.items() if value and name != "WAYPOST_CONFIG"},
        "DJANGO_SETTINGS_MODULE": "appliance.settings",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _its_user(directory: Path) -> dict[str, Any]:
    """For subprocess: whose the portal's directory is, when root asks and it is not root's."""
    try:
        status = directory.stat()
    except OSError:  # nobody ever started a portal here
        return {}
    if os.geteuid() != 0 or status.st_uid == 0:
        return {}
    found: dict[str, Any] = {"user": status.st_uid, "group": status.st_gid, "extra_groups": [], "cwd": "/"}
    try:
        entry = pwd.getpwuid(status.st_uid)
    except KeyError:
        return found
    return found | {"group": entry.pw_gid, "extra_groups": os.getgrouplist(entry.pw_name, entry.pw_gid)}
