"""The portal's part: database, Redis, Celery, Java and the last report.

Runs the portal's own command (``manage.py doctor``) as a child process with a time limit, and accepts nothing but findings.

Laws: the child gets the environment of the portal's service; root starts it as the portal's user, because PostgreSQL and
Redis decide access by user.
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
from mailcore.doctor.host import Host

__all__ = ["look"]

LIMIT_S = 28.0
RES_OPTIONS = (
    "timeout:1 attempts:1"  # resolv.conf(5): a dead name server delays a database with a name by 1 s, not 10 s
)
OUTPUT_BYTES_MAX = 1 << 20
STARTED = re.compile(r"^ExecStart=(/\S+/python) -m django ", re.MULTILINE)
# The only variables of root's environment that the portal's user gets.
HANDED_OVER = ("PATH", "LANG", "TZ", "JAVA_HOME", "DATABASE_URL", "REDIS_URL", "WAYPOST_SECRET_KEY")


def look(host: Host) -> Iterator[Finding]:
    """Yields the findings of the portal's doctor, or one about why it gave none."""
    says_more = f"Run: WAYPOST_CONFIG={host.config} {sys.executable} -m django check --settings appliance.settings"
    if host.has_unit("waypost-portal"):
        says_more = "Run: journalctl --unit waypost-portal"
    who = _its_user(host.settings.home / "portal")
    handed = {name: os.environ[name] for name in HANDED_OVER if name in os.environ} if who else dict(os.environ)
    try:
        service = portal_environment(host.config, {})
    except DatabaseFailed as error:
        yield not_known("portal", str(error), "Run waypost doctor as root.")
        return
    try:
        ended = subprocess.run(  # noqa: S603  # our own command line
            [_python(host.unit("waypost-portal")), "-m", "django", "doctor"],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env=_environment(host.config, service, handed),
            timeout=LIMIT_S,
            check=False,
            **who,
        )
    except subprocess.TimeoutExpired:
        yield warn(
            "portal", f"no answer from its doctor within {LIMIT_S:g} s", "Check the portal's database and Redis."
        )
        return
    except OSError as error:  # such as a Python that the portal's user cannot execute
        reason = f"cannot run the portal's doctor as user {who.get('user', os.getuid())}: {error}"
        yield not_known("portal", reason, says_more)
        return
    try:
        yield from msgspec.json.decode(ended.stdout[:OUTPUT_BYTES_MAX], type=list[Finding])
    except msgspec.MsgspecError:
        errors = ended.stderr.decode("utf-8", "backslashreplace").strip().splitlines()
        reason = errors[-1] if errors else f"exit status {ended.returncode}"
        yield not_known("portal", f"the portal's doctor failed: {reason}", says_more)


def _python(unit: Path) -> str:
    """Returns the Python of the portal's service: portal and database may have another version than the core."""
    with contextlib.suppress(OSError):
        if (found := STARTED.search(unit.read_text())) and os.access(found[1], os.X_OK):
            return found[1]
    return sys.executable


def _environment(config: Path, service: Mapping[str, str], handed: Mapping[str, str]) -> dict[str, str]:
    """Returns the child's environment: ``service`` is the portal's, ``handed`` overrides it except for WAYPOST_CONFIG."""
    return {
        # Without a key, the portal would create a key file, owned by this user.
        "WAYPOST_SECRET_KEY": secrets.token_urlsafe(50),
        "WAYPOST_CONFIG": str(config.absolute()),
        **service,
        **{name: value for name, value in handed.items() if value and name != "WAYPOST_CONFIG"},
        "DJANGO_SETTINGS_MODULE": "appliance.settings",
        "PYTHONDONTWRITEBYTECODE": "1",
        "RES_OPTIONS": RES_OPTIONS,
    }


def _its_user(directory: Path) -> dict[str, Any]:
    """Returns the owner of the portal's directory as arguments for subprocess.run; empty unless root runs the doctor."""
    try:
        status = directory.stat()
    except OSError:  # no portal has run here
        return {}
    if os.geteuid() != 0 or status.st_uid == 0:
        return {}
    found: dict[str, Any] = {"user": status.st_uid, "group": status.st_gid, "extra_groups": [], "cwd": "/"}
    try:
        entry = pwd.getpwuid(status.st_uid)
    except KeyError:
        return found
    return found | {"group": entry.pw_gid, "extra_groups": os.getgrouplist(entry.pw_name, entry.pw_gid)}
