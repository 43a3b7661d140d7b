"""The portal's part: database, Redis, Celery, Java, the last report. The portal's own command looks (``manage.py doctor``),
in a process of its own; this one starts it, bounds it, and believes no more of it than that these are findings.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator

import msgspec

from mailcore.doctor.finding import Finding, not_known, warn
from mailcore.doctor.patient import Patient

__all__ = ["look"]

LIMIT_S = 28.0
OUTPUT_BYTES_MAX = 1 << 20


def look(patient: Patient) -> Iterator[Finding]:
    command = [sys.executable, "-m", "django", "doctor"]
    given = {
        "WAYPOST_CONFIG": str(patient.config.absolute()),
        "DJANGO_SETTINGS_MODULE": "appliance.settings",
        "PYTHONDONTWRITEBYTECODE": "1",
        # The portal would make its own key where there is none, with our owner.
        "WAYPOST_SECRET_KEY": os.environ.get("WAYPOST_SECRET_KEY") or secrets.token_urlsafe(50),
    }
    try:
        ended = subprocess.run(  # noqa: S603  # our own command line
            command,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **given},
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        yield warn(
            "portal", f"its part gave no answer within {LIMIT_S:g} s", "Look at the portal's database and Redis."
        )
        return
    try:
        yield from msgspec.json.decode(ended.stdout[:OUTPUT_BYTES_MAX], type=list[Finding])
    except msgspec.MsgspecError:
        words = ended.stderr.decode("utf-8", "backslashreplace").strip().splitlines()
        told = words[-1] if words else f"exit status {ended.returncode}"
        yield not_known("portal", f"its part can't be asked: {told}", "Run manage.py check, which says more.")
