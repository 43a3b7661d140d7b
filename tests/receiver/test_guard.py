"""Clients that hold connections: they never have those that are reserved, and under stress they have little time."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mailcore.config.listeners import Listener
from tests.deliverer.scripted_server import server_tls
from tests.eventually import eventually
from tests.receiver.logins import Submission, submission, user
from tests.receiver.server_in_process import Client, Serving, serving

OTHERS = ("127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5")
US = "127.0.0.1"
STRESS_AT = 16
# 40 connections, 10 of them for our networks and 10 for submission: others have 20, and 16 of them are stress.
BOUNDS: dict[str, Any] = {
    "connections_max": 40,
    "connections_reserved": 10,
    "stress_timeout_s": 0.5,
    "data_rate_min": 1000,
}


@contextlib.asynccontextmanager
async def attacked(count: int, **more: Any) -> AsyncIterator[tuple[Serving, list[Client]]]:
    async with serving(networks=[US], domains=["example.org"], **{**BOUNDS, **more}) as server:
        clients = [await server.client(OTHERS[number % len(OTHERS)]) for number in range(count)]
        for client in clients:
            assert (await client.reply()).startswith(b"220 ")
        yield server, clients


async def trickle(client: Client, data: bytes, every_s: float) -> None:
    with contextlib.suppress(OSError):
        for byte in data:
            await client.send(bytes([byte]))
            await asyncio.sleep(every_s)


async def test_untrusted_clients_never_have_the_connections_that_are_reserved() -> None:
    async with attacked(20, stress_timeout_s=600) as (server, clients):
        refused = await server.client(OTHERS[0])
        assert (await refused.reply()).startswith(b"421 4.7.0 mx.example.net Error: too many connections")
        ours = [await server.client(US) for _ in range(20)]
        for client in ours:
            await client.hello()
        beyond = await server.client(US)
        assert (await beyond.reply()).startswith(b"421 4.7.0")
        await clients[0].close()
        await eventually(lambda: len(server.server.sessions) == 39)
        still_ours = await server.client(OTHERS[1])
        assert (await still_ours.reply()).startswith(b"421 4.7.0"), "the place that got free is one that is reserved"


async def test_a_reserve_is_for_submission() -> None:
    rule = Listener(purpose="submission", tls="none", auth="off")
    async with serving(networks=[US], rule=rule, **BOUNDS) as server:
        clients = [await server.client(OTHERS[number % 4]) for number in range(30)]
        for client in clients:
            assert (await client.reply()).startswith(b"220 ")
        assert (await (await server.client(OTHERS[0])).reply()).startswith(b"421 ")
        assert (await (await server.client(US)).reply()).startswith(b"220 ")


async def test_a_small_server_keeps_most_for_all() -> None:
    async with serving(networks=[US], connections_max=4, connections_reserved=50) as server:
        for _ in range(2):
            assert (await (await server.client(OTHERS[0])).reply()).startswith(b"220 ")
        assert (await (await server.client(OTHERS[0])).reply()).startswith(b"421 ")


async def test_slow_commands_end_under_stress_and_our_mail_is_taken() -> None:
    async with attacked(20) as (server, clients):
        tasks = [asyncio.create_task(trickle(client, b"EHLO client.example\r\n" * 9, 0.1)) for client in clients]
        ours = await server.client(US)
        await ours.hello()
        await eventually(lambda: len(server.intake.stress) >= 2)  # some were ended, so that there is room again
        assert [begun for begun, _ in server.intake.stress[:2]] == [True, False]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        ended = [client for client in clients if client.reader.at_eof() or b"421 " in await what_came(client)]
        assert len(ended) >= len(clients) - STRESS_AT + 1
        assert (await ours.ask(b"NOOP")).startswith(b"250"), "ours is not ended"


@pytest.mark.parametrize(("rate", "lives"), [(200, False), (4000, True)])
async def test_under_stress_data_comes_at_a_minimum_rate(rate: int, lives: bool) -> None:
    async with attacked(19, stress_timeout_s=2.0) as (server, clients):
        sender = await server.client(OTHERS[0])
        await sender.hello()
        await sender.to_data()
        for client in clients:  # they are quick, and keep up the stress
            asyncio.create_task(keep(client))  # noqa: RUF006 - ends with its connection
        await eventually(lambda: server.intake.stress)
        until = time.monotonic() + 6.0
        line = b"x" * (rate // 10 - 2) + b"\r\n"
        replied = asyncio.create_task(sender.reply())
        while time.monotonic() < until and not replied.done():
            await sender.send(line)
            await asyncio.wait([replied], timeout=0.1)
        if not replied.done():
            await sender.send(b".\r\n")
        reply = await replied
        assert reply.startswith(b"250" if lives else b"421 4.4.2"), reply
        assert len(server.intake.messages) == lives


async def what_came(client: Client) -> bytes:
    """What the client has not read yet, without waiting for more."""
    came = b""
    with contextlib.suppress(TimeoutError, OSError):
        async with asyncio.timeout(0.05):
            while piece := await client.reader.read(1000):
                came += piece
    return came


async def keep(client: Client) -> None:
    """Brings mail nearer, and never sends it."""
    with contextlib.suppress(OSError, AssertionError):
        await client.ask(b"EHLO client.example")
        await client.ask(b"MAIL FROM:<a@example.com>")
        number = 0
        while (await client.ask(b"RCPT TO:<b%d@example.org>" % number)).startswith(b"250"):
            await asyncio.sleep(0.1)
            number += 1


@contextlib.asynccontextmanager
async def under_stress(**more: Any) -> AsyncIterator[Serving]:
    """Others keep up the stress, and are not ended by it."""
    async with attacked(18, **{"stress_timeout_s": 600, **more}) as (server, clients):
        keeping = [asyncio.create_task(keep(client)) for client in clients]
        await eventually(lambda: server.intake.stress)
        yield server
        for task in keeping:
            task.cancel()
        await asyncio.wait(keeping)


async def test_chunks_of_an_octet_do_not_stop_the_clock_of_a_message() -> None:
    async with under_stress(stress_timeout_s=2.0) as server:
        sender = await server.client(OTHERS[0])
        await sender.hello()
        await sender.ask(b"MAIL FROM:<a@example.com>")
        await sender.ask(b"RCPT TO:<b@example.org>")
        chunks = 0
        while (reply := await sender.ask(b"BDAT 2\r\n")).startswith(b"250"):  # and the two octets of an empty line
            chunks += 1
            assert chunks < 1_000, "the message has ended, or was never measured"
            await asyncio.sleep(0.1)
        assert reply.startswith(b"421 4.4.2"), reply


async def test_under_stress_few_commands_without_an_aim_end_a_session() -> None:
    async with under_stress() as server:
        ours, other = await server.client(US), await server.client(OTHERS[0])
        for client in (ours, other):
            assert (await client.reply()).startswith(b"220 ")
            for _ in range(2):  # as a client does that uses STARTTLS
                assert (await client.ask(b"EHLO client.example")).startswith(b"250")
            await client.to_data()
            await client.send(b"x\r\n.\r\n")
            assert (await client.reply()).startswith(b"250"), "which begins the count again"
            for _ in range(2):
                assert (await client.ask(b"NOOP")).startswith(b"250")
        assert (await other.ask(b"NOOP")).startswith(b"250")
        assert await other.rest() == b"421 4.7.0 mx.example.net Error: too many errors\r\n"
        for _ in range(50):
            assert (await ours.ask(b"NOOP")).startswith(b"250")


async def test_under_stress_the_first_error_ends_a_session() -> None:
    async with under_stress() as server:
        ours, other = await server.client(US), await server.client(OTHERS[0])
        for client in (ours, other):
            await client.hello()
            assert (await client.ask(b"WHAT")).startswith(b"500")
        assert await other.rest() == b"421 4.7.0 mx.example.net Error: too many errors\r\n"
        assert (await ours.ask(b"NOOP")).startswith(b"250")


async def test_under_stress_a_recipient_is_not_repeated() -> None:
    async with under_stress() as server:
        other = await server.client(OTHERS[0])
        await other.hello()
        await other.ask(b"MAIL FROM:<a@example.com>")
        for _ in range(3):
            assert (await other.ask(b"RCPT TO:<b@example.org>")).startswith(b"250")
        assert await other.rest() == b"421 4.7.0 mx.example.net Error: too many errors\r\n"


async def test_without_stress_a_slow_client_has_time() -> None:
    async with attacked(3) as (server, clients):
        slow = clients[0]
        await trickle(slow, b"EHLO a.example\r\n", 0.1)  # 1.6 s
        assert (await slow.reply()).startswith(b"250")
        assert server.intake.stress == []


async def test_time_in_which_we_are_slow_does_not_count() -> None:
    async with attacked(20) as (server, clients):
        sender = clients[0]
        assert (await sender.ask(b"EHLO client.example")).startswith(b"250")
        await sender.to_data()
        server.intake.hold = True
        await sender.send(b"Subject: x\r\n\r\n.\r\n")
        await eventually(lambda: len(server.intake.stress) >= 2)  # the others that said nothing are gone
        await asyncio.sleep(1.0)
        server.intake.release()
        assert (await sender.reply()).startswith(b"250")


async def test_a_session_of_an_untrusted_client_ends_after_its_longest_time() -> None:
    async with serving(networks=[US], domains=["example.org"], session_time_max_s=1) as server:
        other, ours = await server.client(OTHERS[0]), await server.client(US)
        await other.hello()
        await ours.hello()
        reply = b""
        while reply[:3] in (b"", b"250"):
            reply = await other.ask(b"EHLO client.example")
            await asyncio.sleep(0.05)
        assert reply == b"421 4.4.2 mx.example.net Error: session too long\r\n"
        assert (await ours.ask(b"NOOP")).startswith(b"250")


async def test_a_handshake_that_does_not_begin_ends_under_stress(tmp_path: Path) -> None:
    rule = Listener(tls="implicit")
    async with serving(networks=[US], tls=server_tls(tmp_path), rule=rule, **BOUNDS) as server:
        for number in range(20):
            await server.client(OTHERS[number % 4])
        await eventually(lambda: server.intake.stress)
        await eventually(lambda: len(server.server.sessions) < STRESS_AT)
        ours = await server.client_tls()
        assert (await ours.reply()).startswith(b"220 ")


@contextlib.asynccontextmanager
async def attacked_submission(tmp_path: Path, *known: str) -> AsyncIterator[Submission]:
    """Users have logged in from ``known``; then clients of another network take all that they can have."""
    bounds = {**BOUNDS, "stress_timeout_s": 600}
    async with submission(tmp_path, user("alice"), **bounds) as server:
        for source in known:
            await (await server.logged_in(source=source)).close()
        await eventually(lambda: not server.server.server.sessions)
        for number in range(30):
            await server.server.client(f"127.0.1.{1 + number}")
        await eventually(lambda: len(server.server.server.sessions) == 30)
        yield server


async def shut_out(server: Submission, source: str) -> bool:
    before = len(server.intake.refusals)
    with contextlib.suppress(OSError):
        assert await (await server.server.client(source)).rest() == b""
    return [each.client_address for each in server.intake.refusals[before:]] == [source]


async def test_an_attack_on_submission_does_not_shut_out_networks_where_users_logged_in(tmp_path: Path) -> None:
    async with attacked_submission(tmp_path, "127.0.2.1") as server:
        assert await shut_out(server, "127.0.1.99")
        assert await shut_out(server, "127.0.3.1"), "no user has logged in from there"
        ours = await server.logged_in(source="127.0.2.77")
        await ours.to_data()
        await ours.send(b"x\r\n.\r\n")
        assert (await ours.reply()).startswith(b"250")


async def test_known_networks_have_only_a_part_of_the_reserve(tmp_path: Path) -> None:
    async with attacked_submission(tmp_path, "127.0.2.1", "127.0.3.1", "127.0.4.1") as server:
        first = [await server.logged_in(source=f"127.0.2.{number}") for number in (1, 2)]
        assert await shut_out(server, "127.0.2.3"), "a fifth of the reserve is for one network"
        for source in ("127.0.3.1", "127.0.3.2", "127.0.4.1"):
            await server.logged_in(source=source)
        assert await shut_out(server, "127.0.4.2"), "half of the reserve is for all of them"
        await first[0].close()
        await eventually(lambda: len(server.server.server.sessions) == 34)
        await server.logged_in(source="127.0.4.2")


async def test_a_known_network_has_no_more_room_for_mail_from_other_servers(tmp_path: Path) -> None:
    rule = Listener(tls="implicit", auth="offered")
    async with submission(tmp_path, user("alice"), rule=rule, **{**BOUNDS, "stress_timeout_s": 600}) as server:
        await (await server.logged_in(source="127.0.2.1")).close()
        await eventually(lambda: not server.server.server.sessions)
        for number in range(20):
            await server.server.client(f"127.0.1.{1 + number}")
        await eventually(lambda: len(server.server.server.sessions) == 20)
        assert await shut_out(server, "127.0.2.1")
