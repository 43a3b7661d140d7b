"""The file tuned.toml: kept over restarts, replaced whole, and never in the way of mail."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from mailcore.config.tuned import Tuned, Value, Values
from mailcore.log.disk import Disk


def again(path: Path) -> Values:
    """The values as the next start finds them."""
    return Tuned(Disk(), path).values


def test_without_a_file_nothing_is_tuned(tmp_path: Path) -> None:
    tuned = Tuned(Disk(), tmp_path / "tuned.toml")
    assert tuned.values == {}
    assert tuned.damage == ""


@pytest.mark.parametrize("scope", ["", "smtp", "smtp:[::1]:2526", "smtp:bücher.example", 'a"b\\c\x7f\n😀'])
@pytest.mark.parametrize("value", [7, 0.5, 1e-9, 1_795_000_000.123456, math.inf, True, "1/concurrency", '"\\\n'])
def test_what_is_set_is_there_after_a_restart(tmp_path: Path, scope: str, value: Value) -> None:
    path = tmp_path / "tuned.toml"
    tuned = Tuned(Disk(), path)
    tuned.set(scope, "destination_concurrency_limit", value)
    assert again(path) == tuned.values == {scope: {"destination_concurrency_limit": value}}
    assert tuned.get(scope, "destination_concurrency_limit") == value
    tuned.set(scope, "destination_concurrency_limit", None)
    assert again(path) == tuned.values == {}
    tuned.set(scope, "never_set", None)
    assert tuned.values == {}


@pytest.mark.parametrize(
    "text",
    [
        "[", "x = 1", '["smtp"]\nlimit = ["many"]', '["smtp"]\nlimit = 2026-01-01', '["smtp"]\nlimit = nan',
        '["smtp"]\nlimit = { value = 1 }', '["smtp"]\nlimit = { value = 1, until = "soon" }',
        '["smtp"]\nlimit = { value = 1, until = nan }', '["smtp"]\nlimit = { value = {}, until = 1 }',
        '["smtp"]\nlimit = { value = 1, until = 1, since = 1 }', "a = [" * 5000,
    ],
    ids=["no TOML", "no table", "list", "date", "nan", "no end", "text", "nan end", "table", "more", "deep"],
)  # fmt: skip
def test_a_damaged_file_is_set_aside_and_reported(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tuned.toml"
    for number in (1, 2):
        path.write_text(text)
        tuned = Tuned(Disk(), path)
        assert tuned.values == {}
        assert str(path) in tuned.damage
        assert Path(f"{path}.damaged.{number}").read_text() == text
        assert f"damaged.{number}" in tuned.damage
        assert not path.exists()
    tuned.set("smtp", "process_limit", 3)
    assert again(path) == {"smtp": {"process_limit": 3}}


def test_bytes_that_are_no_text_are_damage(tmp_path: Path) -> None:
    path = tmp_path / "tuned.toml"
    path.write_bytes(b"\xff\xfe")
    assert "tuned.toml" in Tuned(Disk(), path).damage


class Failing(Disk):
    """Cannot sync."""

    def sync(self, fd: int) -> None:
        raise OSError(28, "No space left on device")


def test_a_change_that_cannot_be_written_leaves_all_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "tuned.toml"
    Tuned(Disk(), path).set("smtp", "process_limit", 3)
    tuned = Tuned(Failing(), path)
    with pytest.raises(OSError, match="No space"):
        tuned.set("smtp", "process_limit", 4)
    assert again(path) == tuned.values == {"smtp": {"process_limit": 3}}
    tuned.disk = Disk()
    tuned.set("smtp", "process_limit", 5)  # what the failure left behind is not in the way
    assert again(path) == {"smtp": {"process_limit": 5}}


Buffer = bytes | bytearray | memoryview


class Watching(Disk):
    """Remembers the order of calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def write(self, fd: int, buffers: Sequence[Buffer], offset: int) -> None:
        self.calls.append("write")
        super().write(fd, buffers, offset)

    def sync(self, fd: int) -> None:
        self.calls.append("sync")
        super().sync(fd)

    def replace(self, old: str, new: str) -> None:
        self.calls.append(f"replace {os.path.basename(new)}")
        super().replace(old, new)

    def sync_directory(self, path: str) -> None:
        self.calls.append("sync directory")
        super().sync_directory(path)


def test_a_change_is_on_disk_when_it_returns(tmp_path: Path) -> None:
    disk = Watching()
    Tuned(disk, tmp_path / "tuned.toml").set("", "maximal_backoff_time", 60)
    assert disk.calls == ["write", "sync", "replace tuned.toml", "sync directory"]


def test_times_that_are_over_are_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "tuned.toml"
    tuned = Tuned(Disk(), path)
    tuned.set("smtp:a.example", "suspended_until", 100.0)
    tuned.set("smtp:b.example", "suspended_until", math.inf)
    tuned.set("smtp:c.example", "suspended_until", 50.0)
    tuned.set("smtp:c.example", "destination_concurrency_limit", 1)
    assert sorted(tuned.forget_ended("suspended_until", 100.0)) == [
        ("smtp:a.example", "suspended_until", 100.0, 100.0),
        ("smtp:c.example", "suspended_until", 50.0, 50.0),
    ]
    assert tuned.forget_ended("suspended_until", 100.0) == []
    assert "smtp:a.example" in again(path)
    tuned.save()
    assert "smtp:a.example" not in again(path)
    tuned.set("smtp", "process_limit", 9)
    assert again(path) == {
        "smtp": {"process_limit": 9},
        "smtp:b.example": {"suspended_until": math.inf},
        "smtp:c.example": {"destination_concurrency_limit": 1},
    }


def test_what_is_set_for_a_time_is_there_after_a_restart_beside_what_lasts(tmp_path: Path) -> None:
    path = tmp_path / "tuned.toml"
    tuned = Tuned(Disk(), path)
    tuned.set("smtp", "limit", 8)
    tuned.set("smtp", "limit", 4, until=200.5)
    tuned.set("smtp:.example.org", "feedback", "1/concurrency", until=100.0)
    found = Tuned(Disk(), path)
    assert found.values == {"smtp": {"limit": 8}}
    assert found.timed == {"smtp": {"limit": (4, 200.5)}, "smtp:.example.org": {"feedback": ("1/concurrency", 100.0)}}
    assert (found.get("smtp", "limit"), found.get_timed("smtp", "limit")) == (8, (4, 200.5))
    assert found.get_timed("smtp", "other") is None
    assert found.forget_ended("suspended_until", 100.0) == [("smtp:.example.org", "feedback", "1/concurrency", 100.0)]
    assert found.timed == {"smtp": {"limit": (4, 200.5)}}
    found.set("smtp", "limit", None, until=200.5)
    assert (again(path), Tuned(Disk(), path).timed) == ({"smtp": {"limit": 8}}, {})
    found.set("smtp", "limit", 4, until=200.5)
    found.set("smtp", "limit", None)
    assert (again(path), Tuned(Disk(), path).timed) == ({}, {})
