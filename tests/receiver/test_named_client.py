"""XCLIENT and XFORWARD: a listed host names the client, every other host is refused."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mailcore.config.clients import Clients
from mailcore.receiver.client_attributes import XCLIENT, XFORWARD, AttributeRefused, read_attributes
from mailcore.receiver.client_rates import ClientRates
from mailcore.supervisor.shared_counts import Counts
from tests.receiver.logins import submission, user
from tests.receiver.server_in_process import Client, Serving, serving

PROXY = "127.0.0.2"  # trusted and listed; the client of the tests is neither
HOSTS = Clients(xclient_networks=(PROXY,), xforward_networks=(PROXY,))
ADDRESS = "203.0.113.9"


@contextlib.asynccontextmanager
async def named(**more: Any) -> AsyncIterator[tuple[Serving, Client]]:
    """A server with a proxy that has said EHLO."""
    settings = {"clients": HOSTS, "networks": ["127.0.0.0/8"], "domains": ["example.org"], **more}
    async with serving(**settings) as server:
        client = await server.client(PROXY)
        await client.hello()
        yield server, client


async def relays(client: Client) -> bytes:
    """The reply to a recipient of a domain that is not ours."""
    assert (await client.ask(b"MAIL FROM:<a@example.com>")).startswith(b"250")
    return await client.ask(b"RCPT TO:<b@example.net>")


async def deliver(client: Client) -> None:
    await client.to_data()
    await client.send(b"x\r\n.\r\n")
    assert (await client.reply()).startswith(b"250")


# -- values


@pytest.mark.parametrize(
    ("given", "name", "value"),
    [
        (b"NAME=client.example", "NAME", "client.example"),
        (b"name=Client.Example", "NAME", "Client.Example"),
        (b"NAME=[UNAVAILABLE]", "NAME", ""),
        (b"NAME=[TEMPUNAVAIL]", "NAME", ""),
        (b"NAME=[tempunavail]", "NAME", ""),
        (b"ADDR=203.0.113.9", "ADDR", ADDRESS),
        (b"ADDR=IPV6:2001:DB8::9", "ADDR", "2001:db8::9"),
        (b"ADDR=IPv6:2001:db8:0::9", "ADDR", "2001:db8::9"),
        (b"ADDR=2001:db8::9", "ADDR", "2001:db8::9"),
        (b"ADDR=IPV6:::ffff:203.0.113.9", "ADDR", ADDRESS),
        (b"ADDR=203.0.113+2E9", "ADDR", ADDRESS),
        (b"ADDR=[UNAVAILABLE]", "ADDR", ""),
        (b"PORT=40001", "PORT", "40001"),
        (b"PROTO=esmtp", "PROTO", "ESMTP"),
        (b"HELO=a+2Bb", "HELO", "a+b"),
        (b"HELO=[203.0.113.9]", "HELO", "[203.0.113.9]"),
        (b"HELO=a=b", "HELO", "a=b"),
        (b"LOGIN=a+40example.org", "LOGIN", "a@example.org"),
    ],
)
def test_a_value_is_decoded(given: bytes, name: str, value: str) -> None:
    assert read_attributes("XCLIENT", given, XCLIENT) == {name: value}


@pytest.mark.parametrize(
    ("given", "reply"),
    [
        (b"", "501 5.5.4 Syntax: XCLIENT attribute=value..."),
        (b"ADDR", "501 5.5.4 Error: attribute=value expected"),
        (b"ADDR=", "501 5.5.4 Bad ADDR syntax: "),
        (b"IDENT=x", "501 5.5.4 Bad XCLIENT attribute name: IDENT"),
        (b"HELLO=x", "501 5.5.4 Bad XCLIENT attribute name: HELLO"),
        (b"NAME=+", "501 5.5.4 Bad attribute value syntax: +"),
        (b"NAME=+4", "501 5.5.4 Bad attribute value syntax: +4"),
        (b"NAME=+GG", "501 5.5.4 Bad attribute value syntax: +GG"),
        (b"NAME=a+0D+0Ab", "501 5.5.4 Bad NAME syntax: a+0D+0Ab"),
        (b"NAME=a+20b", "501 5.5.4 Bad NAME syntax: a+20b"),
        (b"NAME=a)b", "501 5.5.4 Bad NAME syntax: a)b"),
        (b"NAME=-a.example", "501 5.5.4 Bad NAME syntax: -a.example"),
        (b"NAME=" + b"a." * 128, "501 5.5.4 Bad NAME syntax: " + "a." * 50),
        (b"NAME=\xe9.example", "501 5.5.4 Bad attribute value syntax: ?.example"),
        (b"ADDR=client.example", "501 5.5.4 Bad ADDR syntax: client.example"),
        (b"ADDR=203.0.113.256", "501 5.5.4 Bad ADDR syntax: 203.0.113.256"),
        (b"ADDR=IPV6:203.0.113.9", "501 5.5.4 Bad ADDR syntax: IPV6:203.0.113.9"),
        (b"ADDR=fe80::1+25lo", "501 5.5.4 Bad ADDR syntax: fe80::1+25lo"),
        (b"PORT=65536", "501 5.5.4 Bad PORT syntax: 65536"),
        (b"PORT=-1", "501 5.5.4 Bad PORT syntax: -1"),
        (b"PROTO=LMTP", "501 5.5.4 Bad PROTO syntax: LMTP"),
        (b"HELO=a+00b", "501 5.5.4 Bad HELO syntax: a+00b"),
        (b"HELO=a+0Ab", "501 5.5.4 Bad HELO syntax: a+0Ab"),
        (b"HELO=+E9", "501 5.5.4 Bad HELO syntax: +E9"),
        (b"LOGIN=a+20b", "501 5.5.4 Bad LOGIN syntax: a+20b"),
        (b"ADDR=203.0.113.9 PORT=x", "501 5.5.4 Bad PORT syntax: x"),
    ],
)
def test_a_value_of_another_syntax_is_refused(given: bytes, reply: str) -> None:
    with pytest.raises(AttributeRefused) as refused:
        read_attributes("XCLIENT", given, XCLIENT)
    assert str(refused.value) == reply


# -- XCLIENT


async def test_only_a_listed_host_is_offered_the_commands() -> None:
    async with named() as (server, client):
        reply = await client.ask(b"EHLO proxy.example")
        lines = reply.split(b"\r\n")
        assert lines[-3] == b"250-XCLIENT NAME ADDR PORT PROTO HELO"
        assert lines[-2] == b"250 XFORWARD NAME ADDR PORT PROTO HELO IDENT SOURCE"
        assert all(line.startswith(b"250-") for line in lines[:-2])
        other = await server.client("127.0.0.1")
        await other.reply()
        assert b"XCLIENT" not in await other.ask(b"EHLO client.example")
        assert b"XFORWARD" not in await other.ask(b"EHLO client.example")
    only = Clients(xforward_networks=(PROXY,))
    async with named(clients=only) as (_, client):
        reply = await client.ask(b"EHLO proxy.example")
        assert b"XCLIENT" not in reply
        assert reply.endswith(b"\r\n250 XFORWARD NAME ADDR PORT PROTO HELO IDENT SOURCE\r\n")


@pytest.mark.parametrize("clients", [HOSTS, Clients()])
@pytest.mark.parametrize("verb", [b"XCLIENT", b"XFORWARD"])
async def test_every_other_host_is_refused(clients: Clients, verb: bytes) -> None:
    async with serving(clients=clients, networks=["203.0.113.0/24"], domains=["example.org"]) as server:
        client = await server.client("127.0.0.1")
        await client.hello()
        assert await client.ask(verb + b" ADDR=203.0.113.9") == b"550 5.7.0 Error: insufficient authorization\r\n"
        assert (await relays(client)).startswith(b"554 5.7.1")
        await client.ask(b"RSET")
        await deliver(client)
    assert server.intake.messages[0][0].client_address == "127.0.0.1"


async def test_the_client_takes_the_place_of_the_host() -> None:
    """In policy, record, log and Received; the session begins again."""
    async with named() as (server, client):
        assert await client.ask(b"XCLIENT NAME=client.example ADDR=203.0.113.9 PORT=40001") == (
            b"220 mx.example.net ESMTP Waypost\r\n"
        )
        assert (await client.ask(b"MAIL FROM:<a@example.com>")).startswith(b"503 5.5.1 Error: send HELO/EHLO first")
        await client.ask(b"EHLO client.example")
        assert (await relays(client)).startswith(b"554 5.7.1"), "the rights of the host are used"
        await client.ask(b"RSET")
        await deliver(client)
        assert len(server.server._guard._untrusted) == 1, "the guard does not watch the client"
    ((envelope, _, data),) = server.intake.messages
    assert (envelope.client_address, envelope.client_port) == (ADDRESS, 40_001)
    assert envelope.client_name == "client.example"
    assert b"(client.example [203.0.113.9])" in data
    assert server.intake.refusals[0].client_address == ADDRESS
    assert server.intake.refusals[0].client_name == "client.example"


async def test_a_client_of_our_networks_is_trusted() -> None:
    async with named(networks=["203.0.113.0/24"]) as (server, client):
        assert (await relays(client)).startswith(b"554")
        await client.ask(b"RSET")
        await client.ask(b"XCLIENT ADDR=203.0.113.9")
        await client.ask(b"EHLO client.example")
        assert (await relays(client)).startswith(b"250")
        assert not server.server._guard._untrusted


async def test_a_client_whose_address_is_not_known_is_not_trusted() -> None:
    async with named() as (server, client):
        await client.ask(b"XCLIENT ADDR=[UNAVAILABLE] NAME=[TEMPUNAVAIL] PORT=[UNAVAILABLE]")
        await client.ask(b"EHLO client.example")
        assert (await relays(client)).startswith(b"554 5.7.1")
        await client.ask(b"RSET")
        await deliver(client)
    ((envelope, _, data),) = server.intake.messages
    assert (envelope.client_address, envelope.client_name, envelope.client_port) == ("unknown", "", 0)
    assert b"(unknown [unknown])" in data


async def test_the_permission_stays_that_of_the_connection() -> None:
    """The next client may be named in the same session; and the counts of connections stay right."""
    async with named() as (server, client):
        for address in (b"203.0.113.9", b"203.0.113.10"):
            assert (await client.ask(b"XCLIENT ADDR=" + address)).startswith(b"220 ")
            await client.ask(b"EHLO client.example")
            await deliver(client)
        assert server.server._admission._per_network == {"203.0.113.10/32": 1}
        await client.close()
    assert [envelope.client_address for envelope, _, _ in server.intake.messages] == [ADDRESS, "203.0.113.10"]
    assert server.server._admission._per_network == {}
    assert server.intake.failures == []


async def test_helo_and_proto_may_be_given_by_the_host() -> None:
    async with named() as (server, client):
        await client.ask(b"XCLIENT ADDR=203.0.113.9 HELO=client.example PROTO=ESMTP")
        await deliver(client)
        await client.ask(b"XCLIENT ADDR=203.0.113.9 HELO=client.example PROTO=SMTP")
        await deliver(client)
    assert (
        b"Received: from client.example (unknown [203.0.113.9])\r\n\tby mx.example.net (Waypost) with ESMTP id"
        in (server.intake.messages[0][2])
    )
    assert b" with SMTP id" in server.intake.messages[1][2]


@pytest.mark.parametrize("verb", [b"XCLIENT", b"XFORWARD"])
async def test_not_inside_a_transaction(verb: bytes) -> None:
    async with named() as (_, client):
        await client.ask(b"MAIL FROM:<a@example.com>")
        assert (await client.ask(verb + b" ADDR=203.0.113.9")).startswith(
            b"503 5.5.1 Error: MAIL transaction in progress"
        )


async def test_a_command_that_is_refused_changes_nothing() -> None:
    async with named() as (server, client):
        assert (await client.ask(b"XCLIENT ADDR=203.0.113.9 PORT=x")).startswith(b"501 5.5.4 Bad PORT syntax")
        assert (await client.ask(b"XCLIENT LOGIN=a@example.org")).startswith(b"501 5.5.4 Bad XCLIENT attribute name")
        assert (await client.ask(b"XFORWARD ADDR=x")).startswith(b"501 5.5.4 Bad ADDR syntax")
        await deliver(client)
    envelope = server.intake.messages[0][0]
    assert (envelope.client_address, envelope.original_client) == (PROXY, "")


async def test_login_is_that_of_a_user_of_ours(tmp_path: Path) -> None:
    """A proxy checks the password; the user's limits and sender addresses are ours, and another client has no login."""
    clients = Clients(xclient_networks=("127.0.0.1",))
    users = user("alice", senders=("alice@example.org",)), user("bob", enabled=False)
    async with submission(tmp_path, *users, clients=clients) as server:
        client = await server.client()
        assert b"XCLIENT NAME ADDR PORT PROTO HELO LOGIN\r\n" in await client.ask(b"EHLO proxy.example")
        for name in (b"bob", b"carol"):
            assert (await client.ask(b"XCLIENT LOGIN=" + name)).startswith(b"550 5.7.1 Error: LOGIN names no user")
        await client.ask(b"XCLIENT ADDR=203.0.113.9 LOGIN=alice")
        await client.ask(b"EHLO client.example")
        assert (await client.ask(b"MAIL FROM:<eve@example.org>")).startswith(b"553 5.7.1")
        await client.to_data(b"alice@example.org")
        await client.send(b"x\r\n.\r\n")
        assert (await client.reply()).startswith(b"250")
        await client.ask(b"XCLIENT ADDR=203.0.113.10")
        await client.ask(b"EHLO client.example")
        assert (await client.ask(b"MAIL FROM:<alice@example.org>")).startswith(b"530 5.7.0")
        await client.ask(b"XCLIENT ADDR=203.0.113.9 LOGIN=alice")
        await client.ask(b"EHLO client.example")
        await server.changed()
        assert (await client.ask(b"MAIL FROM:<alice@example.org>")).startswith(b"421 4.7.0"), "the user is gone"
    ((envelope, _, _),) = server.intake.messages
    assert (envelope.login, envelope.login_method, envelope.client_address) == ("alice", "XCLIENT", ADDRESS)


# -- XFORWARD


async def test_xforward_changes_only_the_log() -> None:
    """Policy, Received and the client of the record stay those of the connection; it ends with the transaction."""
    async with named() as (server, client):
        assert await client.ask(b"XFORWARD NAME=client.example ADDR=203.0.113.9") == b"250 2.0.0 Ok\r\n"
        assert (await client.ask(b"XFORWARD IDENT=4Abc PROTO=ESMTP HELO=x SOURCE=REMOTE")).startswith(b"250")
        await deliver(client)
        await deliver(client)
        await client.ask(b"XFORWARD NAME=client.example ADDR=203.0.113.9")
        await client.ask(b"RSET")
        await deliver(client)
        await client.ask(b"XFORWARD NAME=[UNAVAILABLE] ADDR=203.0.113.9")
        assert (await relays(client)).startswith(b"250"), "the host may relay"
        await client.ask(b"DATA")
        await client.send(b"x\r\n.\r\n")
        await client.reply()
    envelopes = [envelope for envelope, _, _ in server.intake.messages]
    assert [each.client_address for each in envelopes] == [PROXY] * 4
    assert [(each.original_client, each.original_queue_id) for each in envelopes] == [
        ("client.example[203.0.113.9]", "4Abc"),
        ("", ""),
        ("", ""),
        ("unknown[203.0.113.9]", ""),
    ]
    assert ADDRESS.encode() not in server.intake.messages[0][2]


def test_xforward_knows_its_attributes() -> None:
    with pytest.raises(AttributeRefused, match="Bad XFORWARD attribute name: LOGIN"):
        read_attributes("XFORWARD", b"LOGIN=x", XFORWARD)
    with pytest.raises(AttributeRefused, match="Bad IDENT syntax"):
        read_attributes("XFORWARD", b"IDENT=a+2Cb", XFORWARD)


# -- room

UNTRUSTED = b"XCLIENT ADDR=203.0.113.%d"
FEW: dict[str, Any] = {"networks": ["127.0.0.0/8"], "connections_max": 40, "connections_reserved": 10}  # 20 for others


async def test_clients_that_a_proxy_names_have_no_more_room_than_others() -> None:
    async with serving(clients=HOSTS, domains=["example.org"], **FEW) as server:
        taken = refused = 0
        for number in range(36):
            client = await server.client(PROXY)
            await client.hello()
            reply = await client.ask(UNTRUSTED % number)
            taken += reply.startswith(b"220 ")
            if refusal := reply.startswith(b"421 4.7.0 mx.example.net Error: too many connections\r\n"):
                assert await client.rest() == b""
            refused += refusal
        assert (taken, refused) == (20, 16)
        ours = await server.client("127.0.0.1")
        await ours.hello()
        assert {each.stage for each in server.intake.refusals} == {"CONNECT"}
    assert server.intake.failures == []


async def test_a_named_client_leaves_its_room_to_the_next_one() -> None:
    async with serving(clients=HOSTS, domains=["example.org"], **FEW) as server:
        clients = [await server.client(PROXY) for _ in range(20)]
        for number, client in enumerate(clients):
            await client.hello()
            assert (await client.ask(UNTRUSTED % number)).startswith(b"220 ")
        for _ in range(10):
            await (await server.client("127.0.0.1")).hello()
        for number, client in enumerate(clients):
            assert (await client.ask(UNTRUSTED % (100 + number))).startswith(b"220 ")


async def test_connections_are_counted_for_the_client_that_a_proxy_names() -> None:
    clients = Clients(xclient_networks=(PROXY,), ipv4_prefix_length=24, ipv6_prefix_length=64)
    async with serving(clients=clients, connections_per_client_max=2) as server:

        async def named_as(address: bytes) -> tuple[Client, bytes]:
            client = await server.client(PROXY)
            await client.hello()
            return client, await client.ask(b"XCLIENT ADDR=" + address)

        for first, second, third, other in (
            (b"203.0.113.1", b"203.0.113.2", b"203.0.113.3", b"198.51.100.1"),
            (b"IPV6:2001:db8::1", b"IPV6:2001:db8::2:0:0:1", b"IPV6:2001:db8::3", b"IPV6:2001:db8:0:1::1"),
        ):
            one, reply = await named_as(first)
            assert reply.startswith(b"220 ")
            assert (await named_as(second))[1].startswith(b"220 ")
            reply = (await named_as(third))[1]
            assert reply.startswith(b"421 4.7.0 mx.example.net Error: too many connections from ")
            assert (await one.ask(b"XCLIENT ADDR=" + other)).startswith(b"220 ")
            assert (await named_as(third))[1].startswith(b"220 "), "the other one is not counted here any longer"
            assert (await one.ask(b"XCLIENT ADDR=" + first)).startswith(b"421 4.7.0")
    assert server.server._admission._per_network == {}


async def test_connections_of_named_clients_are_counted_in_their_rate() -> None:
    clients = Clients(xclient_networks=(PROXY,), connection_rate_limit=2)
    rates = ClientRates(clients, Counts(None, 600.0, lambda: 1e6), Unlogged(), lambda: True)
    async with serving(clients=clients, rates=rates) as server:
        for number in range(4):
            client = await server.client(PROXY)
            await client.hello()
            for _ in range(2):  # once for one client
                reply = await client.ask(UNTRUSTED % 9)
                assert reply.startswith(b"220 " if number < 2 else b"421 4.7.0"), number
                if number >= 2:
                    break


class Unlogged:
    def rate_exceeded(self, kind: str, count: float, client_address: str, network: str) -> None:
        pass
