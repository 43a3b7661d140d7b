"""A manager that is killed before its lines are written: the next one writes them, and none twice."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest

from mailcore.envelope import Status
from mailcore.manager.manager import Manager
from tests.manager.manager_in_process import Deliverers, Home, turns

FINAL = {Status.DELIVERED: "sent", Status.BOUNCED: "bounced"}


def lines(home: Home) -> list[str]:
    path = home.path / "log" / "mail.log"
    return [line.split("]: ", 1)[1] for line in path.read_text().splitlines()] if path.exists() else []


def objects(home: Home) -> list[dict[str, object]]:
    path = home.path / "log" / "mail.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def ends(home: Home, queue_id: str) -> Counter[str]:
    """How often each of its ends is in mail.log; both files must say the same."""
    found: Counter[str] = Counter()
    for line in lines(home):
        if line == f"{queue_id}: removed":
            found["removed"] += 1
        elif line.startswith(f"{queue_id}: to="):
            found[line.partition("status=")[2].split()[0]] += 1
    said: Counter[str] = Counter()
    for each in objects(home):
        if each.get("queue_id") == queue_id and each["event"] in ("removed", "delivery"):
            said[str(each.get("status", "removed"))] += 1
    assert said == found
    return found


async def settled(home: Home, manager: Manager, queue_id: str, status: Status) -> None:
    """The verdict is synced and the pass has ended; its lines are still in memory."""
    manager.flow.deliverers.clear()
    deliverers = Deliverers(manager)
    await turns(manager, lambda: deliverers.waiting)
    deliverers.answer(lambda number: status)
    await turns(manager, lambda: queue_id not in manager.context.queue.active)
    await manager.context.commit.wait()
    await asyncio.sleep(0)


async def again(home: Home) -> Manager:
    home.kill()
    manager = home.start()
    manager.log.flush()
    return manager


@pytest.mark.parametrize("status", [Status.DELIVERED, Status.DEFERRED])
async def test_what_was_recorded_and_not_logged_is_logged_at_the_next_start(tmp_path: Path, status: Status) -> None:
    home = Home(tmp_path)
    manager = home.start()
    queue_id = home.accept(2)
    await settled(home, manager, queue_id, status)
    assert ends(home, queue_id) == {}, "nothing was written"
    await again(home)
    expected = {"sent": 2, "removed": 1} if status is Status.DELIVERED else {"deferred": 2}
    assert ends(home, queue_id) == expected
    await again(home)
    assert ends(home, queue_id) == expected, "the next start has nothing to add"
    home.kill()


async def test_what_was_logged_is_not_logged_again(tmp_path: Path) -> None:
    home = Home(tmp_path)
    manager = home.start()
    first, second = home.accept(1), home.accept(1)
    await settled(home, manager, second, Status.DELIVERED)
    manager.log.flush()
    third = home.accept(1)
    await settled(home, manager, third, Status.DELIVERED)
    manager.log._syslog.flush(0.0)  # killed between the two files
    await again(home)
    for queue_id in (first, second, third):
        assert ends(home, queue_id) == {"sent": 1, "removed": 1}
    home.kill()


async def test_lines_in_a_log_that_was_rotated_count(tmp_path: Path) -> None:
    home = Home(tmp_path)
    manager = home.start()
    queue_id = home.accept(1)
    await settled(home, manager, queue_id, Status.DELIVERED)
    manager.log.flush()
    for name in ("mail.log", "mail.jsonl"):
        (tmp_path / "log" / name).rename(tmp_path / "log" / f"{name}.1")
    await again(home)
    assert ends(home, queue_id) == {}
    home.kill()


async def test_below_the_positions_everything_is_logged(tmp_path: Path) -> None:
    home = Home(tmp_path)
    manager = home.start()
    queue_id = home.accept(1)
    await settled(home, manager, queue_id, Status.DELIVERED)
    await manager._checkpoint()
    assert ends(home, queue_id) == {"sent": 1, "removed": 1}
    home.kill()
