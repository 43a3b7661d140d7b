"""The exporter process: when it cuts, what it keeps, how it answers, and that it goes on whatever goes wrong."""

from __future__ import annotations

import dataclasses
import json
import os
import threading
from collections.abc import Iterator, Mapping
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow.parquet as pq
import pytest

from mailcore.config.nodes import Nodes
from mailcore.config.settings import Export, Reports, Settings
from mailcore.control.client import ControlClient
from mailcore.envelope import Status
from mailcore.events.day import day_of
from mailcore.events.exporter import EXPORTER_SOCKET, Exporter, main, midnight_between
from mailcore.events.write.cutoff import Cut, CutFailed
from mailcore.events.write.export import Exported
from mailcore.events.write.retention import remove_old
from mailcore.events.write.windows import Windows
from mailcore.faults import Code, Fault, FaultError
from mailcore.frames import Request
from mailcore.log.disk import Disk, Guard
from mailcore.queue.exported import read_exported
from tests.answers import active_destination
from tests.events.lanes import DAY, Lanes
from tests.events.reading import files, incoming, rows
from tests.eventually import PATIENCE_S, eventually_blocking
from tests.faults import refused
from tests.receiver.running_receiver import settings_in


@pytest.fixture
def lanes(tmp_path: Path) -> Iterator[Lanes]:
    lanes = Lanes(tmp_path, segment_bytes=1 << 20)
    yield lanes
    lanes.close()


class Clock:
    now = DAY + 43_205

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("mailcore.events.exporter.time.time", clock.time)
    return clock


def settings_of(lanes: Lanes, **export: Any) -> Settings:
    (lanes.path / "log").mkdir(exist_ok=True)
    return dataclasses.replace(settings_in(lanes.path, {"checkpoint_interval_s": 0.05}), export=Export(**export))


def look(exporter: Exporter) -> None:
    exporter._look_at = 0.0
    exporter.turn()


def cuts(lanes: Lanes) -> list[Path]:
    return sorted((lanes.events / "cuts").glob("[0-9]*Z.json"))


def test_the_open_segment_is_exported_and_the_queue_counted_at_midnight(lanes: Lanes, clock: Clock) -> None:
    exporter = Exporter(settings_of(lanes, cut_interval_s=86_400))
    look(exporter)
    assert not lanes.events.exists() or not cuts(lanes), "there is no queue yet"
    lanes.accept("Q1")
    lanes.covered()
    look(exporter)  # the first cut is where balances begin
    assert [json.loads(path.read_text())["recipients"] for path in cuts(lanes)] == [1]
    lanes.accept("Q2", 2)
    lanes.covered()
    clock.now = DAY + 86_399
    look(exporter)
    assert set(incoming(rows(lanes.events))) == {"Q1"}, "its segment is not sealed, and the day is not over"
    clock.now = DAY + 86_400 + 0.5
    look(exporter)
    assert set(incoming(rows(lanes.events))) == {"Q1"}, "the last second may not be on disk yet"
    clock.now = DAY + 86_400 + 5
    lanes.sequence += 10
    again = Exporter(settings_of(lanes, cut_interval_s=86_400))  # whoever is there by then
    look(again)
    assert set(incoming(rows(lanes.events))) == {"Q1", "Q2"}
    before = len(files(lanes.events))
    look(again)
    assert len(files(lanes.events)) == before


def test_it_cuts_every_so_often_and_more_rarely_when_it_takes_long(
    lanes: Lanes, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter = Exporter(settings_of(lanes, cut_interval_s=600))
    taken: list[float] = []

    def take(export: object, now: float, ids: bool = False, *, settled: float, closing: bool) -> tuple[Cut, Exported]:
        assert not closing
        taken.append(now)
        return Cut(settled, {}, 0, 0, {}), Exported()

    monkeypatch.setattr("mailcore.events.exporter.take_cut", take)
    lanes.accept("Q1")
    lanes.covered()
    look(exporter)
    clock.now += 590
    look(exporter)
    assert len(taken) == 1
    clock.now += 20
    look(exporter)
    assert len(taken) == 2
    exporter._cut_rest_until = clock.now + 10_000
    clock.now += 700
    look(exporter)
    assert len(taken) == 2
    clock.now = DAY + 86_400 + 5
    look(exporter)
    assert len(taken) == 3, "midnight is midnight"


def stepped(lanes: Lanes, clock: Clock, exporter: Exporter, begin: datetime, end: datetime) -> list[float]:
    """When cuts are taken while the clock goes from one to the other, half an hour at a time; the first is the beginning."""
    taken = []
    clock.now = begin.timestamp()
    lanes.accept(f"Q{clock.now:.0f}")
    while clock.now <= end.timestamp() + 1800:
        lanes.covered()
        before = cuts(lanes)
        look(exporter)
        taken += [clock.now] if len(cuts(lanes)) > len(before) else []
        clock.now += 1800
    return taken


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        ("Asia/Kolkata", date(2027, 2, 20), 24),
        ("America/St_Johns", date(2027, 3, 14), 23),
        ("America/St_Johns", date(2027, 11, 7), 25),
        ("Europe/Vienna", date(2027, 3, 28), 23),
        ("Europe/Vienna", date(2027, 10, 31), 25),
        ("Australia/Lord_Howe", date(2027, 4, 4), 24.5),
    ],
)
@pytest.mark.parametrize("told", [True, False])
def test_there_is_a_cut_at_both_ends_of_a_day_of_the_reports_zone(
    lanes: Lanes, clock: Clock, zone: str, day: date, hours: float, told: bool
) -> None:
    settings = settings_of(lanes, cut_interval_s=86_400)
    if not told:
        settings = dataclasses.replace(settings, reports=Reports(zone=zone))
    exporter = Exporter(settings)
    if told:  # once; whoever is there afterwards knows
        exporter._days_begin_in(zone)
        exporter = Exporter(settings)
    first = datetime.combine(day, datetime.min.time(), ZoneInfo(zone))
    last = datetime.combine(day + timedelta(days=1), datetime.min.time(), ZoneInfo(zone))
    assert last.timestamp() - first.timestamp() == hours * 3600
    taken = stepped(lanes, clock, exporter, first - timedelta(minutes=30), last)[1:]
    utc = {at for at in taken if at % 86_400 == 1800}
    assert sorted(set(taken) - utc) == [first.timestamp() + 1800, last.timestamp() + 1800], "once it is surely on disk"


def test_what_is_no_zone_is_refused(lanes: Lanes) -> None:
    exporter = Exporter(settings_of(lanes))
    for zone in ("Europe/Nowhere", "../../etc/passwd", "", None, 7):
        with pytest.raises(FaultError) as caught:
            exporter._days_begin_in(zone)
        assert (caught.value.code, caught.value.argument) == (Code.INVALID, "zone")
    assert not midnight_between(DAY, DAY + 1e6, ("", "Europe/Nowhere")), "one that was known once"
    assert midnight_between(DAY + 10, DAY - 10, ("UTC",)), "the clock may be set back"


def test_in_an_idle_queue_midnight_has_its_cut_all_the_same(lanes: Lanes, clock: Clock) -> None:
    """Whose restart positions are of the evening: nothing has happened since."""
    lanes.accept("Q1", 2)
    lanes.covered()
    exporter = Exporter(settings_of(lanes))
    look(exporter)
    clock.now = DAY + 86_400 + 7
    look(exporter)
    newest = json.loads(cuts(lanes)[-1].read_text())
    assert DAY + 86_400 <= newest["at"] <= DAY + 86_407
    assert newest["recipients"] == 2
    lanes.accept("Q2")  # the manager is away, and has not heard of it
    lanes.sync()
    clock.now += 3_600
    look(exporter)
    assert json.loads(cuts(lanes)[-1].read_text()) == newest, "nothing is said of this hour"


def test_positions_of_before_midnight_are_no_midnights_cut(lanes: Lanes, clock: Clock) -> None:
    lanes.accept("Q1")
    lanes.covered(at=DAY - 7_200)
    exporter = Exporter(settings_of(lanes, cut_interval_s=86_400))
    clock.now = DAY - 3_600
    look(exporter)

    def newest() -> float:
        at: float = json.loads(cuts(lanes)[-1].read_text())["at"]
        return at

    lanes.accept("Q2")
    lanes.covered(at=DAY - 0.5)
    lanes.accept("Q3")
    lanes.sync()
    clock.now = DAY + 2  # by now there should be others: the manager is slow
    look(exporter)
    assert newest() == DAY - 0.5
    lanes.covered(at=DAY + 3)
    clock.now = DAY + 5
    look(exporter)
    midnights = newest()
    assert DAY <= midnights <= DAY + 5
    lanes.accept("Q4")
    lanes.covered(at=DAY + 8)
    clock.now = DAY + 10
    look(exporter)
    assert newest() == midnights, "one is enough"


def test_what_cannot_be_done_is_told_once_and_tried_again(
    lanes: Lanes, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter = Exporter(settings_of(lanes))
    lanes.accept("Q1")
    lanes.covered()

    class FullDisk(Disk):
        def sync(self, fd: int) -> None:
            raise OSError(28, os.strerror(28))

    with monkeypatch.context() as broken:
        broken.setattr(exporter.export, "events_disk", FullDisk())
        for _ in range(3):
            look(exporter)
    exporter.log.flush()
    log = (lanes.path / "log" / "mail.jsonl").read_text().splitlines()
    told = [line for line in log if "No space left" in line]
    assert len(told) == 1
    assert f"No space left on device: {lanes.events}" in told[0]
    look(exporter)
    assert set(incoming(rows(lanes.events))) == {"Q1"}


def test_who_asks_gets_everything_up_to_now(lanes: Lanes) -> None:
    settings = settings_of(lanes, interval_s=3600, window_interval_s=3600)
    lanes.accept("Q1", 3)
    lanes.deliver("Q1", Status.DELIVERED)
    lanes.covered()
    threading.Thread(target=Exporter(settings).run, daemon=True).start()
    path = settings.run_directory / EXPORTER_SOCKET
    eventually_blocking(path.exists, "the exporter's socket")
    with ControlClient(path, timeout_s=PATIENCE_S) as exporter:
        lanes.accept("Q2")
        lanes.covered()
        exporter.call("export")
    assert set(incoming(rows(lanes.events))) == {"Q1", "Q2"}
    with ControlClient(path, timeout_s=PATIENCE_S) as exporter:
        cut = exporter.call("cut", {"ids": True})
    assert (cut["messages"], cut["recipients"]) == (2, 4)
    listed = [json.loads(line) for line in (lanes.events / "cuts" / cut["ids"]).read_text().splitlines()]
    assert listed == [
        {"lane": "incoming.0", "queue_id": "Q1", "recipients": 3},
        {"lane": "incoming.0", "queue_id": "Q2", "recipients": 1},
    ]
    with ControlClient(path, timeout_s=PATIENCE_S) as exporter, refused(Code.INVALID):
        exporter.call("delete")
    with ControlClient(path, timeout_s=PATIENCE_S) as exporter:
        assert exporter.call("zone", {"zone": "Asia/Kolkata"}) == {"zone": "Asia/Kolkata"}
    state = read_exported(Disk(), str(lanes.events / "_exported"))
    assert state is not None
    assert state.zone == "Asia/Kolkata"


def test_what_concerns_all_nodes_is_passed_on_and_needs_a_database(lanes: Lanes) -> None:
    asked: list[tuple[str, dict[str, Any]]] = []

    def of_nodes(operation: str, arguments: Mapping[str, Any]) -> dict[str, Any] | Fault:
        asked.append((operation, dict(arguments)))
        return {"more": False} if operation == "gather" else Fault(Code.UNAVAILABLE, "no server takes writes")

    alone, node = Exporter(settings_of(lanes)), Exporter(settings_of(lanes), of_nodes=of_nodes)
    request = Request(1, "gather", {"since": "2026-11-20"})
    refusal = alone._of_nodes(request)
    assert isinstance(refusal, Fault)
    assert (refusal.code, refusal.message) == (Code.INVALID, "no database keeps the queue of this node")
    assert node._of_nodes(request) == {"more": False}
    fault = node._of_nodes(Request(2, "letter", {"day": "2026-11-20"}))
    assert isinstance(fault, Fault)
    assert fault.code is Code.UNAVAILABLE
    assert asked == [("gather", {"since": "2026-11-20"}), ("letter", {"day": "2026-11-20"})]


def test_old_days_go(tmp_path: Path) -> None:
    disk = Disk()
    disk.guards = (Guard(str(tmp_path), lambda: ""),)
    for day in range(5):
        (tmp_path / f"dt={day_of(DAY + day * 86_400)}").mkdir()
        (tmp_path / f"dt={day_of(DAY + day * 86_400)}" / "journal.0.parquet").touch()
    (tmp_path / "cuts").mkdir()
    for name in (
        "2026-11-21T000003.0Z.json", "2026-11-25T000003.0Z.json", "2026-11-25T000003.0Z.ids.jsonl",
        "2026-11-21T000003.0Z.ids.jsonl",
    ):  # fmt: skip
        (tmp_path / "cuts" / name).touch()
    (tmp_path / "_exported").mkdir()
    assert remove_old(Disk(), str(tmp_path), DAY + 4 * 86_400 + 10, 3) == [], "it does not carry our identity"
    remove_old(disk, str(tmp_path), DAY + 4 * 86_400 + 10, 3)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "_exported",
        "cuts",
        *(f"dt={day_of(DAY + day * 86_400)}" for day in range(1, 5)),
    ]
    left = ["2026-11-25T000003.0Z.ids.jsonl", "2026-11-25T000003.0Z.json"]
    assert sorted(path.name for path in (tmp_path / "cuts").iterdir()) == left
    remove_old(disk, str(tmp_path), DAY + 20 * 86_400, 100)
    assert [path.name for path in (tmp_path / "cuts").iterdir()] == left[1:], "who was queued is known two weeks"


def test_a_dead_destination_is_sampled_also_when_its_mail_is_deferred(tmp_path: Path) -> None:
    windows = Windows(Disk(), str(tmp_path), 900)
    windows.sample(
        {"smtp:a.example": active_destination(dead_until=DAY + 300), "smtp:b.example": active_destination()}, DAY
    )
    windows.write()
    windows.written()
    (file,) = files(tmp_path)
    found = pq.ParquetFile(file).read(["destination", "queued", "dead_until"]).to_pylist()
    assert found == [{"destination": "smtp:a.example", "queued": 0, "dead_until": DAY + 300}]


def test_windows_are_sampled_where_there_is_mail_and_written_together(tmp_path: Path) -> None:
    windows = Windows(Disk(), str(tmp_path), 900)
    mail = active_destination(window=5, busy=1, queued=7)
    windows.sample({"smtp:a.example": mail, "smtp:b.example": active_destination(window=5)}, DAY)
    windows.sample({"smtp:a.example": active_destination(busy=1, queued=7, dead_until=DAY + 300)}, DAY + 60)
    windows.sample({"smtp:a.example": mail}, DAY + 30)  # the clock was set back
    assert not windows.due(DAY + 60)
    assert windows.due(DAY + 900)
    windows.write()
    windows.written()
    (file,) = files(tmp_path)
    assert file.name == f"windows.{int(DAY * 1000)}.parquet"
    found = pq.ParquetFile(file).read(["at", "destination", "window", "queued", "dead_until"]).to_pylist()
    assert found == [
        {"at": DAY, "destination": "smtp:a.example", "window": 5.0, "queued": 7, "dead_until": 0.0},
        {"at": DAY + 60, "destination": "smtp:a.example", "window": 0.0, "queued": 7, "dead_until": DAY + 300},
    ]
    assert windows.write() == {}


def test_a_cut_that_fails_is_told(lanes: Lanes, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = Exporter(settings_of(lanes))
    lanes.accept("Q1")
    lanes.covered()

    def fail(*_: object, **__: object) -> None:
        raise CutFailed("segments were deleted")

    monkeypatch.setattr("mailcore.events.exporter.take_cut", fail)
    look(exporter)
    exporter.log.flush()
    assert "segments were deleted" in (lanes.path / "log" / "mail.log").read_text()


def test_a_fault_of_the_traces_does_not_end_the_exporter(lanes: Lanes, monkeypatch: pytest.MonkeyPatch) -> None:
    run: list[Exporter] = []
    monkeypatch.setattr("mailcore.events.exporter.os.nice", lambda increment: increment)

    def ran(self: Exporter) -> None:
        run.append(self)

    monkeypatch.setattr(Exporter, "run", ran)

    def start_traces(settings: Settings) -> None:
        raise RuntimeError("can't start new thread")

    settings = settings_of(lanes)
    main(start_traces, lambda settings: None, lambda settings: None, settings, 0)
    (exporter,) = run
    exporter.turn()
    exporter.log.flush()
    events = [json.loads(line) for line in (settings.log_directory / "mail.jsonl").read_text().splitlines()]
    assert ["can't start new thread" in each["why"] for each in events if each["event"] == "traces_failed"] == [True]


@pytest.mark.parametrize(("database", "said"), [("", "2"), ("host=db.example dbname=waypost", None)])
def test_files_of_a_shard_say_its_place_on_the_node_unless_a_database_keeps_it(
    lanes: Lanes, clock: Clock, database: str, said: str | None
) -> None:
    """It has other places on other nodes, and each of them reads the files of the others."""
    lanes.accept("Q1", arrived_at=DAY + 10)
    lanes.covered(at=DAY + 43_200)
    settings = dataclasses.replace(settings_of(lanes), shard=2, nodes=Nodes(database=database))
    exporter = Exporter(settings)
    look(exporter)
    (cut,) = settings.events_directory.glob("cuts/*.json")
    assert json.loads(cut.read_text()).get("shard", 0) == int(said or 0)
    (file,) = settings.events_directory.glob("dt=*/incoming.*")
    found = pq.ParquetFile(file).schema_arrow.metadata.get(b"waypost.shard")
    assert found == (None if said is None else said.encode())
