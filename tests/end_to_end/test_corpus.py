"""Messages of real shapes and mixed sizes under load: every one arrives once, byte for byte."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mailcore.lab.lab import Lab
from tests.end_to_end.appliance import LINES_AS_THEY_ARE, Appliance
from tests.end_to_end.judge import judged, size_equals_browse
from tests.ledger.client import LoadClient
from tests.ledger.corpus import Corpus
from tests.ledger.ledger import Ledger, State

SEED = 20261121
# The second and third hop make mail wait, so that data moves from the log to the spool and comes from there.
HOPS = ["accept:127.0.0.1:0", "greylist(1):127.0.0.1:0", "limit(5)+reject(0.1, 451, final)+slow(0.01):127.0.0.1:0"]
DOMAINS = ("accept.example", "grey.example", "moody.example")


@pytest.mark.parametrize(
    ("count", "big"),
    [
        pytest.param(300, 1, id="short"),
        pytest.param(5_000, 20, id="long", marks=[pytest.mark.long, pytest.mark.timeout(1800)]),
    ],
)
async def test_every_message_arrives_once_byte_for_byte(count: int, big: int, tmp_path: Path) -> None:
    ledger = Ledger()
    async with Lab(HOPS, seed=SEED) as lab:
        routes = {domain: "smtp:[{}]:{}".format(*hop.address) for domain, hop in zip(DOMAINS, lab.hops, strict=True)}
        sections = {"receiver": {"processes": 2}, "deliverer": {"processes": 2}, "transports.smtp": LINES_AS_THEY_ARE}
        appliance = Appliance(tmp_path, routes, sections)
        try:
            await appliance.start()
            corpus = list(Corpus(count=count, seed=SEED, big=big, domains=DOMAINS))
            third = len(corpus) // 3
            await asyncio.gather(
                LoadClient(appliance.address, ledger, name="k").send(corpus[:third]),
                LoadClient(appliance.address, ledger, name="r", keep_alive=False).send(corpus[third : 2 * third]),
                LoadClient(appliance.address, ledger, name="p", pipelining=True).send(corpus[2 * third :]),
            )
            await size_equals_browse(appliance)
            comparison = await judged(appliance, ledger, lab)
        finally:
            appliance.stop()
    assert not ledger.of(State.REFUSED), ledger.of(State.REFUSED)[:3]
    assert comparison.clean, comparison
    wanted = {recipient for message in corpus for recipient in message.recipients}
    assert {recipient for arrival in lab.messages for recipient in arrival.recipients} == wanted
