"""Messages with thousands of recipients: read in batches, each delivered once, over deferrals, orders and kills."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest

from mailcore.lab.lab import Lab
from tests.running.running_core import Sections, recipients_of, route_to, running

MANY = [f"r{number:04}@example.org" for number in range(3_000)]
SECTIONS: Sections = {
    "receiver": {"recipient_limit": 5_000},
    "scheduler": {"minimal_backoff_time": 1.0, "maximal_backoff_time": 2.0, "message_recipient_limit": 100},
    "transports.smtp": {"recipient_limit": 200, "extra_recipient_limit": 50},
}
IN_CORE_MAX = (
    10 + 200 + 50
)  # message_recipient_minimum of one message, and the pools (SCHEDULER_README, "the upper bound")


async def test_each_gets_it_once_though_some_are_deferred(tmp_path: Path) -> None:
    async with Lab(["reject(*7@example.org, 450):127.0.0.1:0"]) as lab, running(tmp_path, lab, SECTIONS) as core:
        queue_id = await core.send(*MANY)
        item = await core.until_in(queue_id, "retry.")
        assert item["recipient_count"] == 300
        size = await core.size()
        assert (size["messages"], size["recipients"]) == (1, 300)
        assert size["destinations"] == {route_to(lab, 0): 300}
        await lab.hops[0].set_behaviour("accept")
        await core.until_empty()
        assert recipients_of(lab.messages) == MANY


async def test_all_deferred_wait_in_batches_and_are_read_as_wanted(tmp_path: Path) -> None:
    async with Lab(["reject(1, 450):127.0.0.1:0"]) as lab, running(tmp_path, lab, SECTIONS) as core:
        queue_id = await core.send(*MANY)
        item = await core.until_in(queue_id, "retry.")
        assert item["recipient_count"] == 3_000
        await lab.hops[0].set_behaviour("slow(0.05)")
        peak = 0
        while (await core.size())["messages"]:
            peak = max(peak, (await core.ask("state"))["scheduler"]["recipients_in_core"])
            await asyncio.sleep(0.02)
        assert 100 < peak <= IN_CORE_MAX
        assert recipients_of(lab.messages) == MANY


@pytest.mark.parametrize("operation", ["hold", pytest.param("delete", marks=pytest.mark.long)])
async def test_an_order_in_the_middle_forgets_nobody(tmp_path: Path, operation: str) -> None:
    async with Lab(["slow(0.05):127.0.0.1:0"]) as lab, running(tmp_path, lab, SECTIONS) as core:
        queue_id = await core.send(*MANY)
        await lab.wait_for(5)
        await core.order(operation, queue_id)
        item = await core.until_in(
            queue_id, "hold" if operation == "hold" else "deleted", deleted=operation == "delete"
        )
        arrived = recipients_of(lab.messages)
        assert item["recipient_count"] == 3_000 - len(arrived)
        await lab.hops[0].set_behaviour("accept")
        await core.order("release" if operation == "hold" else "undelete", queue_id)
        await core.until_empty()
        assert recipients_of(lab.messages) == MANY


async def test_kills_in_the_middle_double_only_what_is_in_flight(tmp_path: Path) -> None:
    window = 4
    sections: Sections = {**SECTIONS, "transports.smtp": {"destination_concurrency_limit": window}}
    chance = random.Random(11)
    async with Lab(["slow(0.03):127.0.0.1:0"]) as lab, running(tmp_path, lab, sections) as core:
        await core.send(*MANY)
        for _ in range(4):
            await lab.wait_for(len(lab.messages) + chance.randint(1, 8))
            await core.kill(chance.choice(["manager", "deliverer.0"]))
        await core.until_empty()
        got = Counter(recipients_of(lab.messages))
        assert sorted(got) == MANY
        assert sum(got.values()) - len(MANY) <= 4 * window * 50


async def test_all_of_them_are_returned_in_one_bounce(tmp_path: Path) -> None:
    async with (
        Lab(["reject(1, 550):127.0.0.1:0", "accept:127.0.0.1:0"]) as lab,
        running(tmp_path, lab, SECTIONS) as core,
    ):
        await core.send(*MANY)
        await core.until_empty()
        assert recipients_of(lab.hops[1].messages) == ["author@sender.example"]
