"""What a dry run counts and what the manager changes are the same, for every change and every state at rest."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec

from mailcore.change_rules import refusal
from mailcore.control.protocol.changes import CHANGES
from mailcore.faults import Code, Fault
from mailcore.lab.lab import Lab
from mailcore.queue.lanes import state_in
from tests.running.running_core import Sections, running

LONG: Sections = {
    "queue": {"retry_ladder_s": [60]},
    "scheduler": {"minimal_backoff_time": 60, "maximal_backoff_time": 60},
}
MORE: dict[str, dict[str, Any]] = {
    "delay": {"until": time.time() + 86_400},  # the tests may run an hour after this line
    "reroute": {"route": "smtp:[127.0.0.1]:1"},
}
LANES = ("retry.60", "hold", "deleted")


async def test_a_dry_run_counts_what_the_manager_changes(tmp_path: Path) -> None:
    async with Lab(["reject(1, 451):127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as core:
        for lane in LANES:
            for change in CHANGES:
                sender = f"{change}.{lane}@sender.example"
                queue_id = await core.send("a@example.org", sender=sender)
                await core.until_in(queue_id, "retry.60")
                if lane != "retry.60":
                    await core.order({"hold": "hold", "deleted": "delete"}[lane], queue_id)
                item = await core.until_in(queue_id, lane, deleted=lane == "deleted")
                more = MORE.get(change, {})
                given = {"change": change, "filter": {"sender": sender, "lane": lane}, **more}
                counted = await core.ask("change_matching", dry_run=True, **given)
                shown = await core.ask("show", queue_id=queue_id, recipients=False)
                place = [[queue_id, item["lane"], item["offset"]]]
                answer = await core.ask(change, messages=place, **more)
                why = refusal(change, state_in(lane))
                assert (change in shown["changes"]) == (not why), change
                assert (counted["matched"], answer["changed"]) == ((0, 0) if why else (1, 1)), change
                faults = msgspec.convert(answer["errors"], dict[str, Fault])
                assert faults == ({queue_id: Fault(Code.CONFLICT, why)} if why else {}), change
