"""Cut-through under load while processes are killed, one after the other: nothing acknowledged is lost, and nothing that was
passed on comes twice.

The client gives what it repeats a new number, so a copy with the same number is one that we made. Some messages are stored,
because the window is full: of these, a killed deliverer or manager may make a copy, as without cut-through.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from pathlib import Path

import pytest

from mailcore.lab.lab import Lab
from tests.end_to_end.appliance import LINES_AS_THEY_ARE, Appliance
from tests.end_to_end.judge import judged
from tests.eventually import PATIENCE_S
from tests.ledger.client import LoadClient
from tests.ledger.corpus import Corpus
from tests.ledger.ledger import Ledger

VICTIMS = ("deliverer.0", "receiver.0", "manager", "deliverer.1", "receiver.1", "supervisor")
EACH = 15  # messages that are sent while one process is killed
FEW, MANY = 6, 200
WIDE = {
    "cut_through": True,
    "cut_through_wait_s": 1,  # some are stored since their time is over
    "process_limit": 500,
    "initial_destination_concurrency": 8,  # some do not fit into the window
    "destination_concurrency_limit": 12,
    **LINES_AS_THEY_ARE,
}


def kind_of(ledger: Ledger, number: str) -> str:
    """What the client heard of a message."""
    reply = ledger.sent[number].reply
    return "passed on" if "passed on" in reply else "421" if reply.startswith("421") else "queued or nothing"


@pytest.mark.parametrize("kills", [FEW, pytest.param(MANY, marks=[pytest.mark.long, pytest.mark.timeout(1800)])])
async def test_nothing_is_lost_and_nothing_comes_twice(tmp_path: Path, kills: int) -> None:
    ledger = Ledger()
    chance = random.Random(kills)
    counted: Counter[str] = Counter()
    lost = declined = 0
    async with Lab(["slow(0.02):127.0.0.1:0"]) as lab:
        appliance = Appliance(
            tmp_path,
            {"*": "smtp:[{}]:{}".format(*lab.hops[0].address)},
            {"transports.smtp": WIDE, "receiver": {"processes": 2}, "deliverer": {"processes": 2}},
        )

        async def count() -> None:
            """Adds up what the managers have counted, each of which begins with 0."""
            async with appliance.client() as control:
                for name, number in (await control.call("state"))["counters"].items():
                    if "cut_through" in name or name == "passed_on":
                        counted[name] += number

        try:
            await appliance.start()
            for number, victim in zip(range(kills), itertools.cycle(VICTIMS), strict=False):
                client = LoadClient(appliance.address, ledger, name=f"k{number}-", timeout_s=PATIENCE_S)
                load = asyncio.create_task(client.send(Corpus(EACH, seed=number, recipients_max=5)))
                await lab.wait_for(len(lab.messages) + chance.randrange(1, EACH // 2))
                if victim in ("manager", "supervisor"):  # what it has counted goes with it
                    await count()
                await appliance.kill(victim)
                await load
                lost, declined = lost + client.lost_connections, declined + client.declined
            await appliance.until_empty()
            comparison = await judged(appliance, ledger, lab)
            await count()
            async with appliance.client() as control:
                state = await control.call("state")
        finally:
            appliance.stop()
    twice = Counter(kind_of(ledger, number) for number in {number for number, _ in comparison.duplicates})
    said = f"{kills} kills, {len(ledger.acknowledged)} acknowledged, {lost} connections lost: {dict(counted)}, twice: {twice}"
    print(said)
    assert len(ledger.acknowledged) == kills * EACH, said
    assert not comparison.lost, (comparison, said)
    assert comparison.strangers == [], (comparison, said)
    assert comparison.refused == [], (comparison, said)
    assert not twice["passed on"], said
    assert not twice["421"], said
    assert counted["passed_on"] > len(ledger.acknowledged) // 10, said  # it was mail of this kind that was tried
    assert state["balance"]["recipients"]["difference"] == 0
    assert state["balance"]["messages"]["difference"] == 0
