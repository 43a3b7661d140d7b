"""Which segments may go, as far as the events are concerned."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailcore.log.disk import Disk
from mailcore.queue.exported import (
    NAME,
    Candidate,
    ExportedLane,
    ExportedPositions,
    Keeper,
    read_exported,
    write_exported,
)
from mailcore.queue.lanes import DELETED, HOLD, JOURNAL
from tests.queue.steps import begun, deliver_all, new_machine

NOW = 1_795_000_000.0
SEGMENTS = [Candidate(JOURNAL, 0, 1000), Candidate(JOURNAL, 1000, 2000), Candidate("local", 0, 500)]


class Kept:
    def __init__(self, directory: Path, bytes_max: int = 1 << 40) -> None:
        self.directory = directory
        self.lost: list[tuple[Candidate, str]] = []
        self.keeper = Keeper(Disk(), str(directory), bytes_max, lambda: NOW, lambda *each: self.lost.append(each))

    def exported(self, lanes: dict[str, int], pins: dict[str, int] | None = None, until: float = NOW + 1) -> None:
        at = {lane: ExportedLane(end) for lane, end in lanes.items()}
        write_exported(Disk(), str(self.directory), ExportedPositions(at, pins=pins or {}, pinned_until=until))

    def allowed(self, segments: list[Candidate] | None = None) -> list[tuple[str, int]]:
        return [(each.lane, each.base) for each in self.keeper.allowed(segments or SEGMENTS)]


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def test_nothing_goes_before_anything_is_exported(kept: Kept) -> None:
    assert kept.allowed() == []
    (kept.directory / NAME).write_text("{")
    assert kept.allowed() == []
    assert not kept.lost


def test_a_segment_goes_when_all_of_it_is_exported(kept: Kept) -> None:
    kept.exported({JOURNAL: 999, "local": 500})
    assert kept.allowed() == [("local", 0)]
    kept.exported({JOURNAL: 1000, "local": 500})
    assert kept.allowed() == [(JOURNAL, 0), ("local", 0)]


def test_recipients_whose_envelope_is_still_to_come_stay(kept: Kept) -> None:
    write_exported(Disk(), str(kept.directory), ExportedPositions({JOURNAL: ExportedLane(2000, 0, 900)}))
    assert kept.allowed() == []


def test_lanes_in_which_nothing_is_said_wait_for_nobody(kept: Kept) -> None:
    assert kept.allowed([Candidate(HOLD, 0, 100), Candidate(DELETED, 0, 100)]) == [(HOLD, 0), (DELETED, 0)]


def test_what_somebody_counts_stays_until_he_is_done_or_dead(kept: Kept) -> None:
    segments = [*SEGMENTS, Candidate(HOLD, 0, 100)]
    pins = {JOURNAL: 1000, HOLD: 50}
    kept.exported({JOURNAL: 2000, "local": 500}, pins=pins)
    assert kept.allowed(segments) == [(JOURNAL, 0), ("local", 0)]
    kept.exported({JOURNAL: 2000, "local": 500}, pins=pins, until=NOW)
    assert kept.allowed(segments) == [(each.lane, each.base) for each in segments]
    assert not kept.lost


def test_beyond_the_bound_the_oldest_go_and_that_is_told(tmp_path: Path) -> None:
    kept = Kept(tmp_path, bytes_max=1_500)
    assert kept.allowed() == [(JOURNAL, 0)]
    ((segment, why),) = kept.lost
    assert (segment, "1500 bytes" in why) == (SEGMENTS[0], True)


def test_on_a_full_disk_mail_goes_first(kept: Kept) -> None:
    kept.exported({"local": 500})
    kept.keeper.disk_full = True
    assert sorted(kept.allowed()) == sorted((each.lane, each.base) for each in SEGMENTS)
    assert [segment for segment, _ in kept.lost] == SEGMENTS[:2]


def test_positions_that_cannot_be_written_leave_those_that_are_there(kept: Kept) -> None:
    kept.exported({JOURNAL: 1000})

    class Full(Disk):
        def sync(self, fd: int) -> None:
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        write_exported(Full(), str(kept.directory), ExportedPositions({JOURNAL: ExportedLane(2000)}))
    found = read_exported(Disk(), str(kept.directory))
    assert found is not None
    assert found.lanes[JOURNAL].at == 1000


def test_a_queue_deletes_no_segment_that_is_not_exported(kept: Kept) -> None:
    machine, _, _ = new_machine(segment_bytes=5000)
    machine.checkpoints.keeper = kept.keeper
    for _ in range(40):
        machine.accept(1, size=1000)
        machine.durable()
        deliver_all(machine, begun(machine))
    for _ in range(3):
        machine.checkpoint()
    lanes = ("incoming.0", JOURNAL)
    bases = {lane: machine.queue.reader(lane).bases for lane in lanes}
    assert all(each[0] == 0 and len(each) > 2 for each in bases.values())
    kept.exported({"incoming.0": bases["incoming.0"][2]})
    machine.accept(1)
    for _ in range(2):
        machine.checkpoint()
    for lane in lanes:
        machine.queue.reader(lane).refresh()
    assert machine.queue.reader("incoming.0").bases[0] == bases["incoming.0"][2]
    assert machine.queue.reader(JOURNAL).bases[0] == 0
