"""Milters that answer, that cannot be reached, and that speak something else."""

from __future__ import annotations

import asyncio
from pathlib import Path

from mailcore.doctor import milters
from mailcore.doctor.finding import State
from tests.doctor.sample_host import found, sample_host, states
from tests.milter.scripted import milter


def test_a_host_without_milters(tmp_path: Path) -> None:
    assert states(milters.look(sample_host(tmp_path))) == {State.GOOD}


async def test_each_milter_is_asked_once(tmp_path: Path) -> None:
    async with milter() as good, milter(negotiation=b"HTTP/1.1 400\r\n\r\n") as other:
        text = f'[receiver]\nmilters = ["{good.address}", "{other.address}", "unix:/nonexistent/socket"]\n'
        text += '[[milter]]\naddress = "unix:/nonexistent/socket"\ndefault_action = "accept"\n'
        host = sample_host(tmp_path, text)
        findings = await asyncio.to_thread(lambda: list(milters.look(host)))
        assert [each.state for each in findings] == [State.GOOD, State.BAD, State.BAD]
        assert good.connections == other.connections == 1
        assert "sent a packet of" in found(findings, other.address).found
        assert "451" in found(findings, other.address).found
        assert found(findings, "unix:/nonexistent").found.endswith("; mail is accepted without it")
