"""Reading the text of a file of entries: what is no regular file is a fault, and never waited for."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from mailcore.rewriting.map_text import MapFault, read_text


@pytest.mark.timeout(60)
def test_a_named_pipe_is_a_fault_at_once(tmp_path: Path) -> None:
    pipe = tmp_path / "checks"
    os.mkfifo(pipe)
    with pytest.raises(MapFault, match=r"checks: cannot be read: it is not a regular file$"):
        read_text(str(pipe))


@pytest.mark.parametrize("path", ["/dev/zero", "/tmp"])
def test_a_device_and_a_directory_are_faults(path: str) -> None:
    with pytest.raises(MapFault, match="cannot be read: it is not a regular file"):
        read_text(path)


def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    pipe, text = tmp_path / "pipe", tmp_path / "text"
    os.mkfifo(pipe)
    text.write_bytes(b"\xef\xbb\xbfa b\n")
    for _ in range(20):
        with pytest.raises(MapFault):
            read_text(str(pipe))
        assert read_text(str(text)) == "a b\n"
    open_files = []  # of this test: others of the process have threads, which open and close theirs
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            open_files.append(os.readlink(f"/proc/self/fd/{fd}"))
    assert [path for path in open_files if path.startswith(str(tmp_path))] == []
