"""A snapshot has the data that waiting messages refer to, although it is let go and deleted while it is copied."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mailcore.backup.snapshot import Snapshot
from mailcore.config.queue import Queue
from mailcore.envelope import DataPlace, Status
from mailcore.log.record import MARK_AT, RETAINED
from mailcore.log.segment import FIRST_RECORD
from mailcore.manager.manager import Manager
from tests.backup.test_snapshot import checkpoint, copied, everything, held_after_a_start, order, resting, snapshot_of
from tests.manager.manager_in_process import DATA, INCOMING, Deliverers, Home, turns
from tests.manager.test_carrying import at_rest

REFER = Queue(
    segment_bytes=1 << 20, retry_ladder_s=(300, 600), reserve_bytes=0, carry_limit=len(DATA) - 1, refer_deferred=True
)
RETRY = "retry.300"


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    (tmp_path / "live").mkdir()
    home = Home(tmp_path / "live")
    home.writer.segment_bytes = 3 * len(DATA)
    yield home
    home.kill()


def segments(home: Path, kind: str) -> list[Path]:
    return sorted((home / "queue" / INCOMING).glob(f"*.{kind}"))


async def waiting(home: Home, others: int) -> tuple[Manager, Deliverers]:
    """One message waits, the data in the first segment; others behind it were delivered."""
    manager = home.start(queue=REFER)
    manager.context.checkpoints.keeper = None  # nothing is exported
    deliverers = Deliverers(manager)
    home.accept(1)
    await turns(manager, lambda: deliverers.waiting)
    deliverers.answer(lambda _: Status.DEFERRED)
    await turns(manager, lambda: resting(manager, RETRY) == 1)
    await checkpoint(manager)
    for _ in range(others):
        home.accept(1)
    finished = manager.context.counters.get("finished", 0) + others
    await turns(manager, lambda: manager.context.counters.get("finished", 0) == finished, deliverers.answer)
    ((_, envelope),) = at_rest(manager, RETRY)
    assert envelope.data is DataPlace.LOG
    return manager, deliverers


async def delivered(manager: Manager, deliverers: Deliverers) -> None:
    """The message that waits is delivered, and its data deleted."""
    ((offset, envelope),) = at_rest(manager, RETRY)
    await order(manager, "retry", envelope.queue_id, RETRY, offset)
    await everything(manager, deliverers)
    manager.context.now = lambda: 1e9
    for _ in range(3):
        await manager.housekeeping._delete_retired()
        await checkpoint(manager)


async def has_its_data(path: Path) -> None:
    await held_after_a_start(path, 1)
    (file,) = (path / "spool").glob("??/*")
    assert DATA in file.read_bytes()


@pytest.mark.parametrize("checkpoints", [0, 1, 2, 4], ids=lambda number: f"after {number}")
async def test_data_that_is_let_go_while_the_queue_is_copied_is_in_the_backup(
    home: Home, tmp_path: Path, checkpoints: int
) -> None:
    manager, deliverers = await waiting(home, 6)
    for _ in range(checkpoints):
        await checkpoint(manager)
    assert bool(segments(home.path, "data")) == (checkpoints >= 2)
    snapshot: Snapshot = snapshot_of(home)
    snapshot.take()
    await delivered(manager, deliverers)
    assert not segments(home.path, "data")
    copied(snapshot, tmp_path / "copy")
    (first,) = [
        path for path in (tmp_path / "copy" / "queue" / INCOMING).glob("0" * 20 + ".*") if path.suffix != ".idx"
    ]
    assert first.read_bytes()[FIRST_RECORD + MARK_AT] == RETAINED, "it was let go after the moment of the snapshot"
    await has_its_data(tmp_path / "copy")


async def test_a_retired_segment_without_needed_data_is_not_copied(home: Home, tmp_path: Path) -> None:
    manager, deliverers = await waiting(home, 6)
    for _ in range(4):
        await checkpoint(manager)
    ((offset, envelope),) = at_rest(manager, RETRY)
    await order(manager, "retry", envelope.queue_id, RETRY, offset)
    await everything(manager, deliverers)
    assert segments(home.path, "data")
    snapshot = snapshot_of(home)
    snapshot.take()
    copied(snapshot, tmp_path / "copy")
    assert not segments(tmp_path / "copy", "data")
