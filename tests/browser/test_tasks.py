"""The tasks with which the portal is compared with others (docs/portal.md), with the mouse and by the keyboard alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.portal_tasks import DEAD, SECTIONS, WAITING, waypost
from mailcore.lab.lab import Lab
from tests.browser.site import site

CLICKS_MAX = {
    "see what is wrong": 0,
    "find why mail there is late": 0,
    "find why a message is late": 1,
    "change a limit": 3,
    "stop it": 2,
}  # as docs/portal.md says


@pytest.mark.long
async def test_each_task_takes_no_more_than_it_is_said_to_take_and_needs_no_mouse(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, site(tmp_path, lab, SECTIONS, routes={"late.example": DEAD}) as it:
        queue_ids = [await it.core.send(f"r{number}@late.example") for number in range(WAITING)]
        for queue_id in queue_ids:
            await it.core.until_in(queue_id, "retry.")
        rows = await waypost(it, queue_ids[-1])
    for name, row in rows.items():
        by_keys = name.endswith(", by keys")
        assert row["clicks"] <= (0 if by_keys else CLICKS_MAX[name]), name
        assert row["scrolls"] == 0, name
    assert {name.removesuffix(", by keys") for name in rows} == set(CLICKS_MAX)
