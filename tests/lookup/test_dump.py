"""``waypost log dump`` shows every record, every mark and all damage, and changes nothing."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import pytest

from mailcore.cli.main import main
from mailcore.envelope import Status
from mailcore.log.disk import Disk
from mailcore.log.record import GARBAGE, MARK_AT, RETAINED, RecordType
from tests.json_lines import read_list
from tests.log.lanes import open_writer
from tests.queue.simulated_machine import HOME, OutsideMemory, SimulatedMachine
from tests.simulated_disk import SimulatedDisk


@pytest.fixture
def queue(tmp_path: Path) -> Path:
    """A queue in which something of everything happened, written to a real directory."""
    disk = SimulatedDisk()
    machine = SimulatedMachine(disk, OutsideMemory(), 5000)
    machine.accept(2)
    machine.accept(1, big=True)
    machine.durable()
    for _ in range(2):
        active = machine.begin()
        assert active is not None
        machine.load(active)
        machine.attempt(active, dict.fromkeys(list(active.pending)[:1], Status.BOUNCED))
        machine.end(active)
    machine.checkpoint()
    home = tmp_path / "queue"
    for lane in disk.list(HOME):
        if disk.is_directory(f"{HOME}/{lane}"):
            (home / lane).mkdir(parents=True)
            for name in disk.list(f"{HOME}/{lane}"):
                (home / lane / name).write_bytes(disk.image(f"{HOME}/{lane}/{name}"))
    for name in ("restart", "restart.previous"):
        (home / name).write_bytes(disk.image(f"{HOME}/{name}"))
    return home


def printed(*arguments: object) -> tuple[int, str]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main(["log", "dump", *map(str, arguments)])
    return code, out.getvalue()


def dump(*arguments: object) -> tuple[int, list[dict[str, Any]]]:
    code, out = printed(*arguments, "--json")
    items, end = read_list(out)
    assert end["complete"] == (code == 0)
    assert end["damaged"] == sum(item["kind"] == "damage" for item in items)
    return code, items


def test_a_queue_directory_shows_positions_lanes_and_bodies(queue: Path) -> None:
    code, items = dump(queue)
    assert code == 0
    assert items[0]["kind"] == "positions"
    assert "incoming.0" in items[0]["positions"]["lanes"]
    types = {item["type"] for item in items if item["kind"] == "record"}
    assert types == {"ENVELOPE", "START", "DELIVERY", "REPLACED", "FINISH"}
    (first,) = [
        i for i in items if i.get("lane") == "incoming.0" and i.get("body", {}).get("queue_id", "").endswith("1")
    ]
    assert first["mark"] == "garbage"
    assert first["body"]["recipients"][0]["address"] == "r0@example.org"
    assert first["body"]["data"] == "inline"
    assert first["data_bytes"] == 40
    assert "data" not in first


def test_lines_for_people_say_the_same(queue: Path) -> None:
    code, out = printed(queue)
    assert code == 0
    _, items = dump(queue)
    assert len(out.splitlines()) == len(items)
    assert "DELIVERY live" in out


def test_data_is_shown_when_asked_for(queue: Path) -> None:
    _, items = dump(queue, "--lane", "incoming.0", "--data")
    assert any(item.get("data", "").startswith("Subject: M000000000001\r\n") for item in items)


def test_it_can_be_narrowed(queue: Path) -> None:
    _, journal = dump(queue / "journal")
    offsets = [item["offset"] for item in journal if item["kind"] == "record"]
    _, some = dump(queue / "journal", "--from", offsets[1], "--to", offsets[3])
    assert [item["offset"] for item in some if item["kind"] == "record"] == offsets[1:3]
    _, starts = dump(queue, "--lane", "journal", "--type", "start", "--type", "finish")
    assert {item["type"] for item in starts if item["kind"] == "record"} == {"START", "FINISH"}
    (segment,) = [p for p in (queue / "journal").iterdir() if p.suffix == ".seg"][:1]
    assert dump(segment)[1][0]["kind"] == "segment"


def test_damage_is_shown_and_the_records_behind_it_too(queue: Path) -> None:
    (segment, *_) = sorted((queue / "journal").glob("*.seg"))
    _, before = dump(segment)
    records = [item for item in before if item["kind"] == "record"]
    data = bytearray(segment.read_bytes())
    data[records[1]["offset"] - before[0]["base"] + 20] ^= 1
    segment.write_bytes(data)
    code, items = dump(queue, "--lane", "journal")
    assert code == 1
    (damage,) = [item for item in items if item["kind"] == "damage"]
    assert (damage["offset"], damage["end"]) == (records[1]["offset"], records[2]["offset"])
    after = [item["offset"] for item in items if item["kind"] == "record"]
    assert {r["offset"] for r in records} - set(after) == {records[1]["offset"]}
    assert segment.read_bytes() == bytes(data)
    segment.write_bytes(bytes(4096))
    assert dump(segment)[0] == 1


def test_bodies_it_does_not_know_and_cut_off_records_are_shown(tmp_path: Path) -> None:
    lane = str(tmp_path / "lane")
    writer = open_writer(Disk(), lane)
    writer.append(99, b"from the future")
    offset = writer.append(RecordType.START, b"no MessagePack")
    writer.append(RecordType.START, b"behind the end")
    writer.sync()
    writer.close()
    writer = open_writer(Disk(), lane, end_at=offset + 12 + 14)
    writer.append(RecordType.ENVELOPE, b"\xff")
    writer.sync()
    writer.close()
    code, items = dump(lane)
    records = [item for item in items if item["kind"] == "record"]
    assert code == 0
    assert [(r["type"], "raw" in r, r.get("cut_off")) for r in records] == [
        ("99", True, None),
        ("START", True, None),
        ("START", True, True),
        ("ENVELOPE", True, None),
    ]


def test_a_mark_is_shown(tmp_path: Path) -> None:
    writer = open_writer(Disk(), str(tmp_path / "lane"))
    offset = writer.append(99, b"x")
    writer.sync()
    writer.close()
    (segment,) = (tmp_path / "lane").glob("*.seg")
    data = bytearray(segment.read_bytes())
    for mark, name in ((GARBAGE, "garbage"), (RETAINED, "retained"), (ord("x"), "live")):
        data[offset + MARK_AT] = mark
        segment.write_bytes(data)
        assert dump(segment)[1][1]["mark"] == name


def test_a_retired_segment_is_shown_with_its_lane_and_by_its_name(tmp_path: Path) -> None:
    lane = tmp_path / "lane"
    writer = open_writer(Disk(), str(lane), segment_bytes=5000)
    offsets = [writer.append(99, b"x" * 3000) for _ in range(3)]
    writer.sync()
    writer.close()
    first = min(lane.glob("*.seg"))
    retired = first.rename(first.with_suffix(".data"))
    code, items = dump(lane)
    assert code == 0
    assert [item["offset"] for item in items if item["kind"] == "record"] == offsets
    assert next(item["path"] for item in items if item["kind"] == "segment") == str(retired)
    assert dump(retired)[1] == items[: len(dump(retired)[1])]


@pytest.mark.parametrize("arguments", [["nowhere"], ["."], ["queue", "--lane", "none"]])
def test_nothing_to_read_is_said(arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "queue" / "journal").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    first = "empty" if arguments[0] == "." else arguments[0]
    assert main(["log", "dump", str(tmp_path / first), *arguments[1:]]) == 1
    out, err = capsys.readouterr()
    assert (out, err.startswith("waypost: "), err.count("\n")) == ("", True, 1)
    assert main(["log", "dump", str(tmp_path / first), *arguments[1:], "--json"]) == 1
    items, end = read_list(capsys.readouterr().out)
    assert (items, end["complete"], end["error"]["code"]) == ([], False, "not_found")
