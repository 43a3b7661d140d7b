"""Lag: of the manager, of the export, of the restart positions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import google_crc32c
import pytest

from mailcore import manager_answers as answers
from mailcore.doctor import lag
from mailcore.doctor.finding import Finding, State
from mailcore.doctor.host import Host
from mailcore.log.disk import Disk
from mailcore.log.positions import LanePosition, RestartPositions, write_positions
from mailcore.queue.exported import EXPORTED, ExportedLane, ExportedPositions, write_exported
from tests.answers import state as manager_state
from tests.control.running_control import RunningControl, open_control
from tests.doctor.sample_host import children, found, running, sample_host
from tests.lookup.sample_messages import envelope

MB = 1 << 20
SMALL = f"[queue]\nlag_bytes_max = {10 * MB}\n[export]\nlag_bytes_max = {10 * MB}\n"


def positions(host: Host, age_s: float, end: int = 0, journal_end: int = 0) -> None:
    lanes = {"incoming.0": LanePosition(end, end)}
    written = RestartPositions(1, time.time() - age_s, lanes, 0, journal_end)
    write_positions(Disk(), str(host.settings.queue_directory), written)


def state(runner: int, end: int, journal_end: int = 0, receivers: Sequence[str] = ("incoming.0",)) -> answers.State:
    return manager_state(
        lanes={"incoming.0": {"runner": runner, "end": end}},
        journal={"end": journal_end},
        receivers=dict.fromkeys(receivers, 1),
    )


@pytest.mark.parametrize(("lag_mb", "expected"), [(0, State.GOOD), (2, State.WARN), (10, State.BAD)])
def test_the_manager_is_behind_the_receivers(tmp_path: Path, lag_mb: int, expected: State) -> None:
    host = sample_host(tmp_path, SMALL)
    host.state = state(5, 5 + lag_mb * MB)
    finding = found(lag.look(host), "incoming.0")
    assert (finding.state, finding.figures) == (expected, {"lag_bytes": lag_mb * MB})


def test_a_receiver_that_has_mail_is_not_connected(tmp_path: Path) -> None:
    host = sample_host(tmp_path)
    host.state = state(0, 100, receivers=())
    assert found(lag.look(host), "incoming.0").state is State.WARN


@pytest.mark.parametrize(
    ("age_s", "journal_end", "expected"),
    [
        (5, 100, State.GOOD),
        (500, 0, State.GOOD),  # nothing happened since: nothing was written
        (500, 100, State.BAD),
    ],
)
def test_restart_positions_grow_old(tmp_path: Path, age_s: float, journal_end: int, expected: State) -> None:
    host = sample_host(tmp_path)
    positions(host, age_s)
    host.state = state(0, 0, journal_end)
    assert found(lag.look(host), "restart positions").state is expected


def test_no_restart_positions_although_it_runs(tmp_path: Path) -> None:
    with running() as process:
        children(sample_host(tmp_path).settings, {"supervisor": process.pid})
        assert found(lag.look(sample_host(tmp_path)), "restart positions").state is State.BAD
    assert found(lag.look(sample_host(tmp_path)), "restart positions").state is State.NOT_KNOWN


def test_restart_positions_that_are_damaged(tmp_path: Path) -> None:
    host = sample_host(tmp_path)
    positions(host, 1)
    file = host.settings.queue_directory / "restart"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    assert "the files are damaged" in found(lag.look(host), "restart positions").found


def test_restart_positions_of_a_newer_waypost(tmp_path: Path) -> None:
    host = sample_host(tmp_path)
    positions(host, 1)
    file = host.settings.queue_directory / "restart"
    data = bytearray(file.read_bytes())
    data[8] = 99  # the version; the checksum must be right for it to be believed
    head = bytes(data[:16])
    body = bytes(data[20:])
    crc = google_crc32c.extend(google_crc32c.value(head), body)
    file.write_bytes(head + crc.to_bytes(4, "little") + body)
    (finding,) = lag.look(host)
    assert finding.state is State.BAD
    assert "version 99" in finding.found


@pytest.mark.parametrize(("behind_mb", "expected"), [(0, State.GOOD), (2, State.WARN), (10, State.BAD)])
def test_the_export_is_behind(tmp_path: Path, behind_mb: int, expected: State) -> None:
    host = sample_host(tmp_path, SMALL)
    positions(host, 1, end=20 * MB)
    directory = host.settings.events_directory / EXPORTED
    directory.mkdir(parents=True)
    lanes = {"incoming.0": ExportedLane((20 - behind_mb) * MB)}
    write_exported(Disk(), str(directory), ExportedPositions(lanes, cut_at=time.time() - 60))
    finding = found(lag.look(host), "export")
    assert (finding.state, finding.figures["behind_bytes"]) == (expected, behind_mb * MB)


def test_the_exporter_has_stood_still_for_hours(tmp_path: Path) -> None:
    with running() as process:
        host = sample_host(tmp_path)
        children(host.settings, {"supervisor": process.pid})
        host = sample_host(tmp_path)
        directory = host.settings.events_directory / EXPORTED
        directory.mkdir(parents=True)
        write_exported(Disk(), str(directory), ExportedPositions(cut_at=time.time() - 5 * 3600))
        finding = found(lag.look(host), "export")
    assert finding.state is State.WARN
    assert "last count of the queue 5 h ago" in finding.found


def test_what_the_export_wrote_can_not_be_read(tmp_path: Path) -> None:
    host = sample_host(tmp_path)
    directory = host.settings.events_directory / EXPORTED
    directory.mkdir(parents=True)
    (directory / "positions.json").write_text("{")
    assert found(lag.look(host), "export").state is State.BAD


def oldest(running_control: RunningControl) -> Finding:
    host = Host.of(running_control.settings, running_control.config)
    return found(lag.look(host), "oldest message")


@pytest.mark.parametrize(("days", "expected"), [(1, State.GOOD), (9, State.WARN)])
async def test_the_oldest_message(days: float, expected: State) -> None:
    async with open_control() as running_control:
        running_control.manager.answers["state"] = lambda _: state(0, 0)
        running_control.write("retry.60", envelope(arrived_at=time.time() - days * 86_400))
        finding = await asyncio.to_thread(oldest, running_control)
    assert finding.state is expected
    assert finding.figures["messages"] == 1


async def test_held_mail_does_not_expire() -> None:
    async with open_control() as running_control:
        running_control.manager.answers["state"] = lambda _: state(0, 0)
        running_control.write("hold", envelope(arrived_at=time.time() - 9 * 86_400))
        finding = await asyncio.to_thread(oldest, running_control)
    assert finding.state is State.GOOD


async def test_a_queue_too_long_to_look_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag, "AGES_S", 0.0)
    monkeypatch.setattr("mailcore.control.ages.STEP_S", 0.0)
    async with open_control() as running_control:
        running_control.manager.answers["state"] = lambda _: state(0, 0)
        running_control.write("retry.60", *(envelope() for _ in range(300)))
        finding = await asyncio.to_thread(oldest, running_control)
    assert finding.state is State.NOT_KNOWN
    assert "not all" in finding.found


async def test_an_empty_queue() -> None:
    async with open_control() as running_control:
        running_control.manager.answers["state"] = lambda _: state(0, 0)
        assert "is empty" in (await asyncio.to_thread(oldest, running_control)).found
