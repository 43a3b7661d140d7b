"""The real disk: what the simulated one cannot show."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from mailcore.log.disk import Disk, Locked


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.mark.parametrize("step", [1, 3, 7, 100])
def test_a_short_write_goes_on_where_it_stopped(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """A full tmpfs first writes short without an exception."""
    real = os.pwritev

    def short(fd: int, buffers: list[bytes], offset: int) -> int:
        return real(fd, [b"".join(buffers)[:step]], offset)

    monkeypatch.setattr(os, "pwritev", short)
    fd = disk.create(str(tmp_path / "f"))
    disk.write(fd, [b"one", b"", bytearray(b"twotwo"), memoryview(b"three"), b"!" * 50], 5)
    disk.close(fd)
    assert (tmp_path / "f").read_bytes() == bytes(5) + b"onetwotwothree" + b"!" * 50


def test_a_write_that_writes_nothing_is_a_full_disk(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pwritev", lambda fd, buffers, offset: 0)
    fd = disk.create(str(tmp_path / "f"))
    with pytest.raises(OSError, match="No space") as caught:
        disk.write(fd, [b"x"], 0)
    assert caught.value.errno == errno.ENOSPC
    disk.write(fd, [b""], 0)
    disk.close(fd)


def test_more_buffers_than_one_call_takes(disk: Disk, tmp_path: Path) -> None:
    fd = disk.create(str(tmp_path / "f"))
    disk.write(fd, [b"%04d" % i for i in range(5000)], 0)
    assert disk.read(fd, 20_000, 0) == b"".join(b"%04d" % i for i in range(5000))
    disk.close(fd)


def test_a_read_cut_short_is_completed(disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "f").write_bytes(b"0123456789")
    fd = disk.open_read(str(tmp_path / "f"))
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, length, offset: real(fd, min(length, 3), offset))
    assert disk.read(fd, 8, 1) == b"12345678"
    assert disk.read(fd, 80, 4) == b"456789"
    disk.close(fd)


def test_a_lock_is_seen_by_others_and_ends_with_its_descriptor(disk: Disk, tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    fd = disk.lock(path)
    with pytest.raises(Locked, match="lock"):
        Disk().lock(path)
    disk.close(fd)
    disk.close(Disk().lock(path))


def test_every_directory_is_synced_into_its_parent_once(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = disk.sync_directory

    def sync_directory(path: str) -> None:
        synced.append(path)
        real(path)

    monkeypatch.setattr(disk, "sync_directory", sync_directory)
    (tmp_path / "a").mkdir()  # by somebody who was killed
    path = str(tmp_path / "a" / "b" / "c")
    disk.make_directory(path)
    assert synced[-3:] == [str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b")]
    count = len(synced)
    disk.make_directory(path)
    disk.make_directory(path + "/")
    assert len(synced) == count
    disk.remove_directory(path)
    disk.make_directory(path)
    assert os.path.isdir(path)


def test_a_relative_directory_is_made(disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    disk.make_directory("var/queue")
    assert (tmp_path / "var" / "queue").is_dir()


def test_a_directory_above_that_may_not_be_opened_does_not_stop_us(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = disk.sync_directory

    def sync_directory(path: str) -> None:
        if not path.startswith(str(tmp_path)):
            raise PermissionError(errno.EACCES, "no", path)
        real(path)

    monkeypatch.setattr(disk, "sync_directory", sync_directory)
    disk.make_directory(str(tmp_path / "queue"))
    monkeypatch.setattr(disk, "sync_directory", lambda path: (_ for _ in ()).throw(OSError(errno.EIO, "no", path)))
    with pytest.raises(OSError, match="no"):
        disk.make_directory(str(tmp_path / "other"))


def test_others_may_not_read(disk: Disk, tmp_path: Path) -> None:
    disk.make_directory(str(tmp_path / "q"))
    disk.close(disk.create(str(tmp_path / "q" / "f")))
    assert (tmp_path / "q").stat().st_mode & 0o007 == 0
    assert (tmp_path / "q" / "f").stat().st_mode & 0o027 == 0


def test_free_bytes_is_what_an_unprivileged_writer_has(disk: Disk, tmp_path: Path) -> None:
    assert 0 <= disk.free_bytes(str(tmp_path)) < 1 << 62
