"""Webhooks beside a real core under load: the receiver is away, slow, answers 500, dies; sender and manager are killed. Nothing
is missing, each message's events are in order, and what comes twice is marked."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import pytest

from mailcore.lab.lab import Lab
from tests.appliance.webhooks.receiver import receiving
from tests.appliance.webhooks.sending import Sending
from tests.appliance.webhooks.under_load import (
    BEHAVIOUR,
    agreed,
    at_work,
    check,
    kill_manager,
    load,
    over,
    trouble,
    until_sent,
)
from tests.running.running_core import Sections, running

SECTIONS: Sections = {
    "queue": {"segment_bytes": 1 << 16},
    "receiver": {"tag_header": "X-Campaign"},
    "export": {"enabled": True, "interval_s": 0.5, "window_interval_s": 60},
    "portal": {"webhook_timeout_s": 1.0, "webhook_retry_s_max": 1},
}


@pytest.mark.parametrize(
    ("kills", "seconds"),
    [
        pytest.param(4, 1.0, marks=pytest.mark.long),
        pytest.param(50, 1.6, marks=[pytest.mark.long, pytest.mark.timeout(1_800)]),
    ],
    ids=["some", "fifty"],
)
async def test_nothing_is_missing_however_the_receiver_behaves_and_whoever_is_killed(
    tmp_path: Path, kills: int, seconds: float
) -> None:
    chance = random.Random(kills)
    with receiving() as receiver, receiving() as other:
        async with Lab([f"{BEHAVIOUR}:127.0.0.1:0", "accept:127.0.0.1:0"]) as lab:
            routes = {"fast.example": f"smtp:[{lab.hops[1].address[0]}]:{lab.hops[1].address[1]}"}
            async with running(tmp_path, lab, SECTIONS, routes=routes) as core:
                sending = Sending(core)
                dead = {"name": "dead", "url": "http://127.0.0.1:9/"}
                all_of_it = {"name": "all", "url": receiver.url}
                some = {"name": "some", "url": other.url, "kinds": ["bounced"], "recipient_domain": "example.org"}
                await asyncio.to_thread(sending.prepare, all_of_it, some, dead)
                sending.start()
                began = time.monotonic()
                with load(core, clients=3, pause_s=0.02) as accepted:
                    for number in range(kills):
                        how = ("good", "away", "broken", "slow", "moved")[number % 5]
                        await at_work(sending, core)
                        ill = asyncio.create_task(trouble(receiver, how, seconds))
                        await asyncio.sleep(seconds * chance.random())
                        sending.kill()
                        await kill_manager(core)
                        sending.start()
                        await ill
                        await asyncio.sleep(seconds * 0.3)
                took_s = time.monotonic() - began
                await over(core)
                await until_sent(sending, core, "all")
                await until_sent(sending, core, "some")
                feed = await agreed(core, receiver)
                await until_sent(sending, core, "some")
                counts = check(receiver.taken, feed)
                bounced = [event for event in feed if event["recipient_domain"] == "example.org"]
                few = check(other.taken, bounced, {"bounced"})
                hook, away = sending.hook("all"), sending.hook("dead")
                sending.kill()
                assert {event["queue_id"] for event in feed} >= set(accepted)
                assert hook["failing_since"] is None
                assert away["sent_events"] == 0
                assert away["failing_since"] is not None
                print(f"{kills} kills in {took_s:.0f} s, {len(accepted)} messages accepted; all: {counts}; some: {few}")
