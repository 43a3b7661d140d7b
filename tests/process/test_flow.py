"""Mail comes into the active set from all lanes in turn."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mailcore.envelope import Status
from mailcore.queue.active import Active
from mailcore.settings import Scheduler
from tests.process.manager_home import Deliverers, Home, turns

EACH = 250  # more than are brought in in one turn


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    home = Home(tmp_path)
    yield home
    home.kill()


async def test_new_and_deferred_mail_alternate_into_the_active_set(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seed 000 decides over 002 here: a backlog that comes due must not keep new mail waiting, nor the other way round."""
    manager = home.start(Scheduler(minimal_backoff_time=1.0), ladder_s=(1,))
    deliverers = Deliverers(manager)
    for _ in range(EACH):
        home.accept(1)
    await turns(
        manager,
        lambda: manager.core.counters.get("replaced") == EACH,
        lambda: deliverers.answer(lambda number: Status.DEFERRED),
    )
    deliverers.link.capacity = 0  # from now on everything stays in the active set
    entered: list[int] = []
    enter = manager.flow.admission.enter

    def noted(active: Active, now: float) -> None:
        entered.append(active.envelope.generation)
        enter(active, now)

    monkeypatch.setattr(manager.flow.admission, "enter", noted)
    await manager.core.commit.wait()
    manager._turn_scheduled = True  # nothing is brought in while the stage is set
    await manager._checkpoint()
    for _ in range(EACH):
        home.accept(1)
    wall, now = manager.core.wall, manager.core.now
    manager.core.wall = lambda: wall() + 5
    manager.core.now = lambda: now() + 5
    manager._turn_scheduled = False
    manager.go_on()
    await turns(manager, lambda: len(entered) == 2 * EACH)
    assert all(one != other for one, other in itertools.pairwise(entered))
    assert sum(entered) == EACH
