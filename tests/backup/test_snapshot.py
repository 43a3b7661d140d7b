"""A snapshot of the queue is a crash at one moment: on a home whose manager the test drives, turn by turn."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from mailcore.backup.queue_files import mend_queue
from mailcore.backup.snapshot import LINKS, Snapshot, SnapshotFailed
from mailcore.config.settings import Scheduler
from mailcore.envelope import Status
from mailcore.faults import Code
from mailcore.frames import Request
from mailcore.log.positions import RestartPositions
from mailcore.manager.manager import Manager
from mailcore.manager.orders import Orders
from mailcore.queue.lanes import HOLD
from mailcore.queue.records import decode_envelope
from tests.manager.manager_in_process import INCOMING, Deliverers, Home, turns

MESSAGES = 30


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    (tmp_path / "live").mkdir()
    made = Home(tmp_path / "live")
    yield made
    made.kill()


def snapshot_of(home: Home) -> Snapshot:
    return Snapshot(str(home.path / "queue"), str(home.path / "spool"))


def copied(snapshot: Snapshot, into: Path) -> None:
    """What an archive would hold, put where a restore would."""
    for each in snapshot.files():
        path = into / each.name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = Path(each.path).read_bytes()
        path.write_bytes(data if each.size is None else data[: each.size])
    positions = snapshot.positions
    told = {
        "positions": None if positions is None else msgspec.msgpack.encode(positions).hex(),
        "ends": snapshot.ends(),
        "taken": snapshot.being_taken(),
        "younger": snapshot.younger(),
        "retained": snapshot.retained(),
    }
    mend_queue(into / "queue", told, 1_795_000_000.0, 1_795_000_100.0)
    snapshot.drop()


def resting(manager: Manager, lane: str) -> int:
    return int(manager.context.queue.sizes.resting.get(lane, [0, 0])[0])


async def everything(manager: Manager, deliverers: Deliverers) -> None:
    """Delivers until nothing is left to do, and lets three checkpoints mark and delete."""
    await turns(manager, lambda: not manager.context.queue.sizes.summary().messages, deliverers.answer)
    for _ in range(3):
        await checkpoint(manager)


async def checkpoint(manager: Manager) -> None:
    manager.context.checkpoint_waiters.append(manager.loop.create_future())
    await manager._checkpoint()


async def order(manager: Manager, operation: str, queue_id: str, lane: str, offset: int) -> None:
    """As an operator's, answered."""
    request = Request(1, operation, {"messages": [[queue_id, lane, offset]]}, "somebody", "")
    task = manager.loop.create_task(Orders.change(manager.orders, request))

    async def checkpoints() -> None:
        while manager.context.checkpoint_waiters:
            await manager._checkpoint()

    while not task.done():
        await turns(manager, lambda: task.done() or manager.context.checkpoint_waiters)
        await checkpoints()
    assert (task.result().changed, task.result().errors) == (1, {})


def damaged_in(path: Path) -> list[Path]:
    return list(path.glob("queue/*/*.damaged"))


async def held_after_a_start(path: Path, expected: int) -> Manager:
    """Of the copy; nothing may be given to a deliverer."""
    copy = Home(path)
    manager = copy.start()
    deliverers = Deliverers(manager)
    try:
        await turns(manager, lambda: resting(manager, HOLD) >= expected)
        await turns(manager, lambda: not manager.context.queue.active)
        assert not deliverers.waiting
        assert resting(manager, HOLD) == expected
        assert manager.context.queue.sizes.summary().messages == expected
        assert not damaged_in(path)
    finally:
        copy.kill()
        copy.writer.close()
    return manager


async def test_what_is_delivered_while_the_queue_is_copied_is_in_the_backup(home: Home, tmp_path: Path) -> None:
    """The marks of it are made, its segments deleted, before the first byte is read. Most of it was not taken up before."""
    manager = home.start(Scheduler(message_active_limit=3))
    deliverers = Deliverers(manager, capacity=3)
    for _ in range(MESSAGES):
        home.accept(1)
    await turns(manager, lambda: len(deliverers.waiting) == 3)
    await checkpoint(manager)
    snapshot = snapshot_of(home)
    snapshot.take()
    deliverers.link.capacity = 100
    await everything(manager, deliverers)
    copied(snapshot, tmp_path / "copy")
    await held_after_a_start(tmp_path / "copy", MESSAGES)
    assert not list(home.path.glob(f"*/{LINKS}"))


async def test_what_was_finished_or_deleted_before_does_not_come_back(home: Home, tmp_path: Path) -> None:
    """From the middle of the hold lane: only marks say so, the lane's position never passes the message in front."""
    manager = home.start()
    deliverers = Deliverers(manager)
    for _ in range(4):
        home.accept(1)
    await turns(manager, lambda: len(deliverers.waiting) == 4)
    deliverers.answer(lambda number: Status.DEFERRED)
    await turns(manager, lambda: resting(manager, "retry.300") == 4)
    await checkpoint(manager)
    for item in await _resting_in(manager, "retry.300"):
        await order(manager, "hold", *item)
    held = await _resting_in(manager, HOLD)
    assert len(held) == 4
    await order(manager, "release", *held[1])
    await everything_but(manager, deliverers, 3)
    snapshot = snapshot_of(home)
    snapshot.take()
    copied(snapshot, tmp_path / "copy")
    await held_after_a_start(tmp_path / "copy", 3)


async def everything_but(manager: Manager, deliverers: Deliverers, left: int) -> None:
    await turns(manager, lambda: manager.context.queue.sizes.summary().messages == left, deliverers.answer)
    for _ in range(3):
        await checkpoint(manager)


async def _resting_in(manager: Manager, lane: str) -> list[tuple[str, str, int]]:
    runner = manager.context.queue.runners[lane]
    reader = manager.context.queue.reader(lane)
    reader.refresh()
    records = [record for record in reader.records(0, runner.readable_end) if record.live and record.type == 1]
    return [(decode_envelope(record.body).queue_id, lane, record.offset) for record in records]


async def test_released_before_the_backup_and_not_yet_put_elsewhere_it_is_held_again(
    home: Home, tmp_path: Path
) -> None:
    manager = home.start()
    deliverers = Deliverers(manager)
    home.accept(1)
    await turns(manager, lambda: deliverers.waiting)
    deliverers.answer(lambda number: Status.DEFERRED)
    await turns(manager, lambda: resting(manager, "retry.300") == 1)
    await checkpoint(manager)
    (item,) = await _resting_in(manager, "retry.300")
    await order(manager, "hold", *item)
    (item,) = await _resting_in(manager, HOLD)
    journal = manager.context.queue.journal
    before = journal.end
    task = manager.loop.create_task(
        manager.orders.change(Request(1, "release", {"messages": [list(item)]}, "somebody", ""))
    )
    await turns(manager, lambda: before < journal.end == journal.durable)
    snapshot = snapshot_of(home)
    snapshot.take()  # no checkpoint has covered where the release put it
    assert snapshot.being_taken() == {item[0]: 2}
    copied(snapshot, tmp_path / "copy")
    task.cancel()
    await held_after_a_start(tmp_path / "copy", 1)


async def test_nothing_is_done_with_a_message_that_is_about_to_be_held(home: Home, tmp_path: Path) -> None:
    """A retry, say, would put it where nothing says any more that it came out of a backup."""
    home.start()
    home.accept(1)
    snapshot = snapshot_of(home)
    snapshot.take()
    copied(snapshot, tmp_path / "copy")
    copy = Home(tmp_path / "copy")
    manager = copy.start()
    (item,) = await _resting_in(manager, INCOMING)
    answer = await manager.orders.change(Request(1, "retry", {"messages": [list(item)]}, "somebody", ""))
    assert answer.changed == 0
    assert answer.errors[item[0]].code is Code.BUSY
    copy.kill()
    copy.writer.close()


async def test_positions_that_are_not_kept_any_more_are_read_anew(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.start()
    home.accept(1)
    snapshot = snapshot_of(home)
    answers = iter([False, False, True])
    asked: list[int] = []

    def are_kept(self: Snapshot, positions: RestartPositions) -> bool:
        asked.append(positions.sequence)
        return next(answers)

    monkeypatch.setattr(Snapshot, "_are_kept", are_kept)
    snapshot.take()
    assert len(asked) == 3
    snapshot.drop()
    monkeypatch.setattr(Snapshot, "_are_kept", lambda self, positions: False)
    with pytest.raises(SnapshotFailed, match="deleted faster"):
        snapshot.take()
    snapshot.drop()
    assert not list(home.path.glob(f"*/{LINKS}"))


async def test_a_journal_that_is_gone_before_it_is_read_fails_the_backup(home: Home) -> None:
    """Whoever can't tell which marks are too young must not say that the copy is whole."""
    manager = home.start()
    deliverers = Deliverers(manager)
    home.accept(1)
    snapshot = snapshot_of(home)
    snapshot.take()
    await everything(manager, deliverers)
    for segment in (home.path / "queue" / "journal").glob("*.seg"):
        segment.rename(segment.with_name(f"{int(segment.stem) + (1 << 30):020}.seg"))
    with pytest.raises(SnapshotFailed, match="try again"):
        snapshot.younger()
    snapshot.drop()


async def test_two_backups_at_once_are_one(home: Home) -> None:
    home.start()
    first, second = snapshot_of(home), snapshot_of(home)
    first.take()
    with pytest.raises(SnapshotFailed, match="another backup"):
        second.take()
    second.drop()
    assert list(home.path.glob(f"queue/{LINKS}/*")), "the links of the first are still there"
    first.drop()


async def test_what_a_killed_backup_left_is_taken_away(home: Home) -> None:
    home.start()
    home.accept(1)
    left = home.path / "queue" / LINKS / INCOMING / "00000000000000009999.seg"
    left.parent.mkdir(parents=True)
    left.touch()
    snapshot = snapshot_of(home)
    snapshot.take()
    assert not left.exists()
    snapshot.drop()
