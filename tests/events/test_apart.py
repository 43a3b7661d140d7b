"""Work in a child: its result, its errors, its death, and that of its parent."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mailcore.events import apart
from mailcore.events.apart import ChildFailed, at_once, in_a_child
from tests.eventually import eventually_blocking


def test_the_result_comes_from_another_process_that_is_gone_afterwards() -> None:
    pid, numbers = in_a_child(lambda: (os.getpid(), list(range(100_000))), ())
    assert pid != os.getpid()
    assert numbers == list(range(100_000)), "more than a pipe holds"
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, 0)


def test_an_expected_error_is_raised_here_as_it_was_there() -> None:
    def fail() -> None:
        raise OSError(28, os.strerror(28), "/events/dt=2026-01-01")

    with pytest.raises(OSError, match="No space left") as error:
        in_a_child(fail, (OSError,))
    assert (error.value.errno, error.value.filename) == (28, "/events/dt=2026-01-01")
    with pytest.raises(OSError, match="No space left"):
        at_once(fail, (OSError,))


def test_a_fault_of_ours_is_told_and_is_no_result(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ChildFailed, match="status 1"):
        in_a_child(lambda: os.environ["MISSING"], (OSError,))
    assert "KeyError: 'MISSING'" in capfd.readouterr().err


def test_a_child_that_is_killed_gives_no_result() -> None:
    with pytest.raises(ChildFailed, match="status -9"):
        in_a_child(lambda: os.kill(os.getpid(), signal.SIGKILL), (OSError,))


def test_no_descriptor_stays() -> None:
    gc.collect()  # what earlier tests left
    before = len(os.listdir("/proc/self/fd"))
    in_a_child(lambda: 1, ())
    with pytest.raises(ChildFailed):
        in_a_child(lambda: os._exit(3), ())
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_child_ends_with_its_parent(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    script = (
        "import os, time, pathlib\n"
        f"from {apart.__name__} import in_a_child\n"
        f"in_a_child(lambda: (pathlib.Path({str(told)!r}).write_text(str(os.getpid())), time.sleep(600)), ())\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script])
    eventually_blocking(lambda: told.exists() and told.read_text().isdigit(), "the child")
    child = int(told.read_text())
    parent.kill()
    parent.wait()
    eventually_blocking(lambda: not _runs(child), "the end of the child")


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
