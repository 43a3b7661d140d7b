"""Any process is killed at any time under load: nothing acknowledged is lost, and little comes twice.

A kill of the manager, a deliverer or all of them may repeat what was being delivered just then, which is at most the window
of each destination; a kill of a receiver or of control may repeat nothing.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from mailcore.lab.lab import Lab
from tests.end_to_end.appliance import LINES_AS_THEY_ARE, Appliance
from tests.end_to_end.judge import judged, size_equals_browse, standing_still
from tests.ledger.client import LoadClient
from tests.ledger.corpus import Corpus
from tests.ledger.ledger import Ledger, State

WINDOW = 5
HOPS = ["slow(0.02):127.0.0.1:0", "slow(0.01)+reject(0.1, 450):127.0.0.1:0"]
DOMAINS = ("slow.example", "moody.example")
MESSAGES_A_KILL = 60
WAITING = 10  # of them: sent while no next hop answers, so that there is a queue to count, however fast the machine is
RECIPIENTS_MAX = 20  # below destination_recipient_limit, so that a destination gets one transaction of each message
SECTIONS: dict[str, dict[str, object]] = {
    "receiver": {"processes": 2},
    "deliverer": {"processes": 2},
    "transports.smtp": {"destination_concurrency_limit": WINDOW, **LINES_AS_THEY_ARE},
}


def victims(kills: int, chance: random.Random) -> list[str]:
    """Every kind equally often, in random order."""
    kinds = ["receiver.0", "receiver.1", "manager", "deliverer.0", "deliverer.1", "control", "supervisor"]
    names = (kinds * (kills // len(kinds) + 1))[:kills]
    chance.shuffle(names)
    return names


@pytest.mark.parametrize(
    ("kills", "seed", "cut_through"),
    [
        pytest.param(7, 1, False, id="short"),  # one of each kind
        pytest.param(7, 3, True, id="short, passed on"),
        pytest.param(200, 2, False, id="long", marks=[pytest.mark.long, pytest.mark.timeout(3600)]),
        pytest.param(200, 4, True, id="long, passed on", marks=[pytest.mark.long, pytest.mark.timeout(3600)]),
    ],
)
async def test_what_was_acknowledged_survives_every_kill(
    kills: int, seed: int, cut_through: bool, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    ledger = Ledger()
    allowed = counted = 0
    async with Lab(HOPS, seed=seed) as lab:
        routes = {domain: "smtp:[{}]:{}".format(*hop.address) for domain, hop in zip(DOMAINS, lab.hops, strict=True)}
        passing = {"cut_through": cut_through, "cut_through_wait_s": 0.5}  # "silent(mail)" is waited for as long
        transport = {**SECTIONS["transports.smtp"], **passing}
        appliance = Appliance(tmp_path, routes, {**SECTIONS, "transports.smtp": transport})
        try:
            await appliance.start()
            for number, name in enumerate(victims(kills, chance)):
                corpus = Corpus(
                    MESSAGES_A_KILL, seed=seed * 1000 + number, domains=DOMAINS, recipients_max=RECIPIENTS_MAX
                )
                client = LoadClient(appliance.address, ledger, name=f"k{number}-", timeout_s=10.0)
                messages = list(corpus)
                load = asyncio.create_task(client.send(messages[WAITING:]))
                await asyncio.sleep(chance.uniform(0.0, 0.4))
                await appliance.kill(name)
                if name in ("manager", "supervisor") or name.startswith("deliverer"):
                    allowed += WINDOW * len(DOMAINS)
                async with standing_still(lab):
                    await load
                    await client.send(messages[:WAITING])
                    counted += await size_equals_browse(appliance)
            comparison = await judged(appliance, ledger, lab)
        finally:
            appliance.stop()
    print(
        f"seed {seed}, {kills} kills, {len(ledger.acknowledged)} acknowledged: {comparison}, {allowed} repeated allowed"
    )
    assert counted >= kills * WAITING, "the queue was empty whenever it was counted: a test of nothing"
    assert len(ledger.acknowledged) >= kills * MESSAGES_A_KILL
    assert not ledger.of(State.REFUSED), ledger.of(State.REFUSED)[:3]
    assert not comparison.lost, comparison
    assert not comparison.strangers, comparison
    assert not comparison.refused, comparison
    assert comparison.repeated <= allowed, comparison


@pytest.mark.parametrize("name", ["receiver.0", "control"])
async def test_a_killed_receiver_or_control_process_repeats_nothing(name: str, tmp_path: Path) -> None:
    ledger = Ledger()
    async with Lab(HOPS[:1]) as lab:
        routes = {"*": "smtp:[{}]:{}".format(*lab.hops[0].address)}
        appliance = Appliance(tmp_path, routes, {"transports.smtp": LINES_AS_THEY_ARE})
        try:
            await appliance.start()
            for number in range(3):
                client = LoadClient(appliance.address, ledger, name=f"k{number}-", timeout_s=10.0)
                load = asyncio.create_task(client.send(Corpus(MESSAGES_A_KILL, seed=number)))
                await asyncio.sleep(0.1)
                await appliance.kill(name)
                await load
            comparison = await judged(appliance, ledger, lab)
        finally:
            appliance.stop()
    assert comparison.clean, comparison
