"""The portal as ``waypost setup`` needs it: its environment, its first password, and whether it answers over HTTPS.

The portal's own commands run as its user, in the environment of its service. The core imports nothing of it.
"""

from __future__ import annotations

import http.client
import os
import pwd
import secrets
import shutil
import ssl
import subprocess
import sys
from pathlib import Path

from mailcore.backup.database import portal_environment
from mailcore.config.settings import Settings
from mailcore.config.values import listen_address

__all__ = [
    "GROUP", "USER", "PortalError", "answers", "first_password", "has_user", "write_environment", "write_redis",
]  # fmt: skip

USER, GROUP = "waypost-portal", "waypost-control"
REDIS_GROUP = "waypost-redis"
PREPARE_S = 300.0
ANSWER_S = 10.0
WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # where to ask a portal that listens everywhere
ENVIRONMENT = """\
# Made by waypost setup: the environment of the portal's services. DATABASE_URL, for PostgreSQL, has its place here.
WAYPOST_CONFIG={config}
DJANGO_SETTINGS_MODULE=appliance.settings
CELERY_SKIP_CHECKS=1
"""
REDIS = """\
# Made by waypost setup. It is the bell of the reports, and keeps nothing.
port 0
unixsocket /run/waypost-redis/redis.sock
unixsocketperm 770
requirepass {password}
maxmemory 64mb
maxmemory-policy noeviction
save ""
appendonly no
daemonize no
dir /run/waypost-redis
loglevel warning
"""


class PortalError(Exception):
    """A command of the portal failed; the message is its last line."""


def has_user() -> bool:
    """Returns whether this host has the portal's user, which the package makes."""
    try:
        pwd.getpwnam(USER)
    except KeyError:
        return False
    return True


def write_environment(config: Path) -> bool:
    """Writes portal.env beside the settings, if there is none; returns whether it did. Raises OSError."""
    path = config.parent / "portal.env"
    if path.exists():
        return False
    _write(path, ENVIRONMENT.format(config=config), USER)
    return True


def write_redis(config: Path) -> bool:
    """Gives the Redis of the reports its settings and a password, if they are missing; returns whether it did. Raises
    OSError."""
    path, environment = config.parent / "redis.conf", config.parent / "portal.env"
    if path.exists() and "REDIS_URL=" in environment.read_text():
        return False
    password = secrets.token_urlsafe(24)
    _write(path, REDIS.format(password=password), REDIS_GROUP)
    kept = [line for line in environment.read_text().splitlines() if not line.startswith("REDIS_URL=")]
    url = f"REDIS_URL=redis+socket://:{password}@/run/waypost-redis/redis.sock?virtual_host=0"
    _write(environment, "\n".join([*kept, url]) + "\n", USER)
    return True


def _write(path: Path, text: str, group: str) -> None:
    """Writes a file that root and the group may read."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    if os.geteuid() == 0:
        shutil.chown(new, "root", group)
    new.chmod(0o640)
    new.replace(path)


def first_password(config: Path, home: Path, *, new: bool, by: str) -> str:
    """Prepares the portal's database. Returns the password of the first administrator, if it was made or ``new``.
    Raises PortalError, OSError."""
    is_root = os.geteuid() == 0
    words = [sys.executable, "-m", "django", "first_password", *(("--new", "--by", by) if new else ())]
    done = subprocess.run(  # noqa: S603  # our own command line
        words,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PREPARE_S,
        check=False,
        env=portal_environment(config, {"PATH": os.environ.get("PATH", os.defpath)}),
        cwd=home / "portal",
        umask=0o027,
        user=USER if is_root else None,
        group=USER if is_root else None,
        extra_groups=[GROUP] if is_root else None,
    )
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        raise PortalError(lines[-1] if lines else f"it ended with status {done.returncode}")
    lines = done.stdout.split()
    return lines[-1] if lines else ""


def answers(settings: Settings) -> str:
    """Returns why the page for signing in cannot be had from the portal on this host; "" if it can."""
    host, port = listen_address(settings.portal.listen)
    host = host.strip("[]")
    target = WILDCARDS.get(host, host)
    try:
        if settings.portal.tls_certificate:
            context = ssl.create_default_context(cafile=settings.portal.tls_certificate)
            context.check_hostname = False  # it is asked by address
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # it need not be an authority
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                target, port, timeout=ANSWER_S, context=context
            )
        else:
            connection = http.client.HTTPConnection(target, port, timeout=ANSWER_S)
        headers = {"Host": "localhost"} | ({} if settings.portal.tls_certificate else {"X-Forwarded-Proto": "https"})
        connection.request("GET", "/accounts/login/", headers=headers)
        status = connection.getresponse().status
        connection.close()
    except (OSError, http.client.HTTPException) as error:
        return str(error) or type(error).__name__
    return "" if status == http.client.OK else f"the page for signing in has the status {status}"
