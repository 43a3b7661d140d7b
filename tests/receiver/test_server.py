"""The server around its sessions: connections bounded, time-outs, STARTTLS, no descriptors left. Real sockets."""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
from collections.abc import Iterator

import pytest

from mailcore.config.clients import Clients
from mailcore.receiver.server import Server
from mailcore.supervisor.listen import listen
from tests.eventually import eventually
from tests.receiver.server_in_process import Client, serving

IDLE_TICKS = 10


async def test_too_many_connections_get_421() -> None:
    async with serving(connections_max=2) as server:
        first, _second = await server.ready(), await server.ready()
        third = await server.client()
        assert await third.rest() == b"421 4.7.0 mx.example.net Error: too many connections\r\n"
        await first.ask(b"QUIT")
        await eventually(lambda: len(server.server.sessions) == 1)
        await server.ready()
    assert server.intake.refusals[0].stage == "CONNECT"


async def test_too_many_connections_of_one_client_get_421() -> None:
    async with serving(connections_per_client_max=1, networks=("127.0.0.2/32",)) as server:
        await server.ready()
        assert (await (await server.client()).rest()).startswith(b"421 4.7.0")
        for _ in range(2):  # our own network may
            other = Client(*await asyncio.open_connection(*server.address, local_addr=("127.0.0.2", 0)))
            await other.hello()
            await other.close()


async def test_without_a_disk_nobody_is_let_in() -> None:
    async with serving() as server:
        server.intake.connect_reply = b"421 4.3.0 Mail system storage failure"
        assert await (await server.client()).rest() == b"421 4.3.0 Mail system storage failure\r\n"


def pass_time(server: Server, ticks: int) -> None:
    """Each call of the timer is 30 s: the sessions are idle after IDLE_TICKS of them."""
    server._tick_s = server.settings.idle_timeout_s / IDLE_TICKS
    for _ in range(ticks):
        server._ticking.cancel()
        server._tick()


async def test_silence_ends_the_session() -> None:
    async with serving() as server:
        client = await server.ready()
        pass_time(server.server, IDLE_TICKS)
        assert (await client.ask(b"NOOP")).startswith(b"250")
        pass_time(server.server, IDLE_TICKS + 1)
        assert await client.rest() == b"421 4.4.2 mx.example.net Error: timeout exceeded\r\n"


async def test_a_slow_upload_is_not_silence() -> None:
    async with serving() as server:
        client = await server.ready()
        await client.to_data()
        (session,) = server.server.sessions
        for _ in range(5):
            pass_time(server.server, IDLE_TICKS)
            await client.send(b"x")
            await eventually(lambda: session.heard == server.server.context.ticks)
        await client.send(b"\r\n.\r\n")
        assert (await client.reply()).startswith(b"250")


async def test_a_command_that_drips_is_silence() -> None:
    async with serving() as server:
        client = await server.ready()
        for _ in range(IDLE_TICKS + 1):
            await client.send(b"N")
            pass_time(server.server, 1)
        assert (await client.rest()).startswith(b"421 4.4.2")


async def test_waiting_for_our_own_disk_is_not_the_client_s_silence() -> None:
    async with serving() as server:
        server.intake.hold = True
        client = await server.ready()
        await client.to_data()
        await client.send(b".\r\n")
        await eventually(lambda: server.intake.held)
        pass_time(server.server, 3 * IDLE_TICKS)
        server.intake.release()
        assert (await client.reply()).startswith(b"250")


async def test_a_client_that_never_reads_is_not_read() -> None:
    endless = Clients(junk_command_limit=1_000_000)
    async with serving(error_limit=1000, command_line_limit=512, clients=endless) as server:
        client = await server.ready()
        client.writer.write(b"HELP\r\nVRFY x\r\n" * 50 + b"EHLO x\r\n" * 3_000_000)
        (session,) = server.server.sessions
        await eventually(lambda: session._write_paused)
        assert len(session._buffer) < 1_000_000
        assert session.transport is not None
        assert session.transport.get_write_buffer_size() < 1_000_000
        pass_time(server.server, IDLE_TICKS + 1)
        await eventually(lambda: not server.server.sessions)


@pytest.fixture
def file_limit() -> Iterator[int]:
    """The limit of open files, put back afterwards."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield limits[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


async def test_without_descriptors_accepting_pauses_with_one_line_and_comes_back(file_limit: int) -> None:
    async with serving() as server:
        first = await server.ready()
        last = socket.socket()
        resource.setrlimit(resource.RLIMIT_NOFILE, (last.fileno() + 1, file_limit))  # what is below is taken
        last.setblocking(False)
        last.connect_ex(server.address)
        await eventually(lambda: server.server._pause_s >= 0.4)  # it has tried again
        assert (await first.ask(b"NOOP")).startswith(b"250")
        assert [error.errno for error in server.intake.paused] == [errno.EMFILE]
        resource.setrlimit(resource.RLIMIT_NOFILE, (file_limit, file_limit))
        late = Client(*await asyncio.open_connection(sock=last))
        await late.hello()
        await late.close()
        assert len(server.intake.paused) == 1


async def test_a_listener_on_ipv6_takes_ipv6_only() -> None:
    async with serving(host="::1", networks=("::1/128",)) as server:
        client = await server.ready()
        await client.to_data()
        await client.send(b".\r\n")
        assert (await client.reply()).startswith(b"250")
    ((envelope, _, data),) = server.intake.messages
    assert envelope.client_address == "::1"
    assert b"(unknown [IPv6:::1])" in data


def test_two_processes_may_listen_on_one_port() -> None:
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{reserved.getsockname()[1]}"
        with listen(endpoint), listen(endpoint):
            pass
