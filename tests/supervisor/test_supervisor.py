"""The supervisor lives on when the outside around it does not."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest

from mailcore import processes
from mailcore.config.settings import Settings
from mailcore.log.disk import Disk
from mailcore.queue.identity import Identity, write_identity
from mailcore.supervisor import preparation
from mailcore.supervisor import supervisor as supervisor_module
from mailcore.supervisor.fresh_addresses import sockets_are_given
from mailcore.supervisor.listen import listen
from mailcore.supervisor.preparation import HomeError, prepare_home
from mailcore.supervisor.pulse import Pulse
from mailcore.supervisor.reloading import Plan, last_result
from mailcore.supervisor.supervisor import BACKOFF_S_MAX, Supervisor
from tests.eventually import PATIENCE_S
from tests.receiver.running_receiver import settings_in


def supervisor(tmp_path: Path) -> Supervisor:
    settings = settings_in(tmp_path)
    settings.log_directory.mkdir(parents=True, exist_ok=True)
    settings.run_directory.mkdir(parents=True, exist_ok=True)
    return Supervisor(settings, processes.ROLES, settings.run_directory / "settings.json")


def test_a_home_has_one_supervisor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "LOCK_WAIT_S", 0.0)
    settings = settings_in(tmp_path)
    lock = prepare_home(settings)
    try:
        with pytest.raises(HomeError, match=str(os.getpid())):
            prepare_home(settings)
    finally:
        os.close(lock)
    os.close(prepare_home(settings))


def test_a_disk_that_cannot_take_processes_json_ends_nothing_and_is_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    watching = supervisor(tmp_path)
    directory = watching.settings.run_directory
    obstacle = directory / "processes.new"
    obstacle.mkdir()
    watching._publish()
    watching._publish()
    assert capsys.readouterr().err.count("can't be written") == 1
    obstacle.rmdir()
    watching._publish()
    assert json.loads((directory / "processes.json").read_text()) == {"supervisor": os.getpid()}


def test_it_tells_since_when_each_child_runs_and_how_often_it_was_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Started:
        pid = 4711

    monkeypatch.setattr("mailcore.supervisor.supervisor.start", lambda *_: Started())
    watching = supervisor(tmp_path)
    child = watching.children[0]

    def told() -> dict[str, object]:
        watching._publish()
        children = json.loads((watching.settings.run_directory / "children.json").read_text())
        assert children["supervisor"]["pid"] == os.getpid()
        return dict(children["receiver.0"])

    assert told() == {"pid": None, "started_at": 0.0, "since_boot_s": 0.0, "restarts": 0}
    watching._start(child)
    booted_at = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    assert child.started_at - child.since_boot_s == pytest.approx(booted_at, abs=1.0)
    assert told() == {
        "pid": 4711, "started_at": child.started_at, "since_boot_s": child.since_boot_s, "restarts": 0,
    }  # fmt: skip
    watching._start(child)
    assert told()["restarts"] == 1
    watching._close_sockets(0)


def test_a_child_that_cannot_be_started_is_tried_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    watching = supervisor(tmp_path)
    child = watching.children[0]
    watching._start(child)
    assert child.process is None
    assert child.due == child.started + BACKOFF_S_MAX
    assert "receiver.0 can't be started" in capsys.readouterr().err
    watching._close_sockets(0)


def listening_on(watching: Supervisor, *addresses: str) -> Settings:
    settings = watching.settings
    return replace(settings, receiver=replace(settings.receiver, listen=addresses))


def test_a_reload_to_an_address_that_no_receiver_could_listen_on_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparation, "LOCK_WAIT_S", 0.0)
    watching = supervisor(tmp_path)
    before = watching.settings

    def refusal(*addresses: str) -> str:
        return watching._take_over(Plan(listening_on(watching, *addresses), frozenset({"receiver"}), ()))

    assert "192.0.2.1:25 is not an address of this host" in refusal(*before.receiver.listen, "192.0.2.1:25")  # RFC 5737
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert "is in use by another process" in refusal(f"127.0.0.1:{other.getsockname()[1]}")
    assert watching.settings is before
    assert not watching.stored.exists()
    with listen("127.0.0.2:29998"):  # as a receiver has it
        watching.settings = listening_on(watching, "127.0.0.2:29998")
        assert refusal("0.0.0.0:29998") == ""  # ours, on fewer addresses
    assert watching.settings.receiver.listen == ("0.0.0.0:29998",)


def test_the_result_of_a_reload_that_a_full_disk_does_not_take_is_written_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    watching = supervisor(tmp_path)
    directory = watching.settings.run_directory
    result = {"number": 1, "ended_at": None}
    watching._tell(result)
    obstacle = directory / "reload.new"
    obstacle.mkdir()
    watching._tell(result | {"ended_at": 5.0})
    assert watching._untold is not None
    watching._tell(watching._untold)
    assert capsys.readouterr().err.count("can't be written") == 1
    assert last_result(directory) == result
    obstacle.rmdir()
    watching._tell(watching._untold)
    assert last_result(directory)["ended_at"] == 5.0
    assert watching._untold is None


def test_it_tells_whether_systemd_has_the_sockets(tmp_path: Path) -> None:
    watching = supervisor(tmp_path)
    directory = watching.settings.run_directory
    assert not sockets_are_given(directory)
    watching._publish()
    assert not sockets_are_given(directory)
    with listen("127.0.0.1:29997") as given:
        watching.listeners = [given]
        watching._publish()
    assert sockets_are_given(directory)


def test_receivers_begin_before_anything_else_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Started:
        pid = 4711

    class Enough(Exception):
        pass

    monkeypatch.setattr("mailcore.supervisor.supervisor.start", lambda *_: Started())
    watching = supervisor(tmp_path)

    def begun(pulses: list[Pulse], timeout_s: float) -> None:
        running = [child for child in watching.children if child.process is not None]
        assert [child.name for child in running] == ["receiver.0"]
        assert pulses == [child.pulse for child in running]
        raise Enough

    monkeypatch.setattr("mailcore.supervisor.supervisor.until_begun", begun)
    masked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    before = signal.getsignal(signal.SIGCHLD)
    try:
        with pytest.raises(Enough):
            watching.run()
    finally:
        signal.signal(signal.SIGCHLD, before)
        signal.pthread_sigmask(signal.SIG_SETMASK, masked)
        watching._close_sockets(0)


def test_a_refused_start_is_logged_told_to_systemd_and_rests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """systemd would start it again five times a second."""
    rested: list[float] = []
    monkeypatch.setattr("mailcore.supervisor.refused.REFUSED_REST_S", 0.125)
    monkeypatch.setattr("mailcore.supervisor.refused.time.sleep", rested.append)
    settings = settings_in(tmp_path / "home")
    write_identity(Disk(), _made(settings.spool_directory), Identity("1" * 32, "spool", "/other", 1_795_000_000.0))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        address = os.path.relpath(tmp_path / "notify")
        systemd.bind(address)
        systemd.settimeout(PATIENCE_S)
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        assert refused(settings)
        told = systemd.recv(4096).decode()
    why = f"the spool directory {settings.spool_directory} belongs to another Waypost, 11111111 (home /other, since 2026-11-18)"
    assert told.startswith(f"STATUS=not started: {why}")
    assert capsys.readouterr().err.startswith(f"waypost: {why}")
    assert f"fatal: not started: {why}" in (settings.log_directory / "mail.log").read_text()
    assert rested == [0.125]


def refused(settings: Settings) -> bool:
    """Whether the supervisor does not start; the signal that it blocks while it runs is given back."""
    masked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        return supervisor_module.main(settings, processes.ROLES) == 1
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, masked)


def _made(directory: Path) -> str:
    directory.mkdir(parents=True)
    return str(directory)


@pytest.mark.parametrize("shared", [True, False], ids=["another Waypost", "another program"])
def test_a_port_somebody_else_listens_on_is_not_shared_with_him(
    tmp_path: Path, shared: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(preparation, "LOCK_WAIT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as free:
        endpoint = f"127.0.0.1:{free.getsockname()[1]}"
    with listen(endpoint, shared=shared):
        settings = settings_in(tmp_path)
        settings = replace(settings, receiver=replace(settings.receiver, listen=(endpoint,)))
        assert refused(settings)
    assert f"{endpoint} is in use by another process" in capsys.readouterr().err
