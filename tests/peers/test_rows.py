"""The thread that reads the rows: a fault of its own ends the process, which is then started again."""

from __future__ import annotations

import subprocess
import sys

from tests.test_tidy import ROOT

PROCESS = """
import sys, time
from mailcore.peers.rows import Rows

class Broken(Rows):
    def __init__(self): pass
    def run(self): raise ZeroDivisionError("broken on purpose")

Broken().start()
time.sleep(1e6)
"""


def test_a_fault_of_the_thread_is_told_and_ends_the_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROCESS], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    assert "ZeroDivisionError: broken on purpose" in done.stderr
