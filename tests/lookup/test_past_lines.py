"""Lines of the mail log backwards: each that matches once, in order, over pieces, rotations and torn lines."""

from __future__ import annotations

import gzip
import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from mailcore.lookup import past_lines
from mailcore.lookup.log_selection import Selection
from mailcore.lookup.past_lines import Lines, PlaceError, last, newer


def everything() -> Selection:
    return Selection()


def write(path: Path, *numbers: int, pad: int = 0) -> None:
    with path.open("a") as file:
        for number in numbers:
            line = {
                "event": "delivery",
                "time": number,
                "queue_id": f"Q{number % 7}",
                "recipient": f"r{number}@a.example",
            }
            file.write(json.dumps(line | {"pad": "x" * pad}) + "\n")


def walked(path: Path, selection: Callable[[], Selection], limit: int) -> list[int]:
    """All lines, page by page, newest page first."""
    found: list[int] = []
    before, looks = "", 0
    while True:
        page = last(path, selection, limit, before)
        found = [*(int(line.values["time"]) for line in page.lines), *found]
        assert len(page.lines) <= limit
        looks += 1
        assert looks < 2000
        if not page.older:
            return found
        assert page.older != before, "it goes on"
        before = page.older


@pytest.mark.parametrize("limit", [1, 3, 100])
@pytest.mark.parametrize("piece", [64, 200, 1000, 1 << 20])
def test_every_line_comes_once_and_in_order_over_pieces_and_rotations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, piece: int
) -> None:
    monkeypatch.setattr(past_lines, "PIECE_BYTES", piece)
    chance = random.Random(1)
    path = tmp_path / "mail.jsonl"
    number = 0
    for rotation in range(3):
        for _ in range(20):
            write(path, number, pad=chance.randrange(300))
            number += 1
        if rotation < 2:
            path.rename(tmp_path / f"mail.jsonl.{2 - rotation}")
    with path.open("a") as file:
        file.write('{"event": "torn')
    assert walked(path, everything, limit) == list(range(number))
    chosen = walked(path, lambda: Selection(queue_id="Q3"), limit)
    assert chosen == [each for each in range(number) if each % 7 == 3]


def test_a_budget_ends_a_search_that_finds_nothing_and_it_goes_on_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past_lines, "PIECE_BYTES", 500)
    monkeypatch.setattr(past_lines, "BUDGET_BYTES", 2000)
    path = tmp_path / "mail.jsonl"
    write(path, *range(200))
    page = last(path, lambda: Selection(queue_id="NONE"), 10)
    assert page.lines == []
    assert 2000 <= page.examined <= 2500
    assert page.older
    assert walked(path, lambda: Selection(recipient="r0@a.example"), 10) == [0]


def test_newer_lines_come_once_also_over_a_rotation(tmp_path: Path) -> None:
    path = tmp_path / "mail.jsonl"
    write(path, 0, 1)
    place = last(path, everything, 10).newest
    assert newer(path, everything(), 10, place).lines == []
    write(path, 2)
    with path.open("a") as file:
        file.write('{"event": "delivery", "time": 3')  # being written
    first = newer(path, everything(), 10, place)
    assert [line.values["time"] for line in first.lines] == [2]
    with path.open("a") as file:
        file.write("}\n")
    path.rename(tmp_path / "mail.jsonl.1")
    write(path, 4)
    second = newer(path, everything(), 10, first.newest)
    assert [line.values["time"] for line in second.lines] == [3, 4]
    assert newer(path, everything(), 10, second.newest).lines == []
    assert (second.older, second.note) == ("", "")
    few = newer(path, everything(), 2, place)
    assert [line.values["time"] for line in few.lines] == [3, 4], "the last of them"
    assert few.note == "1 more line matched and came before these"
    assert [line.values["time"] for line in last(path, everything, 10, few.older).lines] == [0, 1, 2]


def test_newer_lines_that_are_compressed_or_deleted_since_are_not_left_out_silently(tmp_path: Path) -> None:
    path = tmp_path / "mail.jsonl"
    write(path, 0)
    place = last(path, everything, 10).newest
    write(path, 1)
    path.rename(tmp_path / "mail.jsonl.2")
    made = compress(tmp_path / "mail.jsonl.2")
    write(path, 2)
    page = newer(path, everything(), 10, place)
    assert [line.values["time"] for line in page.lines] == [2]
    assert made.name in page.note
    assert [line.values["time"] for line in last(path, everything, 10, page.older).lines] == [0, 1]
    made.unlink()
    assert "is deleted" in newer(path, everything(), 10, place).note


def compress(path: Path) -> Path:
    """As logrotate does: another file with the same time."""
    status = path.stat()
    made = path.with_name(f"{path.name}.gz")
    with gzip.open(made, "wb") as file:
        file.write(path.read_bytes())
    os.utime(made, (status.st_atime, status.st_mtime))
    path.unlink()
    return made


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_a_place_stays_good_when_its_file_is_rotated_and_compressed(tmp_path: Path, limit: int) -> None:
    path = tmp_path / "mail.jsonl"
    write(path, *range(10))
    page = last(path, everything, 3)
    os.utime(path, (1.0, 1.0))
    path.rename(tmp_path / "mail.jsonl.2")
    compress(tmp_path / "mail.jsonl.2")
    (tmp_path / "other").write_text("x")  # takes the inode, perhaps
    write(path, 20)
    assert [line.values["time"] for line in page.lines] == [7, 8, 9]
    assert [line.values["time"] for line in last(path, everything, 100, page.older).lines] == list(range(7))
    assert walked(path, everything, limit) == [*range(10), 20]
    assert walked(path, lambda: Selection(queue_id="Q3"), limit) == [3]
    assert not newer(path, everything(), 10, last(path, everything, 1).newest).lines


def test_a_file_that_is_just_being_compressed_comes_once(tmp_path: Path) -> None:
    path = tmp_path / "mail.jsonl"
    write(path, *range(3))
    os.utime(path, (1.0, 1.0))
    path.rename(tmp_path / "mail.jsonl.2")
    (tmp_path / "mail.jsonl.2.gz").write_bytes(gzip.compress((tmp_path / "mail.jsonl.2").read_bytes())[:-9])
    write(path, 20)
    assert walked(path, everything, 100) == [0, 1, 2, 20]


def test_a_damaged_compressed_file_is_named_and_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "mail.jsonl"
    write(path, *range(3))
    os.utime(path, (1.0, 1.0))
    path.rename(tmp_path / "mail.jsonl.2")
    made = compress(tmp_path / "mail.jsonl.2")
    made.write_bytes(made.read_bytes()[:-8])
    write(path, 20)
    page = last(path, everything, 100)
    assert page.lines[-1].values["time"] == 20
    assert made.name in page.note


def test_without_a_file_there_are_no_lines_and_a_wrong_place_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mail.jsonl"
    assert last(path, everything, 10) == Lines([], "", "", 0)
    write(path, 1)
    for place in ("x", "1", "1:", ":1", "-1:5", "1:²"):
        with pytest.raises(PlaceError):
            last(path, everything, 10, place)
        with pytest.raises(PlaceError):
            newer(path, everything(), 10, place)


def test_a_line_longer_than_a_piece_costs_no_other_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past_lines, "PIECE_BYTES", 300)
    path = tmp_path / "mail.jsonl"
    write(path, 0)
    write(path, 1, pad=2000)
    write(path, 2)
    assert [each for each in walked(path, everything, 5) if each != 1] == [0, 2]


def test_a_sender_matches_the_later_lines_of_its_messages(tmp_path: Path) -> None:
    path = tmp_path / "mail.jsonl"
    lines = [
        {"event": "accepted", "queue_id": "A1", "sender": "a@x.example", "client_address": "192.0.2.1"},
        {"event": "accepted", "queue_id": "B1", "sender": "b@x.example", "client_address": "192.0.2.2"},
        {"event": "delivery", "queue_id": "A1", "recipient": "r@y.example", "status": "sent"},
        {"event": "delivery", "queue_id": "B1", "recipient": "r@y.example", "status": "deferred"},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def found(**conditions: str) -> list[str]:
        return [str(line.values["queue_id"]) for line in last(path, lambda: Selection(**conditions), 10).lines]

    assert found(sender="a@x.example") == ["A1", "A1"]
    assert found(client="192.0.2.2") == ["B1"]
    assert found(client="192.0.2.*") == ["A1", "B1"]
    assert found(status="deferred") == ["B1"]
    assert found(status="sent", recipient="*@y.example") == ["A1"]
