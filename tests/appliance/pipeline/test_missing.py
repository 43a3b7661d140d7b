"""Files of events that are gone: a day is red for it also when nobody's end was in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.pipeline.balance import BALANCED, UNBALANCED
from appliance.pipeline.build_day import ReportBuilder
from appliance.pipeline.cuts import cuts_in
from appliance.pipeline.events import SetAside, look
from appliance.pipeline.missing import Gap, missing
from mailcore.envelope import Status
from mailcore.events.write.cutoff import take_cut
from mailcore.events.write.export import Export
from mailcore.log.disk import Disk
from tests.appliance.pipeline.sample_events import write_file
from tests.appliance.pipeline.test_balance_of_the_log import A, B, ExportedLanes, told
from tests.events.lanes import DAY
from tests.queue.simulated_machine import HOME, SimulatedMachine
from tests.queue.steps import Nothing, begun, deliver_all, new_machine

DT = "2026-11-20"


def found(events: Path, begin: dict[str, int], end: dict[str, int]) -> list[Gap]:
    files, damaged = look(events, DT, SetAside(events / "aside"))
    assert not damaged
    return missing({0: events}, files, begin, end)


def stretch(
    events: Path, begin: int, end: int, dt: str = DT, lane: str = "journal", days: tuple[str, ...] = ()
) -> Path:
    return write_file(events / f"dt={dt}" / f"{lane}.{begin}.parquet", [], lane, begin, end, days)


def test_a_stretch_in_the_middle_and_those_at_either_end(tmp_path: Path) -> None:
    for each in (100, 200, 300, 400):
        stretch(tmp_path, each, each + 100)
    begin, end = {"journal": 150}, {"journal": 450}
    assert found(tmp_path, begin, end) == []
    for gone, gap in ((200, (200, 300)), (100, (150, 200)), (400, (400, 450))):
        path = tmp_path / f"dt={DT}" / f"journal.{gone}.parquet"
        path.rename(tmp_path / "gone")
        assert found(tmp_path, begin, end) == [Gap("journal", *gap)]
        (tmp_path / "gone").rename(path)


def test_a_lane_that_began_between_the_cuts_is_missed_from_its_beginning(tmp_path: Path) -> None:
    stretch(tmp_path, 0, 90, lane="incoming.1")
    assert found(tmp_path, {}, {"incoming.1": 90}) == []
    assert found(tmp_path, {}, {"incoming.1": 91}) == [Gap("incoming.1", 90, 91)]
    assert found(tmp_path, {}, {"incoming.2": 5}) == [Gap("incoming.2", 0, 5)]


def test_a_stretch_in_which_nothing_happened_may_lie_on_any_day(tmp_path: Path) -> None:
    stretch(tmp_path, 0, 100)
    stretch(tmp_path, 100, 200, dt="2026-10-01")
    assert found(tmp_path, {"journal": 0}, {"journal": 200}) == []


def test_of_a_stretch_over_midnight_the_file_of_either_day_is_missed(tmp_path: Path) -> None:
    days = (DT, "2026-11-21")
    stretch(tmp_path, 0, 100, days=days)
    other = stretch(tmp_path, 0, 100, dt="2026-11-21", days=days)
    assert found(tmp_path, {"journal": 0}, {"journal": 100}) == []
    other.unlink()
    assert found(tmp_path, {"journal": 0}, {"journal": 100}) == [Gap("journal", 0, 100, "2026-11-21")]


@pytest.fixture
def exported(tmp_path: Path) -> ExportedLanes:
    """Stretches of deferrals alone, of refusals alone, and of nothing that is an event."""
    exported = ExportedLanes(tmp_path, segment_bytes=1 << 20)
    exported.cut(DAY)
    arrived = exported.accept(A, 1)
    exported.begin(A, arrived, 1)
    exported.deliver(A, Status.DEFERRED)
    exported.through(B, Status.DELIVERED)
    exported.cut(DAY + 3_600)
    exported.deliver(A, Status.DEFERRED)
    exported.cut(DAY + 7_200)
    exported.refuse()
    exported.cut(DAY + 10_800)
    exported.begin(A, arrived, 1)
    exported.cut(DAY + 14_400)
    exported.cut(DAY + 86_400)
    exported.close()
    return exported


@pytest.mark.long
@pytest.mark.parametrize("each_file", [False, pytest.param(True, marks=pytest.mark.long)])
def test_what_ended_nobody_is_missed_as_well(builder: ReportBuilder, exported: ExportedLanes, each_file: bool) -> None:
    """Without --long, only the file of deferrals and that of refusals are lost."""
    whole = told(builder, exported)
    assert (whole.words, whole.state, whole.gaps) == ("It balances.", BALANCED, [])
    files = sorted(exported.events.glob("dt=*/*.parquet"))
    by_lane = {lane: [path for path in files if path.name.startswith(lane)] for lane in ("journal", "incoming")}
    assert [len(each) for each in by_lane.values()] == [3, 2]
    in_number = 0
    lost = files if each_file else [by_lane["journal"][1], by_lane["incoming"][1]]
    for path in lost:
        path.rename(exported.path / "gone")
        broken = told(builder, exported)
        (exported.path / "gone").rename(path)
        assert broken.state == UNBALANCED, path
        lane, begin, _ = path.name.rsplit(".", 2)
        assert [(gap.lane, gap.begin) for gap in broken.gaps] == [(lane, int(begin))]
        if broken.difference == 0:
            in_number += 1
            assert broken.words == (
                "The report is incomplete: the totals balance, but a range of the log is missing from the event files."
            )
    assert in_number == (3 if each_file else 2)  # deferrals, refusals; nothing


@pytest.mark.parametrize("restarts", [0, 1, 3])
@pytest.mark.parametrize("counted_before", [False, True])
def test_a_queue_that_idled_before_its_first_mail_misses_nothing(
    tmp_path: Path, counted_before: bool, restarts: int
) -> None:
    """A start names positions of segments that are not on disk yet; the next start does not begin behind them."""
    machine = new_machine(segment_bytes=5_000)[0]

    def cut(at: float) -> None:
        for _ in range(2):
            machine.checkpoint()
        export = Export(machine.disk, HOME, str(tmp_path), _never, _never, events_disk=Disk())
        with export.locked(0):
            take_cut(export, at)

    if counted_before:
        cut(1.0)
    for _ in range(restarts):
        machine.checkpoint()
        machine = SimulatedMachine(machine.disk.crash(Nothing()), machine.outside, machine.segment_bytes)
    if not counted_before:
        cut(1.0)
    machine.wait(10)
    machine.accept(1)
    machine.durable()
    deliver_all(machine, begun(machine))
    cut(2.0)
    first, last = cuts_in(tmp_path)[0]
    files = [
        file
        for path in tmp_path.glob("dt=*")
        for file in look(tmp_path, path.name[3:], SetAside(tmp_path / "aside"))[0]
    ]
    assert first.exported == {}
    assert last.exported is not None
    assert set(last.exported) == {"journal", "incoming.0"}
    assert missing({0: tmp_path}, files, first.exported, last.exported) == []


def _never(*what: object) -> None:
    raise AssertionError(what)
