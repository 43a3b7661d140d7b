"""What systemd gives and hears: sockets that are handed on to the receivers, and lines on NOTIFY_SOCKET."""

from __future__ import annotations

import os
import signal
import smtplib
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mailcore.supervisor.service import Service, unlike
from tests.end_to_end.appliance import COMMAND, Appliance
from tests.eventually import PATIENCE_S, eventually_blocking

# Puts the listening socket where systemd would, and becomes `waypost mailcore`.
ACTIVATE = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.environ['LISTEN_FDS'] = '1';"
    "os.environ['LISTEN_PID'] = str(os.getpid()); os.execv(sys.argv[2], sys.argv[2:])"
)


@pytest.fixture
def notified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as service_manager:
        service_manager.bind(str(tmp_path / "notify"))
        service_manager.settimeout(PATIENCE_S)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield service_manager


def test_it_says_what_is_new_and_no_child_can_say_it_again(
    notified: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "30000000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    service = Service()
    assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} & set(os.environ)
    for _ in range(2):
        service.status("5 processes running")
    service.ready()
    service.alive()
    assert [notified.recv(100) for _ in range(3)] == [b"STATUS=5 processes running", b"READY=1", b"WATCHDOG=1"]


def test_a_watchdog_that_is_not_ours_is_not_fed(notified: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "30000000")
    monkeypatch.setenv("WATCHDOG_PID", "1")
    service = Service()
    service.alive()
    service.ready()
    assert notified.recv(100) == b"READY=1"


def test_a_service_manager_that_is_gone_is_no_reason_to_end(notified: socket.socket, tmp_path: Path) -> None:
    service = Service()
    (tmp_path / "notify").unlink()
    service.ready()


def test_sockets_that_are_not_those_of_the_settings_are_told_apart() -> None:
    with socket.socket() as given:
        given.bind(("127.0.0.1", 0))
        port = given.getsockname()[1]
        assert unlike([given], [("127.0.0.1", port)]) == ""
        assert unlike([given], [("::1", 25)]) == (
            f"systemd has no socket on [::1]:25; systemd has a socket on 127.0.0.1:{port}, which is not in the settings"
        )


def started(appliance: Appliance, listener: socket.socket) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", ACTIVATE, str(listener.fileno()), str(COMMAND), "mailcore", "--config"]
    with appliance.output.open("ab") as out:
        return subprocess.Popen(
            [*command, str(appliance.config)],
            pass_fds=[listener.fileno()],
            stdout=out,
            stderr=out,
            start_new_session=True,
        )


def until_ready(notified: socket.socket) -> None:
    while notified.recv(1000) != b"READY=1":
        pass


def hello(port: int) -> smtplib.SMTP:
    client = smtplib.SMTP("127.0.0.1", port, timeout=PATIENCE_S)
    client.ehlo("client.example")
    return client


@pytest.mark.parametrize("shards", [1, 2])
def test_with_a_socket_of_systemd_no_connection_is_refused_while_the_core_is_away(
    shards: int, notified: socket.socket, tmp_path: Path
) -> None:
    appliance = Appliance(tmp_path, {}, {"receiver": {"processes": 2}, "core": {"shards": shards}})
    with socket.socket() as listener:
        listener.bind(appliance.address)
        listener.listen(16)
        core = started(appliance, listener)
        try:
            until_ready(notified)
            hello(appliance.port).close()
            receivers = {name: pid for name, pid in appliance.processes().items() if name.startswith("receiver")}
            assert len(receivers) == 2
            shared = listener.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT)
            assert not shared  # so that what they accept came from this very socket
            os.killpg(core.pid, signal.SIGKILL)
            core.wait(PATIENCE_S)
            eventually_blocking(lambda: not any(Path(f"/proc/{pid}").exists() for pid in receivers.values()))
            waiting = socket.create_connection(
                appliance.address, timeout=PATIENCE_S
            )  # nobody is there, and it is taken
            core = started(appliance, listener)
            until_ready(notified)
            assert waiting.recv(4) == b"220 "
            waiting.close()
        finally:
            os.killpg(core.pid, signal.SIGKILL)
            core.wait(PATIENCE_S)


def test_a_socket_on_another_port_than_the_settings_say_stops_the_start(tmp_path: Path) -> None:
    appliance = Appliance(tmp_path, {})
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        assert started(appliance, listener).wait(PATIENCE_S) == 1
    said = appliance.output.read_text()
    assert f"no socket on 127.0.0.1:{appliance.port}" in said
    assert not appliance.home.exists()
