"""Limits of what a client's network may do in a period, the same for all receivers."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mailcore.config.clients import Clients
from mailcore.receiver.client_rates import ClientRates, network_of
from mailcore.supervisor.shared_counts import Counts, make_counts
from tests.eventually import eventually
from tests.receiver.server_in_process import Client, Serving, serving

CLIENT, NEIGHBOUR, OTHER, US = "127.1.0.1", "127.1.0.2", "127.2.0.1", "127.0.0.1"


class Limited:
    """Servers that share their counts, as receivers do, and what they log."""

    def __init__(self, **limits: Any) -> None:
        self.settings = Clients(**limits)
        self.now = 600_000.0
        self.lines: list[tuple[str, float, str, str]] = []
        self.descriptor = make_counts()

    def rates(self) -> ClientRates:
        counts = Counts(self.descriptor, 600, lambda: self.now, self.settings.rate_time_s)
        return ClientRates(self.settings, counts, self, lambda: True)

    def rate_exceeded(self, kind: str, count: float, client_address: str, network: str) -> None:
        self.lines.append((kind, count, client_address, network))

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[Serving]:
        async with serving(clients=self.settings, rates=self.rates(), networks=[US], domains=["example.org"]) as server:
            yield server


async def greeted(server: Serving, source: str) -> bytes:
    client = await server.client(source)
    reply = await client.reply()
    await client.close()
    return reply


async def ready(server: Serving, source: str) -> Client:
    client = await server.client(source)
    await client.hello()
    return client


async def test_connections_beyond_the_limit_get_421() -> None:
    """Of the client, in all receivers; other clients and our own are not concerned. After the period it may connect again."""
    limited = Limited(connection_rate_limit=3)
    async with limited.serving() as one, limited.serving() as two:
        for server in (one, two, one):
            assert (await greeted(server, CLIENT)).startswith(b"220 ")
        for server in (two, one):
            refusal = f"421 4.7.0 mx.example.net Error: too many connections from {CLIENT}\r\n".encode()
            assert await greeted(server, CLIENT) == refusal
        assert (await greeted(one, NEIGHBOUR)).startswith(b"220 ")
        for _ in range(5):
            assert (await greeted(one, US)).startswith(b"220 ")
        limited.now += 121
        assert (await greeted(two, CLIENT)).startswith(b"220 ")
        assert one.intake.refusals[0].stage == "CONNECT"
    assert limited.lines == [("Connection", 4.0, CLIENT, "127.1.0.1/32"), ("Connection", 5.0, CLIENT, "127.1.0.1/32")]


async def test_a_network_is_counted_as_one() -> None:
    limited = Limited(connection_rate_limit=1, ipv4_prefix_length=24)
    async with limited.serving() as server:
        assert (await greeted(server, CLIENT)).startswith(b"220 ")
        assert (await greeted(server, NEIGHBOUR)).startswith(b"421 4.7.0")
        assert (await greeted(server, OTHER)).startswith(b"220 ")


async def test_mail_beyond_the_limit_gets_450() -> None:
    limited = Limited(message_rate_limit=2)
    async with limited.serving() as server:
        client = await ready(server, CLIENT)
        for _ in range(2):
            await client.to_data()
            await client.send(b"x\r\n.\r\n")
            assert (await client.reply()).startswith(b"250")
        reply = await client.ask(b"MAIL FROM:<a@example.com>")
        assert reply == f"450 4.7.1 Error: too much mail from {CLIENT}\r\n".encode()
        again = await ready(server, CLIENT)
        assert (await again.ask(b"MAIL FROM:<a@example.com>")).startswith(b"450 4.7.1")
        ours = await ready(server, US)
        for _ in range(4):
            assert (await ours.ask(b"MAIL FROM:<a@example.com>")).startswith(b"250")
            await ours.ask(b"RSET")
    assert len(server.intake.messages) == 2
    assert server.intake.refusals[0].stage == "MAIL"
    assert limited.lines[0] == ("Message delivery request", 3.0, CLIENT, "127.1.0.1/32")


async def test_recipients_beyond_the_limit_get_450() -> None:
    """Those that are refused count as well: a search for addresses ends, too."""
    limited = Limited(recipient_rate_limit=3)
    async with limited.serving() as server:
        client = await ready(server, CLIENT)
        await client.ask(b"MAIL FROM:<a@example.com>")
        replies = [
            await client.ask(b"RCPT TO:<b%d@example.%s>" % (number, b"org" if number % 2 else b"net"))
            for number in range(5)
        ]
        assert [reply[:3] for reply in replies] == [b"554", b"250", b"554", b"450", b"450"]
        assert replies[3] == f"450 4.7.1 Error: too many recipients from {CLIENT}\r\n".encode()
    assert limited.lines[0][0] == "Recipient address"


async def test_errors_beyond_the_limit_end_sessions_and_refuse_new_ones() -> None:
    limited = Limited(error_rate_limit=4)
    async with limited.serving() as server:
        for _ in range(2):
            client = await ready(server, CLIENT)
            assert (await client.ask(b"WHAT")).startswith(b"500")
            assert (await client.ask(b"WHAT")).startswith(b"500")
        client = await ready(server, CLIENT)
        assert (await client.ask(b"WHAT")).startswith(b"500")
        assert await client.rest() == b"421 4.7.0 mx.example.net Error: too many errors\r\n"
        refusal = f"421 4.7.0 mx.example.net Error: too many errors from {CLIENT}\r\n".encode()
        assert await greeted(server, CLIENT) == refusal
        ours = await ready(server, US)
        for _ in range(6):
            assert (await ours.ask(b"WHAT")).startswith(b"500")
        await eventually(lambda: len(server.server.sessions) <= 3)


async def test_without_limits_nothing_is_counted() -> None:
    assert not Clients().has_rates
    async with serving(networks=[US], domains=["example.org"]) as server:
        assert server.server._admission._rates is None
        client = await ready(server, CLIENT)
        for _ in range(5):
            assert (await client.ask(b"MAIL FROM:<a@example.com>")).startswith(b"250")
            await client.ask(b"RSET")


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.130", "192.0.2.128/25"),
        ("2001:db8:1:2::3", "2001:db8:1::/48"),
        ("unknown", "unknown"),
    ],
)
def test_the_network_of_an_address(address: str, network: str) -> None:
    assert network_of(address, 25, 48) == network
