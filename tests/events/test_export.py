"""Events come once, whole, under names that the same stretch always has, and only of what no crash can take back."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mailcore.envelope import Recipient, Status
from mailcore.events.schema import COLUMNS, FIELDS, KINDS, STATUSES
from mailcore.events.write.files import SCHEMA
from mailcore.log.disk import Locked
from mailcore.log.record import RecordType
from mailcore.queue.exported import ExportedLane, ExportedPositions
from mailcore.queue.lanes import JOURNAL
from mailcore.queue.records import Administrative, Finish, Place, Replaced, append_recipients, encode
from tests.events.lanes import DAY, Lanes
from tests.events.reading import Killed, MortalDisk, damages, digest, files, incoming, rows


@pytest.fixture
def lanes(tmp_path: Path) -> Iterator[Lanes]:
    lanes = Lanes(tmp_path)
    yield lanes
    lanes.close()


def fill(lanes: Lanes, first: int = 0, count: int = 20) -> None:
    """Some segments of both lanes, whose rows fall on two days."""
    for number in range(first, first + count):
        lanes.accept(f"Q{number:03}", 8, arrived_at=DAY - 50 + 20 * number)
        lanes.deliver(f"Q{number:03}", *[Status.DELIVERED] * 8, at=DAY - 40 + 20 * number)


def test_sealed_segments_are_exported_and_the_open_one_when_asked(lanes: Lanes) -> None:
    fill(lanes)
    lanes.covered()
    lanes.run()
    assert 0 < len(incoming(rows(lanes.events))) < 20
    assert lanes.at("incoming.0").at == lanes.bases("incoming.0")[-1]
    lanes.run(everything=True)
    assert incoming(rows(lanes.events)) == {f"Q{number:03}": 8 for number in range(20)}
    names = {path.name for path in files(lanes.events)}
    assert {f"incoming.0.{base}.parquet" for base in lanes.bases("incoming.0")[:-1]} <= names
    assert {path.parent.name for path in files(lanes.events)} == {"dt=2026-11-20", "dt=2026-11-21"}
    for path in files(lanes.events):
        day = pq.ParquetFile(path).read(["at"]).column("at").to_pylist()
        assert {at >= DAY for at in day} == {path.parent.name == "dt=2026-11-21"}


def test_what_follows_a_stretch_in_the_middle_goes_on_there(lanes: Lanes) -> None:
    fill(lanes, 0, 2)
    lanes.covered()
    lanes.run(everything=True)
    middle = lanes.writer("incoming.0").durable
    assert lanes.at("incoming.0").at == middle
    fill(lanes, 2, 18)
    lanes.covered()
    lanes.run(everything=True)
    assert incoming(rows(lanes.events)) == {f"Q{number:03}": 8 for number in range(20)}
    assert any(path.name == f"incoming.0.{middle}.parquet" for path in files(lanes.events))


def test_killed_at_any_step_and_run_again_the_files_are_the_same(lanes: Lanes, tmp_path: Path) -> None:
    lanes.segment_bytes = 4_700
    fill(lanes, 1, 3)
    lanes.covered()
    disk = MortalDisk()
    lanes.run(disk, everything=True)
    wanted = digest(lanes.events)
    assert len(wanted) > 3
    for step in range(disk.calls):
        shutil.rmtree(lanes.events, ignore_errors=True)
        with pytest.raises(Killed):
            lanes.run(MortalDisk(step), everything=True)
        rows(lanes.events)  # what is there is whole
        lanes.run(everything=True)
        assert digest(lanes.events) == wanted, f"killed at step {step}"
        assert not list(lanes.events.glob("dt=*/.*")), "what a kill left is still there"


def test_a_stretch_that_was_begun_ends_where_it_was_to_end(lanes: Lanes) -> None:
    """More is there when it is written again: it belongs into the next one."""
    lanes.segment_bytes = 1 << 20
    fill(lanes, 0, 2)
    lanes.covered()
    disk = MortalDisk()
    lanes.run(disk, everything=True)
    begun = {path: content for path, content in digest(lanes.events).items() if "/incoming.0." in path}
    assert begun
    step = -1
    while True:  # the first step at which an incoming file is published and its position is not
        step += 1
        shutil.rmtree(lanes.events, ignore_errors=True)
        with pytest.raises(Killed):
            lanes.run(MortalDisk(step), everything=True)
        if begun.items() <= digest(lanes.events).items():
            break
    fill(lanes, 2, 18)
    lanes.covered()
    lanes.run(everything=True)
    assert begun.items() <= digest(lanes.events).items()
    assert incoming(rows(lanes.events)) == {f"Q{number:03}": 8 for number in range(20)}


def test_only_what_both_restart_positions_cover_is_exported(lanes: Lanes) -> None:
    """A recovery drops the rest of a lane the manager writes: a bounce there comes again, elsewhere."""
    lanes.accept("B1", lane="local")
    lanes.sync()
    end = lanes.writer("local").durable
    lanes.accept("B2", lane="local")
    lanes.covered({"local": end})
    lanes.run(everything=True)
    assert set(incoming(rows(lanes.events))) == {"B1"}
    lanes.covered(times=1)  # the older ones may be what a recovery starts from
    lanes.run(everything=True)
    assert set(incoming(rows(lanes.events))) == {"B1"}
    lanes.covered()
    lanes.run(everything=True)
    assert set(incoming(rows(lanes.events))) == {"B1", "B2"}


def test_a_lane_whose_first_segment_could_not_be_written_begins_at_0_all_the_same(lanes: Lanes) -> None:
    """The file that was begun is gone again, and the next one begins behind what it would have held."""
    writer = lanes.writer("incoming.0")
    lanes.accept("LOST")
    writer.reopen()
    lanes.accept("FIRST")
    lanes.covered()
    lanes.run(everything=True)
    assert lanes.bases("incoming.0")[0] > 0
    assert [path.name for path in files(lanes.events)] == ["incoming.0.0.parquet"]
    assert lanes.lost == []
    assert lanes.at("incoming.0").since == 0


def test_what_is_exported_is_counted_once_whatever_is_killed(lanes: Lanes) -> None:
    lanes.segment_bytes = 4_700
    fill(lanes, 1, 3)
    lanes.covered()
    disk = MortalDisk()
    lanes.run(disk, everything=True)
    wanted = lanes.at(JOURNAL).counts
    assert (wanted["delivered"], wanted["rows"]) == (24, 24)
    for step in range(disk.calls):
        shutil.rmtree(lanes.events)
        with pytest.raises(Killed):
            lanes.run(MortalDisk(step), everything=True)
        lanes.run(everything=True)
        assert lanes.at(JOURNAL).counts == wanted, f"killed at step {step}"


def test_what_an_older_version_exported_was_not_counted(lanes: Lanes) -> None:
    fill(lanes, 0, 2)
    lanes.covered()
    lanes.run(everything=True)
    export = lanes.export()
    state = export.state()
    before = state.lanes[JOURNAL]
    old = {lane: ExportedLane(each.at, each.to, each.keep) for lane, each in state.lanes.items()}
    with export.locked(0):
        export.save(ExportedPositions(old, state.cut_at, state.zone))
    fill(lanes, 2, 1)
    lanes.covered()
    lanes.run(everything=True)
    after = lanes.at(JOURNAL)
    assert (after.since, after.counts["delivered"]) == (before.at, 8)


def test_what_was_written_anew_is_no_arrival_and_what_was_scheduled_is_one(lanes: Lanes) -> None:
    lanes.accept("NEW", lane="retry.300", generation=0)
    lanes.accept("OLD", lane="retry.300", generation=1)
    lanes.covered()
    lanes.run(everything=True)
    assert set(incoming(rows(lanes.events))) == {"NEW"}


def test_recipients_in_front_of_an_envelope_in_the_next_stretch_are_kept_for_it(lanes: Lanes) -> None:
    writer = lanes.writer("incoming.0")
    everybody = [Recipient(number, f"r{number}@example.org") for number in range(5)]
    lanes.accept("FIRST")
    batch = append_recipients(writer, everybody[3:])
    lanes.covered()
    lanes.run(everything=True)
    assert lanes.at("incoming.0").needed == batch
    lanes.envelope("LONG", "incoming.0", everybody, (batch,))
    lanes.covered()
    lanes.run(everything=True)
    assert incoming(rows(lanes.events)) == {"FIRST": 1, "LONG": 5}
    assert lanes.at("incoming.0").needed == lanes.at("incoming.0").at


def test_a_damaged_record_is_named_and_the_others_are_exported(lanes: Lanes) -> None:
    lanes.segment_bytes = 1 << 20
    offsets = [lanes.accept(f"Q{number}") for number in range(5)]
    lanes.covered()
    (path,) = (lanes.path / "queue" / "incoming.0").glob("*.seg")
    image = bytearray(path.read_bytes())
    image[offsets[2] + 40] ^= 0xFF
    path.write_bytes(image)
    lanes.run(everything=True)
    assert sorted(incoming(rows(lanes.events))) == ["Q0", "Q1", "Q3", "Q4"]
    assert [(damage.path, damage.offset) for damage in lanes.damage] == [(str(path), offsets[2])]
    (file,) = files(lanes.events)
    assert [(offset, end) for offset, end, _ in damages(file)] == [(offsets[2], offsets[3])]


def test_a_record_that_cannot_be_decoded_is_named_and_so_is_one_that_fits_no_column(lanes: Lanes) -> None:
    writer = lanes.writer(JOURNAL)
    bad = writer.append(RecordType.DELIVERY, b"\xc1 no MessagePack")
    wide = writer.append(RecordType.FINISH, encode(Finish("Q1", 1 << 40)))
    lanes.deliver("Q2", Status.DELIVERED)
    lanes.covered()
    lanes.run(everything=True)
    assert [event["queue_id"] for event in rows(lanes.events)] == ["Q2"]
    assert {damage.offset for damage in lanes.damage} == {bad, wide}
    named = [offset for path in files(lanes.events) for offset, _, _ in damages(path)]
    assert sorted({*named}) == [bad, wide]


def test_a_stretch_of_which_nothing_can_be_read_has_a_file_that_says_so(lanes: Lanes) -> None:
    bad = lanes.writer(JOURNAL).append(RecordType.DELIVERY, b"\xc1 no MessagePack")
    lanes.covered()
    lanes.run(everything=True)
    (file,) = files(lanes.events)
    assert [offset for offset, _, _ in damages(file)] == [bad]


def test_segments_that_went_before_their_time_are_told_and_spoil_no_file(lanes: Lanes) -> None:
    fill(lanes)
    lanes.covered()
    lanes.run()
    before = digest(lanes.events)
    at = lanes.at("incoming.0").at
    fill(lanes, 20, 20)
    lanes.covered()
    for base in lanes.bases("incoming.0")[:-1]:
        (lanes.path / "queue" / "incoming.0" / f"{base:020}.seg").unlink()
    lanes.run(everything=True)
    assert lanes.lost == [("incoming.0", at, lanes.bases("incoming.0")[0])]
    assert before.items() <= digest(lanes.events).items()


def test_each_kind_of_record_becomes_its_kind_of_event(lanes: Lanes) -> None:
    """What strangers wrote stays as it is: it is for whoever shows it to escape."""
    lanes.accept("Q1", 5, tls="TLSv1.3 X", helo="client.example")
    lanes.refuse()
    lanes.deliver("Q1", Status.DELIVERED, Status.DEFERRED, Status.BOUNCED, Status.EXPIRED, Status.DELETED)
    writer = lanes.writer(JOURNAL)
    writer.append(RecordType.REPLACED, encode(Replaced("Q1", 0, Place("retry.300", 5), None, DAY + 40)))
    order = Administrative("add_recipients", "Q1", "ann", "forgotten", DAY + 50, {"recipients": ["x@example.org"]})
    writer.append(RecordType.ADMINISTRATIVE, encode(order))
    order = Administrative("hold", "Q1", "ann", "", DAY + 51, {}, anew=True)
    writer.append(RecordType.ADMINISTRATIVE, encode(order))
    writer.append(RecordType.FINISH, encode(Finish("Q1", 1, None, DAY + 60)))
    lanes.covered()
    lanes.run(everything=True)
    found = rows(lanes.events)
    by_kind = {kind: [event for event in found if event["kind"] == kind] for kind in KINDS}
    assert [(event["first_number"], len(event["recipients"])) for event in by_kind["accepted"]] == [(0, 3), (3, 2)]
    assert by_kind["accepted"][0]["recipient_count"] == 5
    assert "sender" not in by_kind["accepted"][1]
    assert [event["status"] for event in by_kind["attempt"]] == list(STATUSES)
    assert [event.get("recipient_count") for event in by_kind["attempt"]] == [5, None, None, None, None]
    assert [(event["to_lane"], event["due_at"]) for event in by_kind["replaced"]] == [("retry.300", DAY + 340)]
    assert [event["arguments"] for event in by_kind["order"]] == ['{"recipients":["x@example.org"]}']
    assert [event["generation"] for event in by_kind["finished"]] == [1]
    assert [(event["stage"], event["helo"]) for event in by_kind["refused"]] == [("RCPT", "evil\x1b[31m")]
    for path in files(lanes.events):
        assert pq.ParquetFile(path).schema_arrow.names == list(COLUMNS)


def test_no_row_group_is_large_whatever_a_segment_holds(lanes: Lanes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mailcore.events.write.files.ROWS_MAX", 50)
    lanes.writer(JOURNAL).segment_bytes = 1 << 20
    for number in range(30):
        lanes.deliver(f"Q{number}", *[Status.DELIVERED] * 8)
    lanes.covered()
    lanes.run(everything=True)
    (file,) = files(lanes.events)
    metadata = pq.ParquetFile(file).metadata
    assert max(metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)) <= 58
    assert metadata.num_rows == 240


def test_one_exports_at_a_time(lanes: Lanes) -> None:
    export = lanes.export()
    with export.locked(0), pytest.raises(Locked), lanes.export().locked(0.2):
        raise AssertionError("two hold the lock")


def test_esmtp_options_of_the_message_and_of_each_recipient_are_exported(lanes: Lanes) -> None:
    everybody = [Recipient(number, f"r{number}@example.org") for number in range(4)]
    everybody[1] = Recipient(1, "r1@example.org", options=(("X-ROLE", "reader"),))
    everybody[3] = Recipient(3, "r3@example.org", options=(("X-ROLE", ""),))
    batches = (append_recipients(lanes.writer("incoming.0"), everybody[3:]),)
    lanes.envelope("Q1", "incoming.0", everybody, batches, options=(("X-MODE", "fast"),))
    lanes.accept("Q2")
    lanes.covered()
    lanes.run(everything=True)
    options = {(event["queue_id"], event["part"]): event.get("options") for event in rows(lanes.events)}
    assert options == {
        ("Q1", 0): '{"1":{"X-ROLE":"reader"},"":{"X-MODE":"fast"}}',
        ("Q1", 1): '{"3":{"X-ROLE":""}}',
        ("Q2", 0): None,
    }


def test_columns_are_what_the_schema_says(lanes: Lanes) -> None:
    assert SCHEMA.field("recipients").type == pa.list_(pa.string())
    assert set(FIELDS) == set(KINDS)
    named = {"lane", "offset", "part", "at", "kind", "queue_id"}.union(*FIELDS.values())
    assert named == set(COLUMNS)
