"""A core starts, and its end is heard, whatever happened to the tests before it in the same process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.eventually import PATIENCE_S, eventually_blocking
from tests.running import loaded
from tests.running.loaded import UNKNOWN, Copy, alive


@pytest.fixture(scope="module")
def its_own() -> Iterator[loaded._Loaded]:
    """One that no other test has copies of."""
    its_own = loaded._Loaded()
    yield its_own
    its_own.close()


@pytest.fixture
def started(its_own: loaded._Loaded, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Copy]]:
    """The copies of this test, none of which is left."""
    monkeypatch.setattr(loaded, "_LOADED", its_own)
    started: list[Copy] = []
    yield started
    for each in started:
        if each.returncode is None and alive(each.pid):
            os.kill(each.pid, signal.SIGKILL)


def start(started: list[Copy], config: Path) -> Copy:
    with config.with_name("output").open("ab") as output:
        copy = loaded.start(["mailcore", "--config", str(config)], output.fileno())
    assert isinstance(copy, Copy)
    started.append(copy)
    return copy


def assert_another_starts(started: list[Copy], directory: Path) -> None:
    """It ends at once, since it has no configuration."""
    assert start(started, directory / "missing.toml").wait(PATIENCE_S) not in {0, UNKNOWN}


@pytest.fixture
def lasting(tmp_path: Path) -> Path:
    """A configuration that is read for ever."""
    os.mkfifo(tmp_path / "lasting.toml")
    return tmp_path / "lasting.toml"


def test_two_threads_wait_for_one_copy() -> None:
    """A test that is cancelled leaves a thread that waits (Appliance.kill), and then stops the appliance."""

    class Slow(loaded._Loaded):
        asked = 0
        both = threading.Semaphore(0)

        def ask(self, order: dict[str, Any], *descriptors: int) -> int:
            self.asked += 1
            self.both.acquire(timeout=0.2)  # until the other asks, too, if it may
            self.both.release()
            return 3

    slow = Slow()
    copy = Copy(slow, 1)
    waiting = [threading.Thread(target=copy.wait, args=(PATIENCE_S,)) for _ in range(2)]
    for each in waiting:
        each.start()
    for each in waiting:
        each.join()
    assert (slow.asked, copy.returncode) == (1, 3)


def test_no_process_is_free_for_the_first_start(
    started: list[Copy], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, its_own: loaded._Loaded
) -> None:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise BlockingIOError("fork")

    its_own.close()
    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", refuse)
        with pytest.raises(BlockingIOError):
            start(started, tmp_path / "missing.toml")
    assert_another_starts(started, tmp_path)


def test_an_order_that_cannot_be_carried_out(started: list[Copy], tmp_path: Path, its_own: loaded._Loaded) -> None:
    with pytest.raises(OSError, match="no copy"):
        its_own.ask({"arguments": []})  # no output
    assert_another_starts(started, tmp_path)


def test_the_end_of_a_copy_was_heard_before(started: list[Copy], tmp_path: Path, its_own: loaded._Loaded) -> None:
    copy = start(started, tmp_path / "missing.toml")
    eventually_blocking(lambda: its_own.ask({"pid": copy.pid}) is not None)
    assert copy.wait(PATIENCE_S) == UNKNOWN
    assert_another_starts(started, tmp_path)


def test_a_test_is_interrupted_before_it_hears_the_answer(
    started: list[Copy], tmp_path: Path, lasting: Path, its_own: loaded._Loaded
) -> None:
    class Interrupted(socket.socket):
        def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
            super().recv(bufsize, flags | socket.MSG_PEEK)
            raise KeyboardInterrupt  # as the time-out of a test comes

    copy = start(started, lasting)
    assert its_own._socket is not None
    its_own._socket = Interrupted(fileno=its_own._socket.detach())
    with pytest.raises(KeyboardInterrupt):
        copy.poll()
    other = start(started, lasting)
    assert other.pid != copy.pid
    assert (copy.poll(), other.poll()) == (None, None)


def test_what_is_copied_is_killed(started: list[Copy], tmp_path: Path, lasting: Path, its_own: loaded._Loaded) -> None:
    copy = start(started, lasting)
    assert its_own._process is not None
    its_own._process.kill()
    its_own._process.wait()
    assert_another_starts(started, tmp_path)
    assert copy.poll() is None
    os.kill(copy.pid, signal.SIGKILL)
    assert copy.wait(PATIENCE_S) == UNKNOWN
