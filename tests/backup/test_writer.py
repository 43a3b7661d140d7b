"""Writing a backup: two at once, one that was killed, one that a disk has no room for."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from mailcore.backup.archive import BackupDamaged, Head
from mailcore.backup.restore import verify
from mailcore.backup.writer import Writer
from tests.backup.test_archive import written

HEAD = Head("0.1.0", 1_795_000_000.0, "mx1.example.org", ("configuration",))
KILLED = """
import os, signal, sys
from pathlib import Path
from mailcore.backup.archive import Head
from mailcore.backup.writer import Writer
writer = Writer(Path(sys.argv[1]), Head("0.1.0", 1.0, "mx1.example.org", ()))
(writer.folder / "portal.sqlite3").write_bytes(b"a copy")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """With 256 kB of room."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)], check=True)
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_of_two_with_one_name_the_first_has_it_whole_and_the_second_is_told(tmp_path: Path) -> None:
    path = tmp_path / "b"
    first, second = Writer(path, HEAD), Writer(path, HEAD)
    for writer in (first, second):
        writer.add_bytes("config/waypost.toml", b"x" * 100_000)
    second.finish({})
    with pytest.raises(FileExistsError):
        first.finish({})
    first.abandon()
    assert verify(path)[0] == HEAD
    assert [each.name for each in tmp_path.iterdir()] == ["b"]


def test_what_one_that_was_killed_has_left_goes_with_the_next(tmp_path: Path) -> None:
    living = Writer(tmp_path / "living", HEAD)
    (living.folder / "portal.sqlite3").write_bytes(b"a copy")
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "killed")], check=False)
    assert done.returncode == -9
    assert len(list(tmp_path.iterdir())) == 4
    written(tmp_path / "next")
    living.finish({})
    assert sorted(each.name for each in tmp_path.iterdir()) == ["living", "next"]
    verify(tmp_path / "living")


def test_on_a_full_disk_nothing_is_left_of_it_and_nobody_shouts(
    small_disk: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    writer = Writer(small_disk / "b", HEAD)
    with pytest.raises(OSError, match="No space left"):
        writer.add_bytes("spool/00/A", os.urandom(10 << 20))
    writer.abandon()
    del writer
    assert list(small_disk.iterdir()) == []
    assert capfd.readouterr().err == ""  # of the compressor's own


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])
@pytest.mark.parametrize("name", ["config/waypost.toml", "manifest.json", "waypost-backup.json"])
def test_what_is_no_file_is_nothing_a_backup_has(tmp_path: Path, kind: bytes, name: str) -> None:
    with (
        pa.CompressedOutputStream(str(tmp_path / "b"), "zstd") as stream,
        tarfile.open(fileobj=stream, mode="w|") as archive,
    ):
        if name != "waypost-backup.json":
            info, content = _head(tmp_path)
            archive.addfile(info, io.BytesIO(content))
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, "/etc/passwd"
        archive.addfile(info)
    with pytest.raises(BackupDamaged):
        verify(tmp_path / "b")


def test_a_name_that_is_in_it_twice_is_no_backup_of_ours(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "b", HEAD)
    for content in (b"1", b"2"):
        writer.add_bytes("config/waypost.toml", content)
    writer.finish({})
    with pytest.raises(BackupDamaged, match="twice"):
        verify(tmp_path / "b")


def _head(tmp_path: Path) -> tuple[tarfile.TarInfo, bytes]:
    """As a real one begins."""
    with (
        pa.CompressedInputStream(str(written(tmp_path / "real")), "zstd") as stream,
        tarfile.open(fileobj=stream, mode="r|") as archive,
    ):
        info = archive.next()
        assert info is not None
        file = archive.extractfile(info)
        assert file is not None
        return info, file.read()
