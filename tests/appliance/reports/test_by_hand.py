"""``waypost report DAY`` at a terminal, without portal, Redis or database."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from appliance.reports.running import held
from tests.test_tidy import ROOT


def report(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    config = home / "waypost.toml"
    config.write_text('home = "."\n')
    foreign = ("DATABASE_URL", "DJANGO_SETTINGS_MODULE", "WAYPOST_CONFIG")
    environment = {name: value for name, value in os.environ.items() if name not in foreign}
    return subprocess.run(
        [sys.executable, "-m", "mailcore.cli.main", "report", *arguments, "--config", str(config)],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip


def test_a_day_that_is_none_is_refused(tmp_path: Path) -> None:
    done = report(tmp_path, "yesterday")
    assert done.returncode == 2
    assert "is no day; allowed: 2026-11-20" in done.stderr


def test_what_cannot_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "versions").write_text("no directory")
    done = report(tmp_path, "2026-11-18")
    assert done.returncode == 1
    assert "the report of 2026-11-18 was not made: status" in done.stderr


def test_one_at_a_time(tmp_path: Path) -> None:
    with held(tmp_path / "reports"):
        done = report(tmp_path)
    assert done.returncode == 1
    assert "a report is being made already" in done.stderr
