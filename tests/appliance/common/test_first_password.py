"""``manage.py first_password``, which ``waypost setup`` runs: one password, shown once, and another one on request."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.test_tidy import ROOT

CHECK = """
import sys, django
django.setup()
from django.contrib.auth import authenticate
from django.contrib.auth.models import User
from appliance.audit.models import Entry
user = User.objects.get()
print(user.username, user.is_active, user.check_password(sys.argv[1]), [each.name for each in user.groups.all()],
      list(Entry.objects.values_list("action", "who")))
"""


def written(place: Path, portal: str) -> dict[str, str]:
    """Writes settings with that [portal]; returns the environment of the portal's commands."""
    (place / "waypost.toml").write_text(f'home = "home"\n[portal]\n{portal}')
    kept = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "WAYPOST_SECRET_KEY")}
    return kept | {
        "WAYPOST_CONFIG": str(place / "waypost.toml"),
        "DJANGO_SETTINGS_MODULE": "appliance.settings",
        "PYTHONPATH": str(ROOT),
    }


def run(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "django", *words]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_the_password_is_printed_once_and_a_new_one_replaces_it(tmp_path: Path) -> None:
    environment = written(tmp_path, "")

    def user_with(password: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", CHECK, password],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    first = run(environment, "first_password")
    assert first.returncode == 0, first.stderr
    assert len(first.stdout.strip()) >= 12
    assert user_with(first.stdout.strip()) == "admin True True ['administrator'] []\n"
    assert run(environment, "first_password").stdout == ""
    second = run(environment, "first_password", "--new", "--by", "olga")
    assert second.returncode == 0, second.stderr
    assert second.stdout.strip() != first.stdout.strip()
    audit = "[('account.new_password', 'olga')]"
    assert user_with(second.stdout.strip()) == f"admin True True ['administrator'] {audit}\n"
    assert user_with(first.stdout.strip()) == f"admin True False ['administrator'] {audit}\n"
