"""A process of a node beside its shards that hangs is killed and started again; one that goes on, or has not begun, is left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.eventually import PATIENCE_S
from tests.test_tidy import ROOT

# In a process of its own, because it forks.
PROCESS = """
import dataclasses, sys, time
from pathlib import Path
from mailcore.config.load import load_text
from mailcore.maillog.maillog import MailLog
from mailcore.supervisor import beside
from mailcore.supervisor.pulse import Beats
from mailcore.supervisor.start import Role

how = sys.argv[2]

def main(settings, parent):
    beats = Beats()
    while how != "not begun":
        beats.now()
        time.sleep(1e6 if how == "hangs" else 0.1)
    time.sleep(1e6)

settings = load_text(Path(sys.argv[1]) / "waypost.toml", "")
settings = dataclasses.replace(settings, supervisor=dataclasses.replace(settings.supervisor, silent_s=2.0))
log = MailLog(settings.log_directory)
each = beside.Beside("peers", Role(lambda: main))
end = time.monotonic() + 6
while time.monotonic() < end and each.restarts < 1:
    each.keep(settings, log)
    log.flush()
    time.sleep(0.05)
print("restarts:", each.restarts)
each.process.kill()
"""


@pytest.mark.parametrize(("how", "restarts"), [("hangs", 1), ("goes on", 0), ("not begun", 0)])
def test_one_that_hangs_is_started_again(tmp_path: Path, how: str, restarts: int) -> None:
    (tmp_path / "home" / "log").mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-c", PROCESS, str(tmp_path), how], cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1:] == [f"restarts: {restarts}"], done.stderr
    assert ("ended with signal SIGKILL, as it had hung for" in done.stdout + done.stderr) == bool(restarts)
