"""Retired segments: what they take, what of it is needed, and those that should be gone."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from mailcore.doctor import retired
from mailcore.doctor.finding import Finding, State
from mailcore.doctor.host import Host, Process
from mailcore.log.segment import retired_name_of
from tests.doctor.sample_host import found, running, sample_host
from tests.lookup.retired_lane import mark_garbage, retired_lane

DATA_BYTES = 10_000


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return sample_host(tmp_path)


def look(host: Host) -> Finding:
    return found(retired.look(host), "retired segments")


def test_without_any_all_is_good(host: Host) -> None:
    assert (look(host).state, look(host).found) == (State.GOOD, "none")
    host.settings.queue_directory.rmdir()
    assert list(retired.look(host)) == []


def test_what_they_take_and_what_is_needed_is_told(host: Host) -> None:
    offsets = retired_lane(host.settings.queue_directory, "incoming.0", 4, DATA_BYTES)
    for offset in offsets[1:]:
        mark_garbage(host.settings.queue_directory, "incoming.0", offset)
    finding = look(host)
    assert finding.state is State.GOOD
    assert finding.figures["segments"] == 1
    assert finding.figures["bytes"] > 4 * DATA_BYTES > 2 * finding.figures["needed_bytes"] > DATA_BYTES


def test_more_than_four_times_what_is_needed_is_told(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    offsets = retired_lane(host.settings.queue_directory, "incoming.0", 12, DATA_BYTES)
    for offset in offsets[1:]:
        mark_garbage(host.settings.queue_directory, "incoming.0", offset)
    assert look(host).state is State.GOOD, "a gibibyte more is no reason to look at it"
    monkeypatch.setattr(retired, "SLACK_BYTES", 0)
    assert look(host).state is State.WARN


def test_one_that_nothing_needs_should_be_gone_after_some_looks(host: Host) -> None:
    for offset in retired_lane(host.settings.queue_directory, "incoming.0", 2, DATA_BYTES):
        mark_garbage(host.settings.queue_directory, "incoming.0", offset)
    assert look(host).state is State.GOOD
    path = host.settings.queue_directory / "incoming.0" / retired_name_of(0)
    long_ago = time.time() - retired.LEFT_S - 60
    os.utime(path, (long_ago, long_ago))
    assert look(host).state is State.GOOD, "Waypost does not run, so no process deletes it"
    with running() as process:
        host.processes["supervisor"] = Process("supervisor", process.pid, 0.0, 0)
        assert look(host).state is State.WARN


def test_one_that_cannot_be_read_is_not_taken_for_empty(host: Host) -> None:
    retired_lane(host.settings.queue_directory, "incoming.0", 2, DATA_BYTES)
    path = host.settings.queue_directory / "incoming.0" / retired_name_of(0)
    with path.open("r+b") as file:
        file.write(b"\0" * 4096)
    assert look(host).state is State.NOT_KNOWN


def test_a_user_who_may_not_read_the_queue_is_told_so(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(PermissionError):
        look(host)
