"""How old the mail is: one scan for all who ask, in steps, kept for a while."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from mailcore.control import ages
from mailcore.control.async_client import AsyncControlClient
from mailcore.envelope import Recipient
from mailcore.lookup import ages as scanning
from mailcore.lookup.ages import BOUNDS_S, OTHERS
from tests.control.running_control import RunningControl
from tests.lookup.sample_messages import deferred, envelope


def row_of(answer: dict[str, Any], destination: str) -> dict[str, Any]:
    return next(each for each in answer["rows"] if each["destination"] == destination)


async def test_messages_are_counted_by_destination_and_age(
    running: RunningControl, control: AsyncControlClient
) -> None:
    now = time.time()
    running.write("incoming.0", envelope(["a@example.org", "b@example.org", "c@example.net"], arrived_at=now - 10))
    old = deferred("a@example.org", arrived_at=now - 700_000, sender="old@example.com")
    running.write("retry.300", old, deferred("d@example.net", arrived_at=now - 500))
    running.write("hold", deferred("e@example.net", arrived_at=now - 400_000))
    running.write("deleted", deferred("f@example.net", arrived_at=now - 900_000))
    answer = await control.call("ages")
    assert answer["done"]
    assert answer["buckets_s"] == [*BOUNDS_S, None]
    assert answer["buckets_s"][:3] == [300, 600, 1200]
    assert answer["buckets_s"][-2] == 5 * 86_400
    assert answer["total"] == sum(answer["counts"]) == 4
    assert sum(sum(row["counts"]) for row in answer["rows"]) == 5, "a message for two destinations"
    assert answer["by_state"] == {"active": 0, "queued": 1, "deferred": 2, "held": 1}
    org, net = row_of(answer, "smtp:example.org"), row_of(answer, "smtp:example.net")
    assert [each["destination"] for each in answer["rows"]] == ["smtp:example.net", "smtp:example.org"]
    assert (org["total"], org["counts"][0], org["counts"][-1]) == (2, 1, 1)
    assert (net["total"], net["counts"][0], net["counts"][1], net["counts"][-2]) == (3, 1, 1, 1)
    assert all(len(row["counts"]) == len(answer["buckets_s"]) for row in answer["rows"])
    assert answer["oldest"] == {
        "queue_id": old.queue_id,
        "arrived_at": old.arrived_at,
        "sender": "old@example.com",
        "destination": "smtp:example.org",
        "state": "deferred",
    }
    assert abs(answer["as_of"] - time.time()) < 60


async def test_what_the_runner_has_passed_is_active_and_a_reroute_counts(
    running: RunningControl, control: AsyncControlClient
) -> None:
    moved = Recipient(0, "a@example.org", "smtp:example.org", "relay:[192.0.2.1]")
    running.write("retry.5", deferred("a@example.org", recipients=(moved,)))
    running.manager.answers["cut"] = lambda _: {
        "lanes": {"retry.5": [0, running.lane("retry.5").end, running.lane("retry.5").end]}
    }
    answer = await control.call("ages")
    assert answer["by_state"]["active"] == 1
    assert [row["destination"] for row in answer["rows"]] == ["relay:[192.0.2.1]"]


async def test_active_messages_are_counted_by_what_they_are(
    running: RunningControl, control: AsyncControlClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the state that lists and pages show; one that left meanwhile stays active."""
    monkeypatch.setattr(ages, "ASKED_AT_ONCE", 2)
    messages = [envelope(f"{number}@example.org", arrived_at=time.time() - 10 + number) for number in range(6)]
    running.write("incoming.0", *messages)
    end = running.lane("incoming.0").end
    running.write("incoming.0", envelope("new@example.org", arrived_at=time.time()))
    running.manager.answers["cut"] = lambda _: {"lanes": {"incoming.0": [0, end, running.lane("incoming.0").end]}}
    states: list[dict[str, int]] = [
        {"suspended": 2}, {"delivering": 1, "window full": 3}, {"dead": 1}, {"window full": 1}, {"delivering": 1},
    ]  # fmt: skip
    known = {message.queue_id: {"states": each} for message, each in zip(messages, states, strict=False)}
    running.manager.answers["working"] = lambda asked: {
        "messages": {queue_id: known[queue_id] for queue_id in asked["queue_ids"] if queue_id in known}
    }
    answer = await control.call("ages")
    assert list(answer["by_state"].items()) == [
        ("delivering", 2), ("active", 1), ("window full", 1), ("suspended", 1), ("dead", 1), ("queued", 1),
        ("deferred", 0), ("held", 0),
    ]  # fmt: skip
    assert sum(answer["by_state"].values()) == answer["total"] == 7
    assert answer["oldest"]["state"] == "suspended"
    assert [len(asked.arguments["queue_ids"]) for asked in running.manager.asked("working")] == [2, 2, 2]


async def test_an_empty_queue_has_no_oldest(control: AsyncControlClient) -> None:
    answer = await control.call("ages")
    assert (answer["total"], answer["rows"], answer["oldest"]) == (0, [], None)


async def test_long_lists_count_for_all_their_destinations(
    running: RunningControl, control: AsyncControlClient
) -> None:
    lane = running.lane("incoming.0")
    batch = lane.write_batch([Recipient(number, f"u{number}@in.batch{number % 3}.example") for number in range(1000)])
    lane.write(envelope("last@example.org", batches=(batch,), recipient_count=1001))
    answer = await control.call("ages")
    assert sorted(row["destination"] for row in answer["rows"]) == [
        "smtp:example.org", "smtp:in.batch0.example", "smtp:in.batch1.example", "smtp:in.batch2.example",
    ]  # fmt: skip
    assert answer["total"] == 1


async def test_beyond_the_rows_shown_the_rest_is_one(
    running: RunningControl, control: AsyncControlClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "ROWS_MAX", 2)
    monkeypatch.setattr(scanning, "NAMES_MAX", 3)
    for number, count in enumerate((3, 2, 1, 4)):
        running.write("incoming.0", *(envelope(f"a@{number}.example") for _ in range(count)))
    answer = await control.call("ages")
    assert [(row["destination"], row["total"]) for row in answer["rows"]] == [
        ("smtp:0.example", 3), ("smtp:1.example", 2), (OTHERS, 5),
    ]  # fmt: skip
    assert answer["total"] == 10


async def test_a_result_is_kept_for_a_while_and_refreshed_for_who_wants_it(
    running: RunningControl, control: AsyncControlClient
) -> None:
    running.write("incoming.0", envelope())
    first = await control.call("ages")
    running.write("incoming.0", envelope())
    assert await control.call("ages") == first
    assert (await control.call("ages", {"refresh": True}))["total"] == 2
    running.server.ages._next_at = 0.0  # the time is over
    running.write("incoming.0", envelope())
    assert (await control.call("ages"))["total"] == 3


async def test_several_who_ask_share_one_scan_in_steps(
    running: RunningControl, control: AsyncControlClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ages, "STEP_S", 0.0)
    running.write("incoming.0", *(envelope() for _ in range(640)))

    async def ask() -> list[Any]:
        async with running.client() as client:
            return [part async for part in client.parts("ages")]

    answers = await asyncio.gather(*(ask() for _ in range(3)))
    assert len({answer[-1]["as_of"] for answer in answers}) == 1
    assert all(answer[-1]["total"] == 640 for answer in answers)
    assert sum(len(answer) - 1 for answer in answers) >= 9  # every 64 records the next step
    assert all(part["done"] is False for answer in answers for part in answer[:-1])
    assert len(running.manager.asked("cut")) == 1


async def test_a_scan_nobody_waited_for_is_begun_anew(
    running: RunningControl, control: AsyncControlClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ages, "STEP_S", 0.0)
    running.write("incoming.0", *(envelope() for _ in range(640)))
    async with running.client() as client:
        async for _ in client.parts("ages"):
            break
    while len(running.server.clients) > 1:  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0.005)
    running.write("incoming.0", envelope())
    monkeypatch.setattr(ages, "STALE_S", -1.0)
    assert (await control.call("ages"))["total"] == 641
