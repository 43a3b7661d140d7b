"""A hop can be dead, change its behaviour while it runs, and forget what it counted."""

import contextlib

import pytest

from mailcore.lab.behaviour import BehaviourError
from mailcore.lab.lab import Lab
from tests.eventually import eventually
from tests.lab.conversation import Conversation


async def deliver(lab: Lab, number: int = 0) -> None:
    async with Conversation(lab.hops[number]) as smtp:
        await smtp.mail()
        assert (await smtp.data(b"x\r\n.\r\n")).startswith("250")


async def test_a_dead_hop_refuses_connections_and_then_lives() -> None:
    async with Lab(["dead_for(0.2):127.0.0.1:0"]) as lab:
        with pytest.raises(ConnectionRefusedError):
            await deliver(lab)
        await eventually(lambda: lab.hops[0].listening)
        await deliver(lab)


async def test_a_hop_that_dies_drops_its_connections_and_keeps_its_port() -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab:
        address = lab.hops[0].address
        async with Conversation(lab.hops[0]) as smtp:
            await lab.hops[0].set_behaviour("dead_for(60)")
            with contextlib.suppress(ConnectionResetError):
                assert await smtp.reply() == ""
        with pytest.raises(ConnectionRefusedError):
            await deliver(lab)
        await lab.hops[0].set_behaviour("accept")
        assert lab.hops[0].address == address
        await deliver(lab)


async def test_a_new_temper_holds_in_open_sessions() -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, Conversation(lab.hops[0]) as smtp:
        assert (await smtp.mail()).startswith("250")
        await lab.hops[0].set_behaviour("reject(1, 451, final)")
        assert (await smtp.data(b"x\r\n.\r\n")).startswith("451")
        with pytest.raises(BehaviourError):
            await lab.hops[0].set_behaviour("nonsense")
        assert lab.hops[0].behaviour.text == "reject(1, 451, final)"


async def test_counters_and_ledger_can_be_forgotten() -> None:
    async with Lab(["accept:127.0.0.1:0", "accept:127.0.0.1:0"]) as lab:
        await deliver(lab, 0)
        await deliver(lab, 1)
        assert [arrival.hop for arrival in lab.messages] == ["hop0", "hop1"]
        lab.hops[0].reset()
        assert [arrival.hop for arrival in lab.messages] == ["hop1"]
        assert lab.hops[0].counters.messages == 0


async def test_without_a_ledger_it_only_counts() -> None:
    async with Lab(["accept:127.0.0.1:0"], keep=False) as lab:
        await deliver(lab)
        assert lab.messages == []
        assert (lab.hops[0].counters.messages, lab.hops[0].counters.not_kept) == (1, 1)


async def test_a_port_that_is_taken_stops_the_start_and_names_the_hop() -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab:
        port = lab.hops[0].address[1]
        with pytest.raises(OSError, match=f"second.*127.0.0.1:{port}"):
            await Lab(["accept:127.0.0.1:0", f"second=accept:127.0.0.1:{port}"]).start()


async def test_names_are_given_once() -> None:
    with pytest.raises(BehaviourError, match="two hops"):
        Lab(["a=accept:127.0.0.1:0", "a=accept:127.0.0.1:0"])
