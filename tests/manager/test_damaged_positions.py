"""The start reports damaged restart positions once, with what it read instead."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mailcore.manager.manager import Manager
from tests.manager.manager_in_process import Home, turns


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
