"""The start reports damaged restart positions once, with what it read instead."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mailcore.envelope import Status
from mailcore.manager.manager import Manager
from tests.manager.manager_in_process import Deliverers, Home, turns


def told(home: Home) -> list[dict[str, object]]:
    lines = (home.path / "log" / "mail.jsonl").read_text().splitlines()
    return [each for each in map(json.loads, lines) if each["event"] == "positions_damaged"]


async def started_again(home: Home) -> Manager:
    home.kill()
    manager = home.start()
    manager.go_on()
    manager.log.flush()
    return manager


@pytest.mark.parametrize("names", [("restart",), ("restart.previous",), ("restart", "restart.previous")])
@pytest.mark.parametrize("damage", ["a flipped byte", "cut off"])
async def test_they_are_told_once_and_no_mail_is_lost(tmp_path: Path, names: tuple[str, ...], damage: str) -> None:
    home = Home(tmp_path)
    manager = home.start()
    queue_id = home.accept(1)
    await turns(manager, lambda: queue_id in manager.context.queue.active)
    for _ in range(2):
        await manager.context.commit.wait()
        await manager._checkpoint()
    for name in names:
        path = tmp_path / "queue" / name
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data if damage == "a flipped byte" else data[: len(data) // 2])
    manager = await started_again(home)
    (line,) = told(home)
    assert line["files"] == [str(tmp_path / "queue" / name) for name in names]
    assert isinstance(line["journal_bytes"], int)
    assert "restart positions damaged" in (tmp_path / "log" / "mail.log").read_text()
    await turns(manager, lambda: queue_id in manager.context.queue.active)
    await manager.context.commit.wait()
    await manager._checkpoint()
    await started_again(home)
    assert len(told(home)) == 1, "a checkpoint later both are whole again"
    home.kill()


@pytest.mark.parametrize(
    ("names", "note"),
    [
        (("restart.previous",), ""),
        (("restart",), "restart positions were damaged"),
        (("restart", "restart.previous"), "the restart positions were lost"),
    ],
)
async def test_the_balance_continues_from_the_current_positions(
    tmp_path: Path, names: tuple[str, ...], note: str
) -> None:
    """The current ones are the newest and have all counts."""
    home = Home(tmp_path)
    manager = home.start()
    deliverers = Deliverers(manager)
    home.accept(3)
    home.accept(2)
    await turns(manager, lambda: deliverers.waiting)
    deliverers.answer(lambda number: Status.DELIVERED if number < 2 else Status.DEFERRED)
    await turns(manager, lambda: manager.context.queue.sizes.resting.get("retry.300"))
    for _ in range(2):
        await manager.context.commit.wait()
        await manager._checkpoint()
    before = manager.state.state({})
    assert before.balance.recipients["delivered"] == 4
    for name in names:
        path = tmp_path / "queue" / name
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    after = (await started_again(home)).state.state({})
    assert after.counted_note == note
    assert after.balance.recipients["difference"] == after.balance.messages["difference"] == 0
    if note:
        assert after.counted_since > before.counted_since
        assert (after.balance.recipients["queued_at_start"], after.balance.recipients["delivered"]) == (1, 0)
    else:
        assert after.counted_since == before.counted_since
        assert after.balance == before.balance
    home.kill()
