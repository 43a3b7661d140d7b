"""The file of a backup: whole or not there, and what is damaged in it is named."""

from __future__ import annotations

import stat
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from mailcore.backup import archive
from mailcore.backup.archive import Archive, BackupDamaged, BackupTooNew, Head
from mailcore.backup.restore import verify
from mailcore.backup.writer import Writer

HEAD = Head("0.1.0", 1_795_000_000.0, "mx1.example.org", ("configuration",))
FILES = {"config/waypost.toml": b"home = 'x'\n", "spool/00/A": bytes(range(256)) * 4_000, "spool/01/B": b""}


def written(path: Path, files: dict[str, bytes] | None = None, head: Head = HEAD) -> Path:
    writer = Writer(path, head)
    for name, content in (FILES if files is None else files).items():
        writer.add_bytes(name, content)
    writer.finish({"ends": {"local": 7}})
    return path


def read(path: Path) -> dict[str, bytes]:
    with Archive(path) as opened:
        return {info.name: content.everything() for info, content in opened.files()}


def unpacked(path: Path) -> bytes:
    with path.open("rb") as file, pa.CompressedInputStream(file, "zstd") as stream:
        return bytes(stream.read())


def packed(path: Path, content: bytes) -> None:
    with pa.CompressedOutputStream(str(path), "zstd") as stream:
        stream.write(content)


def test_what_was_put_in_comes_out(tmp_path: Path) -> None:
    path = written(tmp_path / "b")
    assert read(path) == FILES
    head, files, _ = verify(path)
    assert (head, files) == (HEAD, len(FILES) + 1)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["b"]


def test_it_has_its_name_only_when_it_is_finished(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "b", HEAD)
    writer.add_bytes("x", b"x")
    assert not (tmp_path / "b").exists()
    writer.abandon()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_became_shorter_fails_it(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"12345")
    writer = Writer(tmp_path / "b", HEAD)
    with pytest.raises(OSError, match="unexpected end"):
        writer.add_file("f", str(tmp_path / "f"), 6)
    writer.abandon()


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_one_that_is_cut_off_is_damaged(tmp_path: Path, share: float) -> None:
    path = written(tmp_path / "b")
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(BackupDamaged, match=str(path)):
        verify(path)


def test_a_flipped_byte_is_found_and_its_file_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "b")
    content = bytearray(unpacked(path))
    at = content.index(FILES["spool/00/A"][:100]) + 70_000
    content[at] ^= 1
    packed(path, bytes(content))
    with pytest.raises(BackupDamaged, match="spool/00/A is damaged"):
        verify(path)


def test_one_without_its_manifest_is_damaged(tmp_path: Path) -> None:
    path = written(tmp_path / "b")
    content = unpacked(path)
    packed(path, content[: content.index(b"manifest.json")])
    with pytest.raises(BackupDamaged, match="spool/01/B"):
        verify(path)


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "a//b", "./x", ""])
def test_no_name_leads_out_of_where_it_is_restored(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / "b", {"config/waypost.toml": b""} | {name: b"x"})
    with pytest.raises(BackupDamaged):
        verify(path)


def test_what_a_newer_waypost_made_is_refused_as_newer(tmp_path: Path) -> None:
    path = written(tmp_path / "b", head=msgspec.structs.replace(HEAD, format=archive.FORMAT + 1))
    with pytest.raises(BackupTooNew, match="format version 4"):
        verify(path)


def test_another_file_is_no_backup(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"hello" * 1000)
    with pytest.raises(BackupDamaged):
        verify(tmp_path / "x")
    packed(tmp_path / "y", b"hello" * 1000)
    with pytest.raises(BackupDamaged):
        verify(tmp_path / "y")
