"""The watchdog of systemd, with a real NOTIFY_SOCKET: it is answered as long as the supervisor does its work."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from mailcore.supervisor.supervisor import STUCK
from tests.end_to_end.appliance import Appliance
from tests.eventually import eventually
from tests.supervisor.test_supervisor import supervisor


class Systemd:
    """The socket of a service manager, and what came over it."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        monkeypatch.setenv("WATCHDOG_USEC", "30000000")
        monkeypatch.delenv("WATCHDOG_PID", raising=False)

    def heard(self) -> list[bytes]:
        """Returns what has come since the last call."""
        lines = []
        while True:
            try:
                lines.append(self.socket.recv(4096))
            except BlockingIOError:
                return lines


async def test_it_is_answered_while_the_supervisor_lives_and_not_when_it_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemd = Systemd(tmp_path / "notify", monkeypatch)
    appliance = Appliance(tmp_path, {})
    await appliance.start()
    try:
        heard: list[bytes] = []

        def answered() -> bool:
            heard.extend(systemd.heard())
            return heard.count(b"WATCHDOG=1") >= 3

        await eventually(answered, "three answers")
        assert heard.index(b"READY=1") < heard.index(b"WATCHDOG=1")
        pid = appliance.processes()["supervisor"]
        os.kill(pid, signal.SIGSTOP)
        await eventually(lambda: _state(pid) == "T", "the supervisor to stop")
        systemd.heard()
        await asyncio.sleep(2.5)  # more than twice the time between two answers
        assert systemd.heard() == [], "nobody answers for it, so systemd kills and starts it"
        await appliance.kill("supervisor")
        heard.clear()
        await eventually(answered, "the new one to answer")
    finally:
        appliance.stop()
        systemd.socket.close()


def test_a_child_that_even_a_kill_does_not_end_is_left_to_systemd(tmp_path: Path) -> None:
    watching = supervisor(tmp_path)
    child = watching.children[0]
    with subprocess.Popen(["sleep", "1000"]) as process:
        child.process = process
        silent_s = watching.settings.supervisor.silent_s
        stuck = []
        for child.hung_s in (0.0, silent_s + 1, STUCK * silent_s + 1):  # not hanging; killed just now; not ended by it
            stuck.append(watching._has_stuck_child())
        process.kill()
        process.wait()
        watching._ended(child)
    assert stuck == [False, False, True]
    assert not watching._has_stuck_child()


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
