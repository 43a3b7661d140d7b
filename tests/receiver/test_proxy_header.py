"""The PROXY protocol: what a listed balancer says of its client is believed, every other header is not."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
import struct
from pathlib import Path

import pytest

from mailcore.config.clients import Clients
from mailcore.config.listeners import Listener
from mailcore.receiver.proxy_header import BYTES_MAX, SIGNATURE, HeaderError, Passed, read_header, wanted
from mailcore.routing.networks import Networks, is_ours
from tests.deliverer.scripted_server import server_tls
from tests.eventually import PATIENCE_S, eventually
from tests.receiver.server_in_process import Client, Serving, any_certificate, serving

BEHIND = Listener(proxy=("127.0.0.1/32",))
CLIENT = "203.0.113.9"


def binary(
    source: str = CLIENT, target: str = "192.0.2.25", *, command: int = 0x21, family: int = 0, more: bytes = b""
) -> bytes:
    """A header of version 2."""
    ends = ipaddress.ip_address(source), ipaddress.ip_address(target)
    body = ends[0].packed + ends[1].packed + struct.pack("!HH", 40_001, 25) + more
    family = family or (0x11 if ends[0].version == 4 else 0x21)
    return SIGNATURE + struct.pack("!BBH", command, family, len(body)) + body


def text(source: str = CLIENT, target: str = "192.0.2.25", family: str = "TCP4") -> bytes:
    return f"PROXY {family} {source} {target} 40001 25\r\n".encode()


VALUE = struct.pack("!BH", 0x04, 3) + b"abc"
GOOD = {
    "text, IPv4": (text(), CLIENT),
    "text, IPv6": (text("2001:DB8::9", "2001:db8::19", "TCP6"), "2001:db8::9"),
    "text, a mapped address": (text("::ffff:203.0.113.9", "::ffff:192.0.2.25", "TCP6"), CLIENT),
    "binary, IPv4": (binary(), CLIENT),
    "binary, IPv6": (binary("2001:db8::9", "2001:db8::19"), "2001:db8::9"),
    "binary, a mapped address": (binary("::ffff:203.0.113.9", "::ffff:192.0.2.25"), CLIENT),
    "binary with values": (binary(more=VALUE + VALUE), CLIENT),
    "binary as long as it may be": (binary(more=struct.pack("!BH", 0x04, 4065) + b"x" * 4065), CLIENT),
}
UNNAMED = {
    "text, unknown": b"PROXY UNKNOWN\r\n",
    "text, unknown with more": b"PROXY UNKNOWN ffff:f...f:ffff 65535 65535\r\n",
    "binary, local": SIGNATURE + struct.pack("!BBH", 0x20, 0, 0),
    "binary, local with an address that is ignored": binary(command=0x20),
    "binary, unspecified": SIGNATURE + struct.pack("!BBH", 0x21, 0, 0),
    "binary, a Unix socket": SIGNATURE + struct.pack("!BBH", 0x21, 0x31, 216) + b"/x".ljust(216, b"\0"),
}
BAD = {
    "no header": (b"EHLO client.example\r\n", "does not begin with a PROXY header"),
    "text, lower case": (text().lower(), "does not begin with a PROXY header"),
    "text, nothing in it": (b"PROXY TCP4\r\n", "malformed"),
    "text, two blanks": (text().replace(b"TCP4 ", b"TCP4  "), "malformed"),
    "text, a bare LF": (text().replace(b"\r\n", b"\n"), "malformed"),
    "text, an unknown family": (text(family="UDP4"), "malformed"),
    "text, a name for an address": (text("localhost"), "malformed"),
    "text, the other family": (text("2001:db8::9"), "not IPv4"),
    "text, an octet too large": (text("203.0.113.256"), "not IPv4"),
    "text, IPv4 as IPv6": (text(family="TCP6"), "not IPv6"),
    "text, a zone": (text("fe80::1%lo", "fe80::2", "TCP6"), "malformed"),
    "text, a port too large": (text().replace(b"40001", b"65536"), "port above 65535"),
    "text, a port with a zero": (text().replace(b"40001", b"01"), "malformed"),
    "text, a negative port": (text().replace(b"40001", b"-1"), "malformed"),
    "text, too long": (b"PROXY UNKNOWN " + b"x" * 200 + b"\r\n", "longer than 107 bytes"),
    "text, endless": (b"PROXY " + b"x" * 500, "longer than 107 bytes"),
    "binary, another version": (binary(command=0x31), "unknown version 3"),
    "binary, another command": (binary(command=0x22), "unknown command 2"),
    "binary, another family": (binary(family=0x41), "unknown address family 4"),
    "binary, UDP": (binary(family=0x12), "not that of a TCP connection"),
    "binary, no transport": (binary(family=0x10), "not that of a TCP connection"),
    "binary, too short for IPv4": (SIGNATURE + struct.pack("!BBH", 0x21, 0x11, 4) + b"abcd", "too short for IPv4"),
    "binary, IPv4 called IPv6": (binary(family=0x21), "too short for IPv6"),
    "binary, IPv6 called IPv4": (binary("2001:db8::9", "2001:db8::19", family=0x11), "does not fit the values"),
    "binary, a value cut off": (binary(more=VALUE[:-1]), "does not fit the values"),
    "binary, half a value's length": (binary(more=b"\x04\x00"), "does not fit the values"),
    "binary, too long": (binary(more=struct.pack("!BH", 0x04, 4066) + b"x" * 4066), f"at most {BYTES_MAX}"),
    "binary, much too long": (SIGNATURE + struct.pack("!BBH", 0x21, 0x11, 65_535), f"at most {BYTES_MAX}"),
}


@pytest.mark.parametrize("case", GOOD)
def test_a_header_is_read_byte_by_byte(case: str) -> None:
    header, client = GOOD[case]
    for length in range(len(header)):
        assert wanted(header[:length]) > 0
        if not header.startswith(b"PROXY") or length < 12:
            assert wanted(header[:length]) <= len(header) - length, "a byte behind the header was asked for"
    assert wanted(header) == 0
    passed = read_header(header)
    assert (passed.client, passed.client_port, passed.server_port) == (client, 40_001, 25)


@pytest.mark.parametrize("case", UNNAMED)
def test_a_header_may_name_no_client(case: str) -> None:
    assert wanted(UNNAMED[case]) == 0
    assert read_header(UNNAMED[case]) == Passed("", 0, "", 0)


@pytest.mark.parametrize("case", BAD)
def test_a_malformed_header_is_refused_and_what_is_wrong_is_named(case: str) -> None:
    header, why = BAD[case]
    with pytest.raises(HeaderError, match=why):
        read(header)


def read(data: bytes) -> Passed:
    """Reads as the server does, from data that is all there."""
    had = b""
    while count := wanted(had):
        piece = data[len(had) :][:count]
        assert piece, "the header is not complete"
        if had.startswith(b"PROXY "):
            piece = piece[: piece.find(b"\n") + 1 or len(piece)]
        had += piece
    return read_header(had)


async def delivered(client: Client) -> None:
    await client.hello()
    await client.to_data()
    await client.send(b"x\r\n.\r\n")
    assert (await client.reply()).startswith(b"250")


# -- on a server


@pytest.mark.parametrize("case", GOOD)
async def test_the_client_is_the_one_in_the_header(case: str) -> None:
    """In policy, record and Received, although the balancer is in our own networks."""
    header, address = GOOD[case]
    async with serving(rule=BEHIND, domains=["example.org"]) as server:
        client = await server.client()
        await client.send(header)
        await client.hello()
        await client.ask(b"MAIL FROM:<a@example.com>")
        assert (await client.ask(b"RCPT TO:<b@example.net>")).startswith(b"554 5.7.1"), "the balancer's rights are used"
        assert (await client.ask(b"RCPT TO:<b@example.org>")).startswith(b"250")
        await client.ask(b"DATA")
        await client.send(b"x\r\n.\r\n")
        assert (await client.reply()).startswith(b"250")
    ((envelope, _, data),) = server.intake.messages
    assert (envelope.client_address, envelope.client_port) == (address, 40_001)
    assert envelope.server_address in ("192.0.2.25", "2001:db8::19")
    literal = f"IPv6:{address}" if ":" in address else address
    assert f"(unknown [{literal}])".encode() in data
    assert server.intake.refusals[0].client_address == address
    assert server.intake.proxies_refused == []


async def test_a_client_of_our_own_networks_behind_the_balancer_is_trusted() -> None:
    async with serving(rule=BEHIND, networks=["203.0.113.0/24"]) as server:
        client = await server.client()
        await client.send(text())
        await delivered(client)


@pytest.mark.parametrize("case", UNNAMED)
async def test_a_client_that_is_not_named_is_not_trusted(case: str) -> None:
    """A health check gets its greeting; mail from a client that the balancer cannot name is not relayed."""
    async with serving(rule=BEHIND, domains=["example.org"]) as server:
        client = await server.client()
        await client.send(UNNAMED[case])
        await client.hello()
        await client.ask(b"MAIL FROM:<a@example.com>")
        assert (await client.ask(b"RCPT TO:<b@example.net>")).startswith(b"554 5.7.1")
        await client.ask(b"RSET")
        await client.to_data(b"b@example.com", b"c@example.org")
        await client.send(b"x\r\n.\r\n")
        assert (await client.reply()).startswith(b"250")
        assert (await client.ask(b"QUIT")).startswith(b"221")
    ((envelope, _, data),) = server.intake.messages
    assert (envelope.client_address, envelope.client_port) == ("unknown", 0)
    assert b"(unknown [unknown])" in data
    assert not is_ours(envelope, Networks(["127.0.0.0/8"])), "its mail would be signed as ours"
    await eventually(lambda: not server.server._admission._per_network)


@pytest.mark.parametrize("networks", [[], ["127.0.0.0/8"]])
async def test_a_client_that_is_not_named_may_not_say_what_the_balancer_may(networks: list[str]) -> None:
    hosts = Clients(xclient_networks=("127.0.0.1",))
    async with serving(rule=BEHIND, domains=["example.org"], networks=networks, clients=hosts) as server:
        client = await server.client()
        await client.send(b"PROXY UNKNOWN\r\n")
        await client.reply()
        assert b"XCLIENT" not in await client.ask(b"EHLO client.example")
        assert (await client.ask(b"XCLIENT ADDR=127.0.0.1")).startswith(b"550 5.7.0")


@pytest.mark.parametrize("case", BAD)
async def test_a_malformed_header_ends_the_connection_with_a_line_in_the_log(case: str) -> None:
    header, why = BAD[case]
    async with serving(rule=BEHIND) as server:
        client = await server.client()
        await client.send(header)
        assert await rest(client) == b"", "a reply"
        await eventually(lambda: server.intake.proxies_refused)
        assert not server.server.sessions
    ((balancer, said),) = server.intake.proxies_refused
    assert balancer == "127.0.0.1"
    assert why in said
    assert server.intake.refusals == []
    assert server.intake.failures == []


async def rest(client: Client) -> bytes:
    try:
        return await client.rest()
    except ConnectionResetError:  # bytes that were not read
        return b""


@pytest.mark.parametrize("header", [text(), binary()])
async def test_a_header_that_arrives_slowly_is_read_until_its_time_is_over(header: bytes) -> None:
    async with serving(rule=BEHIND, networks=["203.0.113.0/24"]) as server:
        patient = await server.client()
        for byte in header:
            await patient.send(bytes([byte]))
            await asyncio.sleep(0.002)
        await delivered(patient)
        server.server.header_timeout_s = 0.3
        slow = await server.client()
        for byte in header[:-1]:
            await slow.send(bytes([byte]))
        assert await rest(slow) == b""
        assert "no complete header within 0.3 s" in server.intake.proxies_refused[0][1]


@pytest.mark.parametrize("length", [0, 1, 6, 11, 12, 15, 16, 27, 30])
@pytest.mark.parametrize("header", [text(), binary()])
async def test_a_header_that_is_cut_off_is_not_believed(header: bytes, length: int) -> None:
    if length >= len(header):
        pytest.skip("the whole header")
    async with serving(rule=BEHIND) as server:
        client = await server.client()
        await client.send(header[:length])
        client.writer.write_eof()
        assert await rest(client) == b""
        await eventually(lambda: server.intake.proxies_refused)
    assert server.intake.proxies_refused[0][1].startswith("the connection ended")


@pytest.mark.parametrize("header", [text("127.0.0.1"), binary("127.0.0.1")])
async def test_a_header_from_anyone_else_is_a_wrong_command(header: bytes) -> None:
    """Also on a listener for balancers: the client is not one of them."""
    for rule in (BEHIND, Listener()):
        async with serving(rule=rule, networks=["127.0.0.1/32"], domains=["example.org"]) as server:
            client = await server.client("127.0.0.2")
            assert (await client.reply()).startswith(b"220 ")
            await client.send(header + b"NOOP\r\n" if header.startswith(b"PROXY") else header + b"\r\nNOOP\r\n")
            errors = [await client.reply()]
            while not errors[-1].startswith(b"250"):
                errors.append(await client.reply())
            assert all(reply.startswith(b"500 5.5.2") for reply in errors[:-1])
            await client.ask(b"EHLO client.example")
            await client.ask(b"MAIL FROM:<a@example.com>")
            assert (await client.ask(b"RCPT TO:<b@example.net>")).startswith(b"554 5.7.1")
        assert {refusal.client_address for refusal in server.intake.refusals} == {"127.0.0.2"}


async def test_a_second_header_is_a_wrong_command() -> None:
    async with serving(rule=BEHIND) as server:
        client = await server.client()
        await client.send(text() + text("127.0.0.1"))
        assert (await client.reply()).startswith(b"220 ")
        assert (await client.reply()).startswith(b"500 5.5.2")


@pytest.mark.parametrize("header", [text(), binary(more=VALUE)])
async def test_the_header_comes_before_implicit_tls(tmp_path: Path, header: bytes) -> None:
    """Sent together with the client's hello: no byte of the handshake is taken for the header."""
    rule = Listener(proxy=("127.0.0.1/32",), tls="implicit")
    async with serving(tls=server_tls(tmp_path), rule=rule, networks=["203.0.113.0/24"]) as server:
        said = await asyncio.to_thread(speak_tls, server, header)
        assert said.startswith(b"220 ")
    assert server.intake.messages[0][0].client_address == CLIENT
    assert server.intake.messages[0][0].tls.startswith("TLSv1.3")


def speak_tls(server: Serving, header: bytes) -> bytes:
    into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = any_certificate().wrap_bio(into, out)
    with socket.create_connection(server.address, timeout=PATIENCE_S) as connection:
        sent = header
        said = b""
        script = [
            b"EHLO c\r\n",
            b"MAIL FROM:<a@e.org>\r\n",
            b"RCPT TO:<b@e.net>\r\n",
            b"DATA\r\n",
            b"x\r\n.\r\n",
            b"QUIT\r\n",
        ]
        shaken = False
        while True:
            try:
                if not shaken:
                    tls.do_handshake()
                    shaken = True
                heard = tls.read(65_536)
                if not heard:
                    return said
                said += heard
                if script:
                    tls.write(script.pop(0))
            except ssl.SSLWantReadError:
                connection.sendall(sent + out.read())
                sent = b""
                came = connection.recv(65_536)
                if not came:
                    return said
                into.write(came)
            except ssl.SSLZeroReturnError:
                return said


async def test_connections_without_their_header_are_bounded() -> None:
    """They count among all connections; one client behind the balancer has no more than it may have."""
    async with serving(rule=BEHIND, connections_max=3, connections_per_client_max=1, connections_reserved=0) as server:
        waiting = [await server.client() for _ in range(3)]
        await eventually(lambda: len(server.server._headers) == 3)
        assert await rest(await server.client()) == b""
        assert server.intake.proxies_refused[0][1] == "too many connections"
        await waiting[0].send(text())
        await eventually(lambda: server.server.sessions)
        await waiting[1].send(text())
        assert (await waiting[1].reply()).startswith(
            b"421 4.7.0 mx.example.net Error: too many connections from " + CLIENT.encode()
        )
        await waiting[2].send(text("203.0.113.10"))
        assert (await waiting[2].reply()).startswith(b"220 ")
        await eventually(lambda: not server.server._headers)


async def test_connections_without_their_header_do_not_fill_the_reserve() -> None:
    async with serving(rule=BEHIND, networks=["127.0.0.0/8"], connections_max=40, connections_reserved=8) as server:
        waiting = [await server.client() for _ in range(40)]
        await eventually(lambda: len(server.intake.proxies_refused) == 16)
        ours = await server.client("127.0.0.2")  # of our networks, and no balancer
        await ours.hello()
        for client in waiting:
            client.reset()


async def test_a_trusted_client_behind_a_balancer_has_the_reserve() -> None:
    async with serving(rule=BEHIND, networks=["198.51.100.1"], connections_max=40, connections_reserved=8) as server:
        others = [await server.client() for _ in range(24)]
        for number, client in enumerate(others):
            await client.send(text(f"203.0.113.{number}"))
            assert (await client.reply()).startswith(b"220 ")
        other, ours = await server.client(), await server.client()
        await other.send(text("203.0.113.200"))
        assert (await other.reply()).startswith(b"421 ")
        await ours.send(text("198.51.100.1"))
        assert (await ours.reply()).startswith(b"220 ")
