"""The clock: moved while a process ran, ahead when positions were written, kept or not."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from mailcore.doctor import clock
from mailcore.doctor.finding import State
from mailcore.doctor.host import Host
from mailcore.log.disk import Disk
from mailcore.log.positions import RestartPositions, write_positions
from tests.doctor.sample_host import children, found, running, sample_host


@pytest.mark.parametrize(("moved_s", "state"), [(0, State.GOOD), (3600, State.WARN), (-60, State.WARN)])
def test_the_clock_was_set_while_a_process_ran(tmp_path: Path, moved_s: int, state: State) -> None:
    """``started_at`` was written by the clock as it was before it was set by ``moved_s``."""
    with running() as process:
        settings = sample_host(tmp_path).settings
        children(settings, {"manager": process.pid}, age_s=moved_s)
        finding = found(clock.look(sample_host(tmp_path)), "jumps")
    assert finding.state is state
    assert abs(finding.figures["jump_s"] - moved_s) < clock.JUMP_S
    if moved_s:
        assert f"was set {'forward' if moved_s > 0 else 'back'}" in finding.found


def test_a_process_may_be_older_than_the_waypost_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``./run`` installs packages, and then becomes the supervisor by exec."""
    monkeypatch.setattr(clock, "JUMP_S", 0.1)
    with running() as process:
        time.sleep(0.3)
        children(sample_host(tmp_path).settings, {"supervisor": process.pid, "manager": process.pid})
        assert found(clock.look(sample_host(tmp_path)), "jumps").state is State.GOOD


def test_nobody_runs(tmp_path: Path) -> None:
    assert found(clock.look(sample_host(tmp_path)), "jumps").state is State.NOT_KNOWN


@pytest.mark.parametrize(("ahead_s", "state"), [(-10, State.GOOD), (900, State.BAD)])
def test_positions_of_the_future(tmp_path: Path, ahead_s: int, state: State) -> None:
    host = sample_host(tmp_path)
    positions = RestartPositions(1, time.time() + ahead_s, {}, 0, 0)
    write_positions(Disk(), str(host.settings.queue_directory), positions)
    assert found(clock.look(host), "future").state is state


def program(directory: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    file = directory / "timedatectl"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda name: str(file))


@pytest.mark.parametrize(
    ("said", "state", "words"),
    [
        ("NTP=yes\\nNTPSynchronized=yes", State.GOOD, "a time service is enabled"),
        ("NTP=yes\\nNTPSynchronized=no", State.WARN, "not synchronized (a time service is enabled)"),
        ("NTP=no\\nNTPSynchronized=no", State.WARN, "no time service is enabled"),
    ],
)
def test_timedatectl_says_whether_it_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, state: State, words: str
) -> None:
    program(tmp_path, monkeypatch, f"printf '{said}\\n'")
    finding = found(clock.look(sample_host(tmp_path)), "synchronization")
    assert finding.state is state
    assert words in finding.found


def test_without_timedatectl_the_kernel_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, monkeypatch, "echo 'System has not been booted with systemd' >&2; exit 1")
    finding = found(clock.look(sample_host(tmp_path)), "synchronization")
    assert finding.state in (State.GOOD, State.WARN)
    assert "according to the kernel" in finding.found


def test_a_timedatectl_that_hangs_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, monkeypatch, "exec sleep 100")
    monkeypatch.setattr(clock, "ANSWER_S", 0.1)
    assert "according to the kernel" in found(clock.look(sample_host(tmp_path)), "synchronization").found


def test_the_zones_are_told(tmp_path: Path) -> None:
    given: Host = sample_host(tmp_path, '[reports]\nzone = "Europe/Vienna"\n')
    assert found(clock.look(given), "time zone").figures["reports"] == "Europe/Vienna"
