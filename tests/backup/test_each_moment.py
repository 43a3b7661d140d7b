"""A backup at each call of a history in which data is carried and referred to, while messages are held and deleted.

The history goes on behind the moment, so data is let go, marked and deleted before the first byte is copied. Each copy is
started, killed and started again; nothing of it is delivered before it is released, and everything is there, byte for byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from mailcore.backup.snapshot import Snapshot
from mailcore.config.queue import Queue
from mailcore.manager.manager import Manager
from mailcore.queue.lanes import DELETED, HOLD
from tests.backup.queue_history import History, close_below, data_of
from tests.backup.test_snapshot import checkpoint, copied, damaged_in, order
from tests.manager.manager_in_process import Deliverers, Home, read_data, turns
from tests.manager.test_carrying import at_rest
from tests.queue.outside_memory import OutsideMemory
from tests.queue.simulated_machine import UNDO_S

REFER = Queue(
    segment_bytes=1 << 20, reserve_bytes=1 << 20, carry_limit=1000, refer_deferred=True, retry_ladder_s=(300,)
)

WHOLE = 1 << 30  # calls: more than the history has


@dataclass
class Copy:
    """A queue as a restore leaves it, and what everybody outside knew at the moment of its backup."""

    path: Path
    change: int
    outside: OutsideMemory

    @property
    def needed(self) -> set[str]:
        """Messages that were acknowledged, that no next hop was given, and that can be undeleted if they are deleted."""
        outside = self.outside
        gone = {each for each in self.possible if outside.arrived[each, 0] or outside.may_be_gone(each, 0, UNDO_S)}
        return self.possible - gone

    @property
    def possible(self) -> set[str]:
        """Messages that may be there: of those on their way, in or out, a crash may leave either."""
        outside = self.outside
        return {each for each in (*outside.accepted, *outside.maybe) if (each, 0) not in outside.synced} - outside.maybe


def copies(tmp_path: Path, patched: pytest.MonkeyPatch, first: int, gap: int) -> list[Copy]:
    """Lives the history once. From call ``first`` on a backup is taken; ``gap`` calls later it is copied, and another taken.

    The last one is copied when the history is over.
    """
    history = History(tmp_path / "live", patched)
    disk, outside = history.disk, history.outside
    found: list[Copy] = []
    snapshot: Snapshot | None = None

    def finish() -> None:
        nonlocal snapshot
        if snapshot is not None:
            copied(snapshot, found[-1].path)
            snapshot = None

    def look() -> None:
        nonlocal snapshot
        if snapshot is None or disk.changes - found[-1].change >= gap:
            if disk.changes < first:
                return
            finish()
            found.append(Copy(tmp_path / f"copy{disk.changes}", disk.changes, outside.copy()))
            snapshot = Snapshot(str(tmp_path / "live/queue"), str(tmp_path / "live/spool"))
            snapshot.take()
            for directory in ("queue", "spool"):
                (found[-1].path / directory).mkdir(parents=True)

    disk.on_change = look
    history.live()
    disk.on_change = lambda: None
    finish()
    return found


async def started(copy: Home) -> tuple[Manager, Deliverers]:
    """Everything that is not deleted is held, and the positions are written."""
    manager = copy.start(queue=REFER)
    manager.context.checkpoints.keeper = None  # nothing is exported
    deliverers = Deliverers(manager)

    def none_moves() -> bool:
        queue = manager.context.queue
        return (
            not queue.active
            and not queue.recovered
            and all(
                runner.position >= runner.readable_end
                for lane, runner in queue.runners.items()
                if lane not in (HOLD, DELETED)
            )
        )

    await turns(manager, none_moves)
    await checkpoint(manager)
    await turns(manager, none_moves)
    await checkpoint(manager)
    assert not deliverers.waiting, "mail of a backup was given to a deliverer before it was released"
    return manager, deliverers


def found_in(manager: Manager, lane: str) -> dict[str, int]:
    if lane not in manager.context.queue.runners:
        return {}
    return {envelope.queue_id: offset for offset, envelope in at_rest(manager, lane)}


async def check(copy: Copy) -> None:
    home = Home(copy.path)
    try:
        manager, _ = await started(home)
        held, deleted = found_in(manager, HOLD), found_in(manager, DELETED)
        assert not held.keys() & deleted.keys()
        assert copy.needed <= held.keys() | deleted.keys() <= copy.possible, f"at call {copy.change}"
        await looked(manager)
        home.kill()
        manager, _ = await started(home)
        assert (found_in(manager, HOLD).keys(), found_in(manager, DELETED).keys()) == (held.keys(), deleted.keys())
        for queue_id, offset in found_in(manager, DELETED).items():
            await order(manager, "undelete", queue_id, DELETED, offset)
        await checkpoint(manager)
        home.kill()
        manager, deliverers = await started(home)
        assert found_in(manager, HOLD).keys() == held.keys() | deleted.keys(), "what was undeleted is held"
        for queue_id, offset in found_in(manager, HOLD).items():
            await order(manager, "release", queue_id, HOLD, offset)
        await delivered(manager, deliverers, held.keys() | deleted.keys())
        assert not damaged_in(copy.path)
        await emptied(manager, copy.path)
    finally:
        home.kill()


async def check_all(tmp_path: Path, patched: pytest.MonkeyPatch, first: int, gap: int) -> None:
    found = copies(tmp_path, patched, first, gap)
    close_below(tmp_path)
    for copy in found:
        await check(copy)
        close_below(copy.path)


async def delivered(manager: Manager, deliverers: Deliverers, queue_ids: set[str]) -> None:
    given: list[str] = []

    def answer() -> None:
        for entry in deliverers.waiting:
            given.append(entry.queue_id)
            assert read_data(entry) == data_of(entry.queue_id), f"the data of {entry.queue_id} is another"
        deliverers.answer()

    await turns(manager, lambda: not manager.context.queue.sizes.summary().messages, answer)
    assert sorted(given) == sorted(queue_ids)


def retired(path: Path) -> list[Path]:
    return list(path.glob("queue/*/*.data"))


async def looked(manager: Manager) -> None:
    """Retired segments are looked through, and deleted if nothing in them is needed."""
    manager.context.now = lambda: 1e9
    for _ in range(4):
        await manager.housekeeping._delete_retired()
        await checkpoint(manager)


async def emptied(manager: Manager, path: Path) -> None:
    """Nothing is left of data that no message needs."""
    await looked(manager)
    assert retired(path) == []


@pytest.mark.parametrize(("first", "gap"), [(1, 10), (4, 50), *((first, WHOLE) for first in (60, 85, 110, 165, 200))])
async def test_every_message_of_a_backup_is_there_and_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int, gap: int
) -> None:
    await check_all(tmp_path, monkeypatch, first, gap)


@pytest.mark.long
@pytest.mark.parametrize("gap", [1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144])
async def test_every_message_of_each_backup_is_there_and_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gap: int
) -> None:
    for first in range(1, gap + 1, 10):
        below = tmp_path / str(first)
        below.mkdir()
        await check_all(below, monkeypatch, first, gap)


@pytest.mark.long
@pytest.mark.parametrize("first", range(1, 231))
async def test_every_message_of_a_backup_is_there_however_long_it_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    await check_all(tmp_path, monkeypatch, first, WHOLE)


def test_the_history_has_all_that_a_backup_must_keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some backup has data in retired segments of several lanes, in the spool, and of deleted messages."""
    found = copies(tmp_path, monkeypatch, 1, 5)
    close_below(tmp_path)
    assert len(found) > 40
    assert max(len(retired(copy.path)) for copy in found) > 1
    assert any(list(copy.path.glob("spool/??/*")) for copy in found)
    assert any(list(copy.path.glob("queue/deleted/*.seg")) for copy in found)
    assert max(len(copy.needed) for copy in found) > 4
