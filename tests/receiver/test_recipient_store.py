"""The receivers' own store sets a damaged file aside, whatever else happens at that moment."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mailcore.receiver import damaged_file
from mailcore.receiver.recipient_store import RecipientStore

GARBAGE = b"not a database" * 1000


class Log:
    def __init__(self) -> None:
        self.failed: list[str] = []
        self.damaged: list[tuple[str, str, str]] = []

    def recipient_store_failed(self, why: str) -> None:
        self.failed.append(why)

    def recipient_store_damaged(self, path: str, aside: str, why: str) -> None:
        self.damaged.append((path, aside, why))


class Stores:
    """Receivers of one home."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "recipients.sqlite3"
        self.aside = directory / "recipients.sqlite3.damaged"
        self.log = Log()
        self._opened: list[RecipientStore] = []

    def opened(self) -> RecipientStore:
        self._opened.append(RecipientStore(self.path.parent, asyncio.get_running_loop(), self.log))
        return self._opened[-1]

    def close(self) -> None:
        for store in self._opened:
            store.close()


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[Stores]:
    (tmp_path / "receiver").mkdir()
    made = Stores(tmp_path / "receiver")
    yield made
    made.close()


def overwrite(path: Path, start: int, end: int) -> None:
    with open(path, "r+b") as file:
        file.seek(start)
        file.write(b"\xff" * (end - start))


def life(directory: Path, number: int) -> subprocess.Popen[str]:
    """A process that writes until there is a file "end"."""
    return subprocess.Popen([sys.executable, "-c", LIFE, directory, str(number)], stdout=subprocess.PIPE, text=True)


async def write(store: RecipientStore, key: str, valid: int = 1) -> bool | None:
    def work(database: sqlite3.Connection) -> bool:
        database.execute("INSERT OR REPLACE INTO verified VALUES (?, ?, 1.0, '')", (key, valid))
        return True

    return await store.run(work)


async def keys(store: RecipientStore) -> list[str] | None:
    return await store.run(lambda database: [key for (key,) in database.execute("SELECT key FROM verified ORDER BY 1")])


async def test_a_damaged_file_is_set_aside_and_a_new_one_is_used_at_once(stores: Stores) -> None:
    stores.path.write_bytes(GARBAGE)
    stores.aside.write_bytes(b"an earlier one")
    store = stores.opened()
    assert await write(store, "a")
    assert await keys(store) == ["a"]
    assert stores.log.damaged == [(str(stores.path), str(stores.aside), "file is not a database")]
    assert stores.log.failed == []
    assert stores.aside.read_bytes() == GARBAGE
    assert sorted(os.listdir(stores.path.parent))[:2] == ["recipients.sqlite3", "recipients.sqlite3-shm"]


async def test_a_file_that_is_damaged_while_it_is_open_is_set_aside(stores: Stores) -> None:
    first, second = stores.opened(), stores.opened()
    assert await write(first, "a")
    assert await keys(second) == ["a"]
    with contextlib.closing(sqlite3.connect(stores.path)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    overwrite(stores.path, 4096, 40_960)
    third = stores.opened()
    assert await write(third, "b")
    assert await write(first, "c")  # whose file is the one set aside
    for store in (first, second, third):
        assert await keys(store) == ["b", "c"]
    assert [why for _, _, why in stores.log.damaged] == ["database disk image is malformed"]
    assert stores.log.failed == []


async def test_of_two_receivers_one_sets_it_aside(stores: Stores) -> None:
    stores.path.write_bytes(GARBAGE)
    several = [stores.opened() for _ in range(4)]
    assert await asyncio.gather(*(write(store, f"{number}") for number, store in enumerate(several))) == [True] * 4
    for store in several:
        assert await keys(store) == ["0", "1", "2", "3"]
    assert len(stores.log.damaged) == 1
    assert stores.log.failed == []


async def test_a_new_file_of_another_receiver_stays(stores: Stores) -> None:
    stores.path.write_bytes(GARBAGE)
    damaged = damaged_file.inode_of(stores.path)
    store = stores.opened()
    assert await write(store, "a")
    assert damaged_file.set_aside(stores.path, damaged) is None
    assert await keys(store) == ["a"]


async def test_a_kill_after_the_renaming_leaves_nothing_that_harms(stores: Stores) -> None:
    """One receiver was killed between the renaming and the removal of the rest; others had the file open."""
    other, fresh = stores.opened(), stores.opened()
    assert await write(other, "old")
    os.rename(stores.path, stores.aside)
    shared = stores.path.with_name("recipients.sqlite3-shm")
    with shared.open("rb") as of_old:  # so that its number is not given out again
        assert await write(fresh, "new")
        assert os.fstat(of_old.fileno()).st_nlink == 0
    assert await write(other, "newer")
    assert await keys(fresh) == await keys(other) == ["new", "newer"]
    assert stores.log.damaged == []
    assert stores.log.failed == []
    with contextlib.closing(sqlite3.connect(stores.path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
async def test_a_directory_that_cannot_be_written_is_a_failure_and_stops_nothing(stores: Stores) -> None:
    stores.path.write_bytes(GARBAGE)
    os.chmod(stores.path.parent, 0o500)
    try:
        assert await write(stores.opened(), "a") is None
    finally:
        os.chmod(stores.path.parent, 0o700)
    assert stores.log.damaged == []
    (why,) = stores.log.failed
    assert "file is not a database, and the file cannot be set aside: Permission denied" in why


async def test_a_file_that_cannot_be_renamed_is_a_failure_and_stops_nothing(stores: Stores) -> None:
    stores.path.write_bytes(GARBAGE)
    (stores.aside / "x").mkdir(parents=True)
    store = stores.opened()
    assert await write(store, "a") is None
    (why,) = stores.log.failed
    assert "file is not a database, and the file cannot be set aside: " in why


async def test_a_lock_that_another_process_keeps_is_waited_for_for_a_bounded_time(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(damaged_file, "LOCK_S", 0.05)
    with damaged_file.locked(stores.path):
        assert await write(stores.opened(), "a") is None
    assert len(stores.log.failed) == 1
    assert await write(stores.opened(), "a")


async def test_refusals_of_an_older_version_are_forgotten_once(stores: Stores) -> None:
    store = stores.opened()
    assert await write(store, "yes")
    assert await write(store, "no", valid=0)
    assert await keys(stores.opened()) == ["no", "yes"]
    with contextlib.closing(sqlite3.connect(stores.path)) as database:
        database.execute("PRAGMA user_version = 0")
    assert await keys(stores.opened()) == ["yes"]
    assert await write(store, "no", valid=0)
    assert await keys(stores.opened()) == ["no", "yes"]


LIFE = """
import asyncio, pathlib, sqlite3, sys
from tests.receiver.test_recipient_store import Log, keys, write
from mailcore.receiver import recipient_store
recipient_store.RETRY_S = 0
async def main():
    log = Log()
    store = recipient_store.RecipientStore(pathlib.Path(sys.argv[1]), asyncio.get_running_loop(), log)
    number = 0
    while not (pathlib.Path(sys.argv[1]) / "end").exists():
        number += 1
        await write(store, f"{sys.argv[2]}-{number}")
    assert await write(store, f"last-{sys.argv[2]}"), log.failed[-3:]
    print(len(log.damaged))
asyncio.run(main())
"""


@pytest.mark.long
async def test_receivers_in_processes_of_their_own_survive_repeated_damage(stores: Stores) -> None:
    processes = [life(stores.path.parent, number) for number in range(3)]
    seen: set[int] = set()
    for _ in range(400):
        await asyncio.sleep(0.05)
        for name in (stores.path, stores.path.with_name(stores.path.name + "-wal")):
            with contextlib.suppress(FileNotFoundError):
                overwrite(name, 64, 40_960)
        seen.add(damaged_file.inode_of(stores.aside))
        if len(seen - {0}) >= 5:
            break
    (stores.path.parent / "end").touch()
    assert sum(int(process.communicate()[0]) for process in processes) >= 5
    assert [process.returncode for process in processes] == [0] * 3
    assert {f"last-{number}" for number in range(3)} <= set(await keys(stores.opened()) or ())
