"""The task that makes the first administrator's password: it keeps the password, and says why there is none."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import jinja2
import pytest
import yaml

from tests.ansible.playing import COLLECTION

TASKS = yaml.safe_load((COLLECTION / "roles/portal/tasks/portal.yml").read_text())
TASK = next(task for task in TASKS if task["name"] == "Make the first administrator's password")
SIGN_IN = "portal: sign in as admin with secret (shown once; you change it when you sign in)"
FAILURE = "django.db.utils.OperationalError: connection failed: no password supplied"


def run(place: Path, says: str, status: int) -> subprocess.CompletedProcess[str]:
    """Runs the task's command, with files below ``place`` and a portal that says this."""
    (place / "etc").mkdir()
    (place / "portal").mkdir()
    (place / "etc" / "portal.env").write_text("DATABASE_URL=x\n")
    runuser = place / "runuser"
    runuser.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{says}\nEND\nexit {status}\n")
    runuser.chmod(0o755)
    command = TASK["ansible.builtin.shell"]["cmd"].replace("/etc/waypost", str(place / "etc"))
    command = command.replace("{{ waypost_home }}", str(place)).replace("{{ waypost_prefix }}", str(place))
    environment = os.environ | {"PATH": f"{place}:{os.environ['PATH']}"}
    return subprocess.run(["/bin/sh", "-c", command], env=environment, capture_output=True, text=True, check=False)


def test_the_password_is_kept_for_root_alone(tmp_path: Path) -> None:
    done = run(tmp_path, SIGN_IN, 0)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    kept = tmp_path / "etc" / "first-password"
    assert kept.read_text() == f"{SIGN_IN}\n"
    assert kept.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("says", [f"Traceback\n  File x\n{FAILURE}", f"{FAILURE}\n{SIGN_IN}"])
def test_a_failure_says_why_and_never_a_password(tmp_path: Path, says: str) -> None:
    done = run(tmp_path, says, 1)
    assert done.returncode != 0
    assert not (tmp_path / "etc" / "first-password").exists(), "the next run tries again"
    assert TASK["no_log"] is True, "its output may hold the password"
    stops = TASKS[TASKS.index(TASK) + 1]["ansible.builtin.assert"]
    assert stops["that"] == f"{TASK['register']}.rc == 0"
    environment = jinja2.Environment(autoescape=True)
    environment.tests["search"] = lambda text, pattern: re.search(pattern, text) is not None
    shown = environment.from_string(stops["fail_msg"])
    text = shown.render({TASK["register"]: {"stderr_lines": done.stderr.splitlines()}})
    assert text.endswith(f"first administrator: {FAILURE}")
    assert shown.render({TASK["register"]: {"stderr_lines": []}}).endswith(": no output")
