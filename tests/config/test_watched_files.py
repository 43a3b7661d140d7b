"""Files that are read again when they change, also after a named pipe stood in their place, and a read that does not end."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mailcore.config.watched_files import READ_S_MAX, WatchedFiles
from mailcore.rewriting.map_text import read_text
from tests.eventually import eventually


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


async def looking(watched: WatchedFiles[str], true: Callable[[], object]) -> None:
    def so() -> object:
        watched.look()
        return true()

    await eventually(so)


@pytest.mark.timeout(300)
async def test_a_named_pipe_in_place_of_a_file_does_not_end_the_watching(
    tmp_path: Path, threads: ThreadPoolExecutor
) -> None:
    """law: recipients-stay-good."""
    path = tmp_path / "map"
    path.write_text("one\n")
    reports: list[Sequence[str]] = []
    watched = WatchedFiles([str(path)], lambda: read_text(str(path)), reports.append, threads)
    path.unlink()
    os.mkfifo(path)
    try:
        await looking(watched, lambda: reports)
        assert reports == [[f"{path}: cannot be read: it is not a regular file"]]
        assert watched.value == "one\n"
        path.unlink()
        path.write_text("two\n")
        await looking(watched, lambda: watched.value == "two\n")
        assert reports[1:] == [()]
    finally:
        if path.is_fifo():  # a thread that waits for a writer
            os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))


async def test_a_read_that_does_not_end_is_reported_once(tmp_path: Path, threads: ThreadPoolExecutor) -> None:
    path = tmp_path / "map"
    path.write_text("one\n")
    now = 1000.0
    mounted = threading.Event()
    mounted.set()
    begun = threading.Event()

    def read() -> str:
        begun.set()
        mounted.wait()
        return path.read_text()

    reports: list[Sequence[str]] = []
    watched = WatchedFiles([str(path)], read, reports.append, threads, clock=lambda: now)
    mounted.clear()
    begun.clear()
    path.write_text("two, longer\n")
    try:
        await looking(watched, begun.is_set)
        now += READ_S_MAX
        watched.look()
        assert reports == []
        now += 1
        watched.look()
        watched.look()
        fault = (
            f"{path}: reading takes longer than {READ_S_MAX} seconds; no change of these files is noticed until it ends"
        )
        assert reports == [[fault]]
    finally:
        mounted.set()
    await looking(watched, lambda: watched.value == "two, longer\n")
    assert reports == [[fault], ()]
