"""The whole daemon with the export on: what it delivered is found and told when its segments are gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mailcore.lab.lab import Lab
from tests.control.test_history import search, until_finished
from tests.running.exported_only import EXPORTING, until_forgotten
from tests.running.running_core import RunningCore, route_to, running


async def test_what_was_delivered_is_known_when_its_segments_are_gone(tmp_path: Path) -> None:
    async with Lab(["greylist(1):127.0.0.1:0", "reject(1, 550):127.0.0.1:0"]) as lab:
        routes = {"bad.example": route_to(lab, 1), "sender.example": route_to(lab, 1)}
        async with running(tmp_path, lab, EXPORTING, routes=routes) as core:
            good = await core.send("a@example.org", "b@example.org")
            bad = await core.send("c@bad.example", sender="other@sender.example")
            before = {each: await until_finished(core, each) for each in (good, bad)}
            times = await _times(core)
            await until_forgotten(core, good, bad)

            for queue_id, told in before.items():
                history = await core.ask("history", queue_id=queue_id)
                assert _comparable(history) == _comparable(told)
                assert history["complete"], history["note"]
            for question in (
                {"message_id": "one@sender.example"},
                {"sender": "*@SENDER.example"},
                {"recipient": "B@example.org"},
                {"queue_id": good},
            ):
                found = {item["queue_id"]: item for item in await search(core.control, **question)}
                assert found[good]["state"] == "delivered"
                both = ["a@example.org", "b@example.org"]  # the one that was asked for is in front
                assert found[good]["recipients"] == (both[::-1] if "recipient" in question else both)
                assert (bad in found) == (question.keys() <= {"message_id", "sender"})
            assert found[good]["finished_at"] == before[good]["events"][-1]["at"]
            (item,) = await search(core.control, recipient="c@bad.example", limit=1)
            assert (item["queue_id"], item["state"]) == (bad, "bounced")

            # What lies in events counts for measuring, and for what a what-if knows of next hops.
            after = await _times(core)
            for name in (route_to(lab, 0), route_to(lab, 1)):
                assert after[name]["deliveries"] >= times[name]["deliveries"]
                assert set(times[name]["transmit_s"]) <= set(after[name]["transmit_s"])
                assert {each["reply"] for each in times[name]["replies"]} <= {
                    each["reply"] for each in after[name]["replies"]
                }


async def _times(core: RunningCore) -> dict[str, Any]:
    answer = (await core.ask("service_times"))["times"]
    assert not answer["note"]
    times: dict[str, Any] = answer["destinations"]
    return times


def _comparable(history: dict[str, Any]) -> list[dict[str, Any]]:
    """How long a deferred message waits is in its envelope to the millisecond, in events as its lane has it."""
    return [
        {name: value for name, value in event.items() if name not in ("due_at", "of_lane")}
        for event in history["events"]
    ]
