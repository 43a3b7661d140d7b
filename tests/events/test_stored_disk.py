"""Event files that a store keeps: whenever a node is gone with its disk, the next one has each event once.

Proves law: events-stored-first (docs/laws.md).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from mailcore.events.write.retention import remove_old
from mailcore.events.write.stored_disk import PIECE_BYTES, StoredDisk, part_of
from mailcore.log.disk import Disk
from mailcore.nodes.kept import EXPORTED_POSITIONS, is_of_events
from mailcore.queue.exported import EXPORTED, read_exported
from mailcore.supervisor.pulse import Beats
from tests.events.lanes import DAY, Lanes
from tests.events.reading import incoming, rows
from tests.events.test_export import fill
from tests.queue.memory_store import MemoryStore


class Gone(Exception):
    """The node, with its disk."""


class EventStore(MemoryStore):
    """``dies_at``: the number of the commit in front of which, or behind which, the node goes."""

    def __init__(self, base: Path) -> None:
        super().__init__()
        self.base = str(base)
        self.dies_at = -1
        self.calls = 0
        self.on_commit = self._look
        self.opened = 0

    def _look(self, behind: bool) -> None:
        self.calls += 1
        if self.calls - 1 == self.dies_at:
            raise Gone

    def name(self, path: str) -> str:
        return os.path.relpath(path, self.base)

    def open(self) -> MemoryStore:
        self.opened += 1
        return self


@pytest.fixture
def lanes(tmp_path: Path) -> Iterator[Lanes]:
    lanes = Lanes(tmp_path, 4_700)
    yield lanes
    lanes.close()


def disk_of(lanes: Lanes, store: EventStore) -> StoredDisk:
    return StoredDisk(Beats(), str(lanes.events), store.open)


def local(lanes: Lanes) -> dict[str, bytes]:
    names = (path for path in lanes.events.rglob("*") if path.is_file())
    found = {str(path.relative_to(lanes.events)): path.read_bytes() for path in names}
    return {name: data for name, data in found.items() if is_of_events(name)}


def named(store: EventStore) -> dict[str, bytes]:
    return {name: bytes(data) for name, data in store.files.items() if is_of_events(name)}


def on_a_new_node(lanes: Lanes, store: EventStore) -> None:
    """Its disk has what the store has under complete names."""
    shutil.rmtree(lanes.events)
    for name, data in named(store).items():
        (lanes.events / name).parent.mkdir(parents=True, exist_ok=True)
        (lanes.events / name).write_bytes(data)


def test_the_store_has_what_is_here(lanes: Lanes) -> None:
    fill(lanes, 1, 6)
    lanes.covered()
    store = EventStore(lanes.events)
    lanes.run(disk_of(lanes, store), everything=True)
    assert len(named(store)) > 4
    assert named(store) == local(lanes)
    assert all(map(is_of_events, store.files)), "a part of a file is left"
    assert store.opened == 1


def test_whenever_a_node_goes_the_next_has_each_event_once(lanes: Lanes) -> None:
    fill(lanes, 1, 4)
    lanes.covered()
    whole = EventStore(lanes.events)
    lanes.run(disk_of(lanes, whole), everything=True)
    wanted = incoming(rows(lanes.events))
    calls = 0
    for calls in range(whole.calls):
        shutil.rmtree(lanes.events)
        store = EventStore(lanes.events)
        store.dies_at = calls
        with pytest.raises(Gone):
            lanes.run(disk_of(lanes, store), everything=True)
        here, there = local(lanes), named(store)
        assert here.keys() <= there.keys(), "something has its name here and not in the store"
        assert all(here[name] == there[name] for name in here if name != EXPORTED_POSITIONS)
        positions = read_exported(Disk(), str(lanes.events / EXPORTED))
        on_a_new_node(lanes, store)
        again = read_exported(Disk(), str(lanes.events / EXPORTED))
        for lane, at in (positions.lanes if positions is not None else {}).items():
            assert again is not None
            assert again.lanes[lane].at >= at.at
        lanes.run(disk_of(lanes, store), everything=True)
        assert incoming(rows(lanes.events)) == wanted, f"gone at call {calls}"
        assert named(store) == local(lanes)
        assert all(map(is_of_events, store.files)), "a part of a file is left"
    assert calls > 20


def test_what_the_store_refuses_has_no_name_here(lanes: Lanes) -> None:
    fill(lanes, 1, 2)
    lanes.covered()
    store = EventStore(lanes.events)
    store.refused = 1
    with pytest.raises(OSError, match="No space"):
        lanes.run(disk_of(lanes, store), everything=True)
    assert local(lanes) == {}
    lanes.run(disk_of(lanes, store), everything=True)
    assert named(store) == local(lanes) != {}


def test_a_big_file_goes_in_pieces_and_replaces_the_one_before(lanes: Lanes) -> None:
    store = EventStore(lanes.events)
    disk = disk_of(lanes, store)
    (lanes.events / "dt=2026-11-21").mkdir(parents=True)
    path = str(lanes.events / "dt=2026-11-21/journal.0.parquet")
    for content in (bytes(3 * PIECE_BYTES + 7), b"x" * (2 * PIECE_BYTES), b"", b"y"):
        Disk().write_whole(f"{path}.full", content)
        disk.replace(f"{path}.full", path)
        assert named(store) == local(lanes) == {"dt=2026-11-21/journal.0.parquet": content}
    assert store.commits == (4 + 1) + (2 + 1) + 2 + (1 + 1)


def test_old_days_leave_the_store_first(lanes: Lanes) -> None:
    fill(lanes, 1, 3)
    lanes.covered()
    store = EventStore(lanes.events)
    disk = disk_of(lanes, store)
    lanes.run(disk, everything=True)
    disk.is_identified = lambda path: True  # type: ignore[method-assign]
    store.dies_at = store.calls
    with pytest.raises(Gone):
        remove_old(disk, str(lanes.events), DAY + 9 * 86_400, 3)
    assert named(store) == local(lanes)
    remove_old(disk, str(lanes.events), DAY + 9 * 86_400, 3)
    assert set(named(store)) == set(local(lanes)) == {EXPORTED_POSITIONS}


@pytest.mark.parametrize(
    ("name", "is_kept"),
    [
        ("dt=2026-11-21/incoming.0.4096.parquet", True),
        ("dt=2026-11-21/.incoming.0.4096.parquet", False),
        ("dt=2026-11-21/incoming.0.4096.parquet.new", False),
        ("cuts/2026-11-21T000000Z.json", True),
        ("cuts/2026-11-21T000000Z.ids.jsonl", True),
        ("cuts/2026-11-21T000000Z.json.new", False),
        ("_exported/positions.json", True),
        ("_exported/lock", False),
        ("_aside-20261121T000000/dt=2026-11-21/incoming.0.4096.parquet", False),
        ("identity", False),
    ],
)
def test_a_file_of_events_is_kept_by_its_name(name: str, is_kept: bool) -> None:
    assert is_of_events(name) is is_kept
    assert not is_of_events(part_of(name))
