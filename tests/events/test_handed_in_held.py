"""Mail that is handed in to be held is accepted once, and queued until it is released: the events add up all the time."""

from __future__ import annotations

from pathlib import Path

from mailcore.lab.lab import Lab
from tests.events.test_end_to_end import QUICK, balanced
from tests.running.running_core import running


async def test_what_is_handed_in_held_is_counted_from_its_arrival_to_its_end(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab, QUICK) as core:
        to = ["a@example.org", "b@example.org"]
        await core.ask("inject_begin", sender="s@example.org", recipients=to, age_s=3600.0, held_because="as it was")
        await core.ask("inject_data", data=b"Subject: x\r\n\r\nx\r\n")
        queue_id = (await core.ask("inject_end"))["queue_id"]
        await core.inject("c@example.org")
        await core.until_in(queue_id, "hold")
        await core.kill("manager")
        assert (await balanced(core))["delivered"] <= 1
        await core.order("release", queue_id)
        await core.until_empty()
        assert await balanced(core) == {"delivered": 3}
