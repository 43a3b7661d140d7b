"""Names of clients in a session: used if they are there in time, and never waited for."""

from __future__ import annotations

import asyncio

from mailcore.config.clients import Clients
from mailcore.config.listeners import Listener
from mailcore.routing.reverse_names import ReverseNames
from tests.eventually import eventually
from tests.receiver.server_in_process import Client, serving

BEHIND = Listener(proxy=("127.0.0.1",))
RECORDS = {
    ("9.113.0.203.in-addr.arpa", "PTR"): ["client.example."],
    ("client.example", "A"): ["203.0.113.9"],
    ("10.113.0.203.in-addr.arpa", "PTR"): ["other.example."],
    ("other.example", "A"): ["203.0.113.10"],
}


class Asked:
    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.names = ReverseNames(self.lookup, asyncio.get_running_loop(), asyncio.get_running_loop().time)

    async def lookup(self, name: str, kind: str) -> tuple[list[str], float, bool]:
        await self.gate.wait()
        return RECORDS.get((name, kind), []), 300.0, False


async def deliver(client: Client) -> None:
    await client.to_data()
    await client.send(b"x\r\n.\r\n")
    assert (await client.reply()).startswith(b"250")


async def test_no_session_waits_for_a_name() -> None:
    """The first message arrives while the look-up hangs, the second after it; a refusal has the name, too."""
    asked = Asked()
    async with serving(rule=BEHIND, reverse_names=asked.names, domains=["example.org"]) as server:
        client = await server.client()
        await client.send(b"PROXY TCP4 203.0.113.9 192.0.2.25 40001 25\r\n")
        await client.hello()
        await deliver(client)
        asked.gate.set()
        await eventually(lambda: not asked.names._wanted)
        await deliver(client)
        await client.ask(b"MAIL FROM:<a@example.com>")
        await client.ask(b"RCPT TO:<b@example.net>")
    assert [envelope.client_name for envelope, _, _ in server.intake.messages] == ["", "client.example"]
    assert b"(unknown [203.0.113.9])" in server.intake.messages[0][2]
    assert b"(client.example [203.0.113.9])" in server.intake.messages[1][2]
    assert server.intake.refusals[0].client_name == "client.example"


async def test_a_client_that_is_gone_does_not_matter() -> None:
    asked = Asked()
    async with serving(rule=BEHIND, reverse_names=asked.names) as server:
        client = await server.client()
        await client.send(b"PROXY TCP4 203.0.113.9 192.0.2.25 40001 25\r\n")
        await client.reply()
        client.reset()
        await eventually(lambda: not server.server.sessions)
        asked.gate.set()
        await eventually(lambda: not asked.names._wanted)
    assert server.intake.failures == []


async def test_a_late_answer_is_not_taken_for_another_client() -> None:
    """The name of the proxy comes when XCLIENT has put another client in its place, whose own name is looked up."""
    asked = Asked()
    clients = Clients(xclient_networks=("203.0.113.9",))
    async with serving(rule=BEHIND, clients=clients, reverse_names=asked.names, networks=["203.0.113.0/24"]) as server:
        client = await server.client()
        await client.send(b"PROXY TCP4 203.0.113.9 192.0.2.25 40001 25\r\n")
        await client.reply()
        await client.ask(b"XCLIENT ADDR=203.0.113.10")
        asked.gate.set()
        await eventually(lambda: not asked.names._wanted)
        await client.ask(b"EHLO client.example")
        await deliver(client)
        await client.ask(b"XCLIENT ADDR=203.0.113.11 HELO=x PROTO=ESMTP")
        await deliver(client)
    assert [envelope.client_name for envelope, _, _ in server.intake.messages] == ["other.example", ""]


async def test_without_the_setting_nothing_is_looked_up() -> None:
    async with serving() as server:
        await deliver(await server.ready())
        assert server.server._reverse_names is None
    assert b"(unknown [127.0.0.1])" in server.intake.messages[0][2]
