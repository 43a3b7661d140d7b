"""A report's process: heard, bounded, ended in time, one at a time, and gone with whoever watched it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.reports.running import LINE_MAX, LINES_MAX, Busy, Ended, Heard, held, run
from tests.eventually import PATIENCE_S, eventually_blocking
from tests.test_tidy import ROOT


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def made(
    tmp_path: Path, code: str, timeout_s: float = PATIENCE_S, listen: Callable[[Heard], bool] | None = None
) -> Ended:
    with held(tmp_path) as hold:
        return run(python(code), hold, timeout_s=timeout_s, listen=listen or (lambda _: True))


def is_free(directory: Path) -> bool:
    try:
        with held(directory):
            return True
    except Busy:
        return False


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_progress_and_the_rest_of_what_it_says_are_told_apart(tmp_path: Path) -> None:
    heard: list[Heard] = []

    def listen(each: Heard) -> bool:
        heard.append(each)
        return True

    code = """
import sys, time
print('{"stage": "reading", "share": 0.25}', flush=True)
print("a warning", file=sys.stderr, flush=True)
print('{"this": "is no progress"}', flush=True)
time.sleep(2.5)
print('{"stage": "done", "share": 7}')
print("the end", end="")
"""
    ended = made(tmp_path, code, listen=listen)
    assert (ended.status, ended.why) == (0, "")
    assert ended.log == 'a warning\n{"this": "is no progress"}\nthe end'
    assert ("reading", 0.25) in [(each.stage, each.share) for each in heard]


def test_a_flood_and_an_endless_line_cost_no_memory(tmp_path: Path) -> None:
    ended = made(tmp_path, "for n in range(20_000): print('x' * 50, n)\nprint('y' * 5_000_000)\nprint('last')")
    lines = ended.log.splitlines()
    assert len(lines) == LINES_MAX
    assert max(map(len, lines)) <= LINE_MAX
    assert lines[-1] == "last"


def test_how_it_ended_is_told(tmp_path: Path) -> None:
    assert made(tmp_path, "raise SystemExit(3)").status == 3
    assert made(tmp_path, "import os; os.kill(os.getpid(), 9)").status == -9


def test_what_takes_too_long_is_ended_with_all_it_started(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    code = f"""
import subprocess, time
open({str(mark)!r}, "w").write(str(subprocess.Popen(["sleep", "600"]).pid))
time.sleep(600)
"""
    ended = made(tmp_path, code, timeout_s=2)
    assert ended.why == "took longer than 2 s"
    eventually_blocking(lambda: is_gone(int(mark.read_text())))


def test_it_is_stopped_when_the_listener_says_so(tmp_path: Path) -> None:
    ended = made(tmp_path, "import time; time.sleep(600)", listen=lambda _: False)
    assert (ended.status, ended.why) == (-9, "stopped")


def test_one_at_a_time(tmp_path: Path) -> None:
    with held(tmp_path), pytest.raises(Busy), held(tmp_path):
        pass
    assert is_free(tmp_path)


WATCHER = """
import sys
from pathlib import Path
from appliance.reports.running import held, run
with held(Path(sys.argv[1])) as hold:
    run([sys.executable, "-c", sys.argv[2]], hold, timeout_s=600, listen=lambda _: True)
"""


def test_a_watcher_that_is_killed_leaves_neither_the_child_nor_the_lock(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    code = f"import os, time; open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    watcher = subprocess.Popen([sys.executable, "-c", WATCHER, str(tmp_path), code], cwd=ROOT)
    try:
        eventually_blocking(lambda: mark.exists() and mark.read_text())
        assert not is_free(tmp_path)
        child = int(mark.read_text())
        assert not is_gone(child)
    finally:
        watcher.kill()
        watcher.wait()
    eventually_blocking(lambda: is_gone(child))
    eventually_blocking(lambda: is_free(tmp_path))


def test_the_child_holds_the_lock_too(tmp_path: Path) -> None:
    """Its watcher may be gone for a moment longer than it, or shorter: the lock is free when both are."""
    ended = made(tmp_path, "import glob, os; print([os.path.realpath(each) for each in glob.glob('/proc/self/fd/*')])")
    assert str((tmp_path / "run.lock").resolve()) in ended.log


def test_the_lock_is_held_as_long_as_the_child_lives(tmp_path: Path) -> None:
    with held(tmp_path) as hold:
        child = subprocess.Popen(["sleep", "600"], pass_fds=(hold,))
    try:
        assert not is_free(tmp_path)
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    assert is_free(tmp_path)
