"""Files that could not be used are read again, also without a change."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mailcore.config.watched_files import QUIET_LOOKS, RETRY_LOOKS, WatchedFiles
from mailcore.rewriting.map_text import MapFault
from tests.eventually import eventually


class Watching:
    """One file, which can be read while its owner may read it and ``refusal`` is empty."""

    def __init__(self, path: Path, threads: ThreadPoolExecutor) -> None:
        self.path = path
        self.refusal = ""
        self.readings = 0
        self.reported: list[Sequence[str]] = []
        self.files = WatchedFiles([str(path)], self._read, self.reported.append, threads)

    def _read(self) -> str:
        self.readings += 1
        if self.refusal or not os.stat(self.path).st_mode & 0o400:
            raise MapFault(self.refusal or "Permission denied")
        return self.path.read_text()

    async def looks(self, count: int) -> None:
        for _ in range(count):
            self.files.look()
            await eventually(lambda: not self.files._reading)


@pytest.fixture
async def watching(tmp_path: Path) -> AsyncIterator[Watching]:
    path = tmp_path / "file"
    path.write_text("one")
    with ThreadPoolExecutor(1) as threads:
        yield Watching(path, threads)


async def test_after_a_chmod_a_file_is_read(watching: Watching) -> None:
    watching.path.write_text("two")
    watching.path.chmod(0)
    await watching.looks(QUIET_LOOKS + 1)
    assert (watching.files.value, watching.reported) == ("one", [["Permission denied"]])
    watching.path.chmod(0o600)
    await watching.looks(QUIET_LOOKS + 1)
    assert (watching.files.value, watching.reported[1:]) == ("two", [()])


async def test_a_file_that_cannot_be_used_is_tried_again_and_reported_once(watching: Watching) -> None:
    watching.refusal = "no"
    watching.path.write_text("two")
    await watching.looks(QUIET_LOOKS + 1 + 2 * RETRY_LOOKS)
    assert watching.readings == 1 + 1 + 2
    assert watching.reported == [["no"]]
    watching.refusal = ""
    await watching.looks(RETRY_LOOKS)
    assert (watching.files.value, watching.reported) == ("two", [["no"], ()])
    await watching.looks(2 * RETRY_LOOKS)
    assert watching.readings == 5


async def test_a_file_that_could_not_be_used_at_the_start_is_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("one")
    path.chmod(0)
    with ThreadPoolExecutor(1) as threads:
        watching = Watching(path, threads)
        assert (watching.files.value, watching.reported) == (None, [["Permission denied"]])
        path.chmod(0o600)
        await watching.looks(RETRY_LOOKS)
        assert (watching.files.value, watching.reported[1:]) == ("one", [()])
