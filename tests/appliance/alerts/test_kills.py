"""Killed at any step and started again, a watch loses no notice, and sends one twice only if it was sent and not yet noted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.test_tidy import ROOT

EACH = {(channel, kind) for channel in ("mail", "webhook") for kind in ("opened", "ended")}


def test_a_watch_that_is_killed_at_any_step_sends_each_notice(tmp_path: Path) -> None:
    config = tmp_path / "waypost.toml"
    config.write_text('home = "."\n')
    own = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.appliance.alerts.killed_watch", str(tmp_path)], cwd=ROOT, text=True, timeout=300,
        env=own | {"WAYPOST_CONFIG": str(config), "DJANGO_SETTINGS_MODULE": "appliance.settings"}, capture_output=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert len(results) > 40
    assert results[-1]["first"] == 0, "the last one was not killed"
    twice = 0
    for each in results:
        assert each["second"] == 0, done.stderr
        sent, sent_first, noted_first = (
            Counter(map(tuple, each[name])) for name in ("sent", "sent_first", "noted_first")
        )
        assert set(sent) == EACH, each
        assert set(map(tuple, each["noted"])) == EACH, each
        assert each["alerts"] == [["disk:space:queue", 0]], each
        unnoted = sent_first - noted_first
        assert sent - unnoted == Counter(EACH), each
        twice += bool(unnoted)
    assert 0 < twice < len(results) / 2
