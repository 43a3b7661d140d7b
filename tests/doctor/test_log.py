"""The log: what went wrong within a day, as the mail log writes it; torn and foreign lines; rotated files."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from mailcore.doctor import log
from mailcore.doctor.finding import State
from mailcore.maillog.maillog import MailLog
from tests.doctor.sample_host import found, sample_host

HOUR_S = 3600.0


def write(directory: Path, hours_ago: float, *events: str) -> None:
    at = time.time() - hours_ago * HOUR_S
    written = MailLog(directory, "mail.example.org", clock=lambda: at)
    for event in events:
        match event:
            case "child_ended":
                written.child_ended("manager", 77, "signal SIGKILL")
            case "data_damaged":
                written.data_damaged("4abcDEF000000001", "spool/2b/4abcDEF000000001: bytes 0 to 9 of 10 do not match")
            case "sync_failed":
                written.sync_failed("queue/journal/0.seg", "Input/output error")
            case "refusals_not_recorded":
                written.refusals_not_recorded(40)
            case _:
                written.recovered(3, 0.1)
    written.close()


def test_nothing_went_wrong(tmp_path: Path) -> None:
    host = sample_host(tmp_path)
    write(host.settings.log_directory, 1, "recovered")
    (finding,) = log.look(host)
    assert finding.state is State.GOOD


def test_what_went_wrong_by_kind(tmp_path: Path) -> None:
    host = sample_host(tmp_path)
    write(host.settings.log_directory, 30, "child_ended", "sync_failed")  # more than a day ago
    write(host.settings.log_directory, 20, "child_ended", "recovered")
    write(host.settings.log_directory, 1, "child_ended", "refusals_not_recorded", "refusals_not_recorded")
    findings = list(log.look(host))
    ended = found(findings, "process restarts")
    assert (ended.state, ended.figures["count"]) == (State.WARN, 2)
    assert "2 in 24 hours, last: process manager, child_pid 77, how signal SIGKILL" in ended.found
    assert found(findings, "refusals").figures["count"] == 80
    assert len(findings) == 2


@pytest.mark.parametrize(("event", "what"), [("sync_failed", "failed syncs"), ("data_damaged", "damaged messages")])
def test_a_failed_sync_and_a_damaged_message_are_bad(tmp_path: Path, event: str, what: str) -> None:
    host = sample_host(tmp_path)
    write(host.settings.log_directory, 1, event)
    assert found(log.look(host), what).state is State.BAD


def test_each_kind_has_a_function_in_the_mail_log() -> None:
    assert [name for name in log.KINDS if name != "lines_lost" and not hasattr(MailLog, name)] == []


def test_the_file_before_is_read_when_this_one_is_young(tmp_path: Path) -> None:
    host = sample_host(tmp_path)
    directory = host.settings.log_directory
    write(directory, 20, "child_ended")
    (directory / "mail.jsonl").rename(directory / "mail.jsonl.1")
    write(directory, 1, "child_ended")
    assert found(log.look(host), "process restarts").figures["count"] == 2


@pytest.mark.parametrize("block", [1, 50, 333, 1 << 20])
def test_lines_across_blocks_count_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(log, "BLOCK_BYTES", block)
    host = sample_host(tmp_path)
    write(host.settings.log_directory, 30, "recovered")
    write(host.settings.log_directory, 1, *["child_ended", "recovered"] * 10)
    assert found(log.look(host), "process restarts").figures["count"] == 10


def test_torn_and_foreign_lines_are_passed_over(tmp_path: Path) -> None:
    host = sample_host(tmp_path)
    file = host.settings.log_directory / "mail.jsonl"
    file.write_bytes(
        b'{"event":"failed","ti\n[1]\n{"event":"failed"}\n\xff\xfe"event":"failed"\n'
        + b"[" * 100_000
        + b'"event":"failed"\n'
    )
    write(host.settings.log_directory, 1, "child_ended")
    findings = list(log.look(host))
    assert [each.figures["count"] for each in findings] == [1]


def test_a_long_log_is_read_from_its_end_and_not_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "READ_BYTES_MAX", 2_000)
    monkeypatch.setattr(log, "BLOCK_BYTES", 500)
    host = sample_host(tmp_path)
    write(host.settings.log_directory, 1, *["child_ended"] * 100)
    count = found(log.look(host), "process restarts").figures["count"]
    assert 5 < count < 30


def test_there_is_no_log(tmp_path: Path) -> None:
    (finding,) = log.look(sample_host(tmp_path))
    assert finding.state is State.NOT_KNOWN
