"""``waypost doctor`` as a whole: over an appliance that runs, one whose manager hangs or was killed, and one that is down."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mailcore.cli import doctor
from mailcore.cli.main import main
from mailcore.config.load import load
from mailcore.doctor.checks import CHECKS, run_checks
from mailcore.doctor.finding import Finding, State, bad, good, not_known, warn
from mailcore.doctor.host import Host
from tests.doctor.sample_host import certificate, found, sample_host
from tests.end_to_end.appliance import COMMAND, Appliance

CORE = [check for check in CHECKS if check.subject != "portal"]


@pytest.fixture
async def appliance(tmp_path: Path) -> AsyncIterator[Appliance]:
    sections: dict[str, dict[str, object]] = {"export": {"enabled": True}, "queue": {"reserve_bytes": 0}}
    running = Appliance(tmp_path, {"*": "smtp:[127.0.0.1]:9"}, sections)
    await running.start()
    yield running
    running.stop()


async def findings_of(appliance: Appliance) -> list[Finding]:
    """All but the portal's."""
    settings = load(appliance.config)
    return await asyncio.to_thread(lambda: list(run_checks(Host.of(settings, appliance.config), CORE)))


def by(findings: list[Finding], *subjects: str) -> dict[str, State]:
    return {f"{each.subject} {each.what}": each.state for each in findings if each.subject in subjects}


async def test_an_appliance_that_runs_is_well(appliance: Appliance) -> None:
    findings = await findings_of(appliance)
    told = by(findings, "processes", "permissions", "lag", "balance", "log", "limits", "certificates")
    assert {name: state for name, state in told.items() if state is not State.GOOD} == {}
    assert {
        "processes supervisor", "processes manager", "processes receiver.0", "processes deliverer.0",
        "processes exporter", "processes control socket", "lag incoming.0", "lag export", "lag oldest message",
        "lag restart positions", "balance recipients", "permissions queue",
    } <= told.keys()  # fmt: skip
    assert found(findings, f"127.0.0.1:{appliance.port}").state is State.GOOD
    assert "greets in" in found(findings, f"127.0.0.1:{appliance.port}").found
    assert found(findings, "sync latency").figures["syncs"] > 0
    assert found(findings, "jumps").state is State.GOOD
    assert found(findings, "running").state is State.GOOD


async def test_a_killed_manager_leaves_its_mark(appliance: Appliance) -> None:
    await appliance.kill("manager")
    findings = await findings_of(appliance)
    assert found(findings, "manager").state is State.WARN
    assert "restarts: 1" in found(findings, "manager").found
    ended = found(findings, "process restarts")
    assert "process manager" in ended.found
    assert "SIGKILL" in ended.found


async def test_a_manager_that_hangs_is_a_finding_and_no_hang(
    appliance: Appliance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mailcore.doctor.host.ANSWER_S", 0.5)
    pid = appliance.processes()["manager"]
    os.kill(pid, signal.SIGSTOP)
    try:
        findings = await findings_of(appliance)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert found(findings, "control socket").state is State.BAD
    assert f"kill -CONT {pid}" in found(findings, "manager").remedy
    assert found(findings, "balance").state is State.NOT_KNOWN
    assert found(findings, f"127.0.0.1:{appliance.port}").state is State.GOOD, "mail is accepted all the same"


async def test_with_the_core_down_the_rest_is_looked_at(appliance: Appliance) -> None:
    appliance.kill_all()
    findings = await findings_of(appliance)
    appliance.launch()  # for the end of the test
    assert found(findings, "supervisor").state is State.BAD
    assert found(findings, f"127.0.0.1:{appliance.port}").state is State.BAD
    assert found(findings, "restart positions").state is State.GOOD
    assert found(findings, "export").state is State.GOOD
    assert found(findings, "sync latency").figures["syncs"] > 0
    assert found(findings, "libraries").state is State.GOOD


# -- the command


def snapshot(directory: Path) -> dict[str, tuple[int, int, int]]:
    """Everything below it: mode, size, when it was written."""
    found = {}
    for path in [directory, *directory.rglob("*")]:
        status = path.lstat()
        found[str(path)] = (status.st_mode, status.st_size, status.st_mtime_ns if path.is_file() else 0)
    return found


def test_it_changes_nothing(tmp_path: Path) -> None:
    """All of it, the portal's part too, on a home where nobody ever started anything."""
    home = sample_host(tmp_path, "[queue]\nreserve_bytes = 0\n").settings.home
    config = tmp_path / "waypost.toml"
    before = snapshot(home)
    command = [str(COMMAND), "doctor", "--json", "--config", str(config)]
    done = subprocess.run(command, capture_output=True, timeout=100, check=False)
    assert snapshot(home) == before
    told = json.loads(done.stdout)
    assert done.returncode == 2, "it does not run"
    assert told["state"] == "bad"
    findings = msgspec.convert(told["findings"], list[Finding])
    assert {each.subject for each in findings} == {check.subject for check in CHECKS}
    assert all(each.remedy for each in findings if each.state is not State.GOOD)
    assert found(findings, "database").state is State.NOT_KNOWN
    assert found(findings, "Redis").state is State.WARN


def given(monkeypatch: pytest.MonkeyPatch, *findings: Finding) -> None:
    monkeypatch.setattr(
        doctor, "run_checks", lambda host: iter([msgspec.structs.replace(each, subject="disk") for each in findings])
    )


@pytest.mark.parametrize(
    ("findings", "status"),
    [
        ([good("a", "")], 0),
        ([good("a", ""), not_known("b", "", "do it")], 0),
        ([good("a", ""), warn("b", "", "do it")], 1),
        ([bad("a", "", "do it"), warn("b", "", "do it")], 2),
    ],
)
def test_the_exit_status(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    findings: list[Finding],
    status: int,
) -> None:
    config = sample_host(tmp_path).config
    given(monkeypatch, *findings)
    assert main(["doctor", "--config", str(config)]) == status
    assert main(["doctor", "--json", "--config", str(config)]) == status
    capsys.readouterr()


def test_each_finding_is_printed_when_it_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = sample_host(tmp_path).config
    printed: list[str] = []

    def findings(host: Host) -> Iterator[Finding]:
        yield msgspec.structs.replace(good("first", "fine"), subject="disk")
        printed.append(capsys.readouterr().out)  # before the next check has ended
        yield msgspec.structs.replace(bad("second", "broken", "Repair it."), subject="names")
        printed.append(capsys.readouterr().out)

    monkeypatch.setattr(doctor, "run_checks", findings)
    assert main(["doctor", "--config", str(config)]) == 2
    assert [text.split()[:4] for text in printed] == [
        ["good", "disk", "first:", "fine"],
        ["bad", "names", "second:", "broken"],
    ]
    assert capsys.readouterr().out.splitlines() == ["", "bad        names         second", "", "1 bad, 1 good"]


def test_a_finding_fits_the_terminal_and_the_worst_come_first_at_the_end() -> None:
    subjects = ("disk", "clock")
    listed: list[Any] = [
        good("kept", "synchronized"),
        warn("x", "y", "z"),
        bad("queue", "full " * 30, "Make room. " * 10),
    ]
    findings = [msgspec.structs.replace(each, subject=subjects[n % 2]) for n, each in enumerate(listed)]
    printed = [line for each in findings for line in doctor.lines(each, 80)]
    assert [line.split()[0] for line in printed if line[:1].strip()] == ["good", "warn", "bad"]
    assert sum("Remedy: " in line for line in printed) == 2
    end = list(doctor.summary(findings, 80))
    assert [line.split()[0] for line in end if line] == ["bad", "warn", "1"]
    assert end[-1] == "1 bad, 1 warn, 1 good"
    assert max(map(len, printed + end)) <= 80
    assert max(map(len, doctor.lines(findings[2], 200))) > 100


def test_a_state_that_is_not_known_is_explained() -> None:
    findings = [not_known("balance", "no answer", "Try again."), good("kept", "synchronized")]
    assert "Remedy: Try again." in list(doctor.lines(findings[0], 200))[1]
    assert list(doctor.summary(findings, 200)) == ["", doctor.NOT_KNOWN, "1 not known, 1 good"]


def test_what_strangers_wrote_does_not_reach_the_terminal() -> None:
    hostile = "\x1b]0;title\x07\u202e\n" + "x" * 5_000
    finding = warn(hostile[:20], hostile, hostile[:20])
    text = "\n".join([*doctor.lines(finding, 80), *doctor.summary([finding], 80)])
    assert text.isascii() or all(character.isprintable() or character == "\n" for character in text)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert len(text) < 2_000


@pytest.mark.parametrize("files", ["a certificate and another's key", "none"])
def test_a_wrong_certificate_is_a_finding_among_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], files: str
) -> None:
    pem, other = tmp_path / "a.pem", tmp_path / "b.pem"
    if files != "none":
        pem, other = certificate(tmp_path, "a.example", 90), certificate(tmp_path, "b.example", 90)
    config = tmp_path / "waypost.toml"
    config.write_text(f'home = "home"\n[receiver]\ntls_certificate = "{pem}"\ntls_key = "{other}"\n')
    monkeypatch.setattr(doctor, "run_checks", lambda host: run_checks(host, CORE))
    assert main(["doctor", "--json", "--config", str(config)]) == 2
    findings = msgspec.convert(json.loads(capsys.readouterr().out)["findings"], list[Finding])
    told = next(each for each in findings if each.subject == "certificates" and each.what == "receivers")
    assert told.state is State.BAD
    assert ("cannot be read" if files == "none" else "must be a certificate and its key") in told.found
    assert f"into {pem} and {other}" in told.remedy
    assert found([each for each in findings if each.subject == "certificates"], "portal").state is State.GOOD
    assert {each.subject for each in findings} >= {"disk", "names", "limits", "versions"}
    config.write_text(config.read_text() + "foo = 2\n")
    assert main(["doctor", "--config", str(config)]) == 2
    told_all = capsys.readouterr().err
    assert "[receiver] foo is not a setting" in told_all
    assert "tls_certificate" in told_all, "all faults at once"


def test_a_wrong_configuration_is_told_as_ever(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "waypost.toml"
    config.write_text("[queue]\nfoo = 2\n")
    assert main(["doctor", "--config", str(config)]) == 2
    assert "[queue] foo is not a setting" in capsys.readouterr().err
