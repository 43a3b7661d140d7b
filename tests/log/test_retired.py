"""A segment is opened for data under the name that it has, also while it is being renamed."""

from __future__ import annotations

import pytest

from mailcore.log.retired import open_either, retired_path
from tests.simulated_disk import SimulatedDisk

LIVE = "/queue/00000000000000000000.seg"
RETIRED = "/queue/00000000000000000000.data"


def the_names_change(disk: SimulatedDisk, after: int) -> None:
    """The segment is renamed in front of the open call with this number, counted from 0."""
    opener = disk.open_read
    calls = 0

    def open_read(path: str) -> int:
        nonlocal calls
        if calls == after:
            disk.replace(LIVE, RETIRED)
        calls += 1
        return opener(path)

    disk.open_read = open_read  # type: ignore[method-assign]


@pytest.mark.parametrize("asked", [LIVE, RETIRED])
@pytest.mark.parametrize("after", [-1, 0, 1, 2])
def test_it_is_opened_whenever_it_is_retired(asked: str, after: int) -> None:
    disk = SimulatedDisk()
    disk.make_directory("/queue")
    disk.put(LIVE, b"data")
    if after >= 0:
        the_names_change(disk, after)
    fd = open_either(disk.open_read, asked)
    assert disk.read(fd, 4, 0) == b"data"


def test_other_files_have_one_name() -> None:
    disk = SimulatedDisk()
    disk.make_directory("/queue")
    disk.put("/queue/Q1", b"data")
    assert disk.read(open_either(disk.open_read, "/queue/Q1"), 4, 0) == b"data"
    assert retired_path(LIVE) == RETIRED
    for path in (LIVE, RETIRED, "/queue/Q2"):
        with pytest.raises(FileNotFoundError, match=path):
            open_either(disk.open_read, path)
