"""A forked child has nothing of the supervisor but what it is given."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mailcore.config.settings import Settings
from mailcore.supervisor.child import Main, store_settings
from mailcore.supervisor.start import Order, Process, Role, start
from mailcore.supervisor.users import User
from tests.eventually import PATIENCE_S
from tests.receiver.running_receiver import settings_in


def ended(process: Process) -> int:
    until = time.monotonic() + PATIENCE_S
    while (status := process.poll()) is None:
        assert time.monotonic() < until
        time.sleep(0.005)
    return status


def order_in(directory: Path, handed: list[int], user: User | None = None) -> Order:
    """The child runs with the settings of ``directory``."""
    stored = directory / "run" / "settings.json"
    stored.parent.mkdir(exist_ok=True)
    store_settings(settings_in(directory), stored)
    stored.chmod(0o644)
    return Order("receiver.3", "receiver", 3, str(stored), handed, {"WAYPOST_TESTED": "yes"}, user)


def reporting(path: Path) -> Callable[[], Main]:
    """A main that writes down what it has of its own."""

    def main(settings: Settings, number: int) -> None:
        status = Path("/proc/self/status").read_bytes().decode()
        found = {
            "home": str(settings.home),
            "number": number,
            "descriptors": {each: os.readlink(f"/proc/self/fd/{each}") for each in os.listdir("/proc/self/fd") if
                            os.path.exists(f"/proc/self/fd/{each}")},
            "title": Path("/proc/self/cmdline").read_bytes().rstrip(b"\0").decode(),
            "tested": os.environ["WAYPOST_TESTED"],
            "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
            "child_ended": signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL,
            "ids": [os.getresuid(), os.getresgid(), sorted(os.getgroups())],
            "capabilities": {line.split()[0]: int(line.split()[1], 16) for line in status.splitlines() if line[:3] == "Cap"},
        }  # fmt: skip
        path.write_bytes(json.dumps(found).encode())

    return lambda: main


def test_a_forked_child_has_what_it_is_given_and_nothing_else_of_the_supervisor(tmp_path: Path) -> None:
    secret = os.open(tmp_path / "secret", os.O_CREAT | os.O_RDWR)
    reader, writer = os.pipe()
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    handler = signal.signal(signal.SIGCHLD, lambda *_: None)
    try:
        assert ended(start(Role(reporting(tmp_path / "found")), order_in(tmp_path, [writer]))) == 0
    finally:
        signal.signal(signal.SIGCHLD, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for each in (secret, reader, writer):
            os.close(each)
    found = json.loads((tmp_path / "found").read_text())
    descriptors = found.pop("descriptors")
    assert descriptors.pop("0") == "/dev/null"
    assert set(descriptors) == {"1", "2", str(writer)}
    assert found["home"] == str(tmp_path)
    assert found["number"] == 3
    assert found["title"] == f"waypost: receiver.3 {tmp_path}"
    assert found["tested"] == "yes"
    assert "WAYPOST_TESTED" not in os.environ
    assert found["blocked"] == []
    assert found["child_ended"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of several users")
def test_a_forked_child_of_another_user_keeps_no_right_of_the_supervisor(tmp_path: Path) -> None:
    for directory in (tmp_path, *tmp_path.parents[:3]):
        if directory.stat().st_uid == os.getuid() and directory != Path("/tmp"):
            directory.chmod(0o755)
    place = tmp_path / "found"
    place.mkdir(mode=0o777)
    place.chmod(0o777)
    order = order_in(tmp_path, [], User("man", 6, 12, (8, 12)))
    assert ended(start(Role(reporting(place / "found")), order)) == 0
    found = json.loads((place / "found").read_text())
    assert found["ids"] == [[6] * 3, [12] * 3, [8, 12]]
    assert set(found["capabilities"].values()) - {found["capabilities"]["CapBnd:"]} == {0}


def test_an_error_of_a_child_ends_the_child_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def fail(settings: Settings, number: int) -> None:
        raise RuntimeError("the bug that was made for this test")

    here = os.getpid()
    assert ended(start(Role(lambda: fail), order_in(tmp_path, []))) == 1
    assert os.getpid() == here
    assert "RuntimeError: the bug that was made for this test" in capfd.readouterr().err


def test_a_child_may_end_with_a_status_of_its_own(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert ended(start(Role(lambda: lambda settings, number: sys.exit(75)), order_in(tmp_path, []))) == 75
    assert capfd.readouterr().err == ""


def test_the_words_of_an_exit_are_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """They are why the process ended: a lane that is locked, an address that cannot be used."""

    def exits(settings: Settings, number: int) -> None:
        sys.exit("waypost: receiver 0: the lane is locked")

    assert ended(start(Role(lambda: exits), order_in(tmp_path, []))) == 1
    assert "waypost: receiver 0: the lane is locked\n" in capfd.readouterr().err


def test_a_child_can_be_killed_and_a_second_kill_reaches_no_other_process(tmp_path: Path) -> None:
    child = start(Role(lambda: lambda settings, number: time.sleep(PATIENCE_S)), order_in(tmp_path, []))
    assert child.poll() is None
    child.kill()
    assert ended(child) == -signal.SIGKILL
    child.kill()  # its id is free now
    assert child.poll() == -signal.SIGKILL


def test_the_rooms_that_are_forked_start_no_thread_when_they_are_loaded() -> None:
    """A fork copies one thread; a lock that another one held would stay locked in the child."""
    script = (
        "import os\n"
        "from mailcore.processes import ROLES\n"
        "for role in ROLES.values():\n"
        "    role.load()\n"
        "print(len(os.listdir('/proc/self/task')))"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout == "1\n"
