"""The receiver's line to the manager: it hears of what is durable, and mail goes on without it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

import pytest

from mailcore.frames import Durable, Frame, FrameDecoder, Hello
from mailcore.receiver.manager_link import MANAGER_SOCKET, ManagerLink
from tests.eventually import eventually
from tests.receiver.running_receiver import receiving


class Manager(asyncio.Protocol):
    """Listens where the manager would; keeps the frames of each connection."""

    def __init__(self) -> None:
        self.connections: list[list[Frame]] = []
        self._transports: list[asyncio.Transport] = []
        self._server: asyncio.Server | None = None

    async def start(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        self._server = await asyncio.get_running_loop().create_unix_server(lambda: _Link(self), str(path))

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for transport in self._transports:
            transport.abort()
        await asyncio.sleep(0)


class _Link(asyncio.Protocol):
    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._decoder = FrameDecoder()
        self._frames: list[Frame] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._manager._transports.append(transport)
        self._manager.connections.append(self._frames)

    def data_received(self, data: bytes) -> None:
        self._frames.extend(self._decoder.feed(data))


MESSAGE = b"x\r\n.\r\n"


async def test_the_manager_hears_who_is_there_and_how_far_the_lane_is_durable(tmp_path: Path) -> None:
    manager = Manager()
    async with receiving(tmp_path) as receiver:
        client = await receiver.ready()
        await client.to_data(b"a@example.com", b"b@example.org")  # there is no manager yet
        await client.send(MESSAGE)
        assert (await client.reply()).startswith(b"250")
        first_end = receiver.receiving.writer.durable
        await manager.start(receiver.settings.run_directory / MANAGER_SOCKET)
        await eventually(lambda: manager.connections and len(manager.connections[0]) == 2)
        hello, durable = manager.connections[0]
        assert isinstance(hello, Hello)
        assert (hello.role, hello.number) == ("receiver", 0)
        assert durable == Durable("incoming.0", first_end, 0, 0)
        await client.to_data(b"a@example.com", b"b@example.org", b"c@example.org")
        await client.send(MESSAGE)
        assert (await client.reply()).startswith(b"250")
        await eventually(lambda: len(manager.connections[0]) == 3)
        assert manager.connections[0][2] == Durable("incoming.0", receiver.receiving.writer.durable, 1, 2)
        await manager.stop()


async def test_a_new_manager_is_told_anew(tmp_path: Path) -> None:
    manager = Manager()
    async with receiving(tmp_path) as receiver:
        path = receiver.settings.run_directory / MANAGER_SOCKET
        await manager.start(path)
        await eventually(lambda: manager.connections)
        await manager.stop()
        client = await receiver.ready()
        await client.to_data()
        await client.send(MESSAGE)
        assert (await client.reply()).startswith(b"250")
        await manager.start(path)
        await eventually(lambda: len(manager.connections) == 2 and len(manager.connections[1]) == 2)
        assert manager.connections[1][1] == Durable("incoming.0", receiver.receiving.writer.durable, 0, 0)
        await manager.stop()


async def test_a_long_path_is_no_hindrance(tmp_path: Path) -> None:
    home = tmp_path / ("d" * 60) / ("e" * 60)
    home.mkdir(parents=True)
    manager = Manager()
    listening = tmp_path / "m"
    await manager.start(listening)
    (home / MANAGER_SOCKET).symlink_to(listening)
    link = ManagerLink(home / MANAGER_SOCKET, 3, "incoming.3", 77, asyncio.get_running_loop())
    running = asyncio.create_task(link.run())
    await eventually(lambda: manager.connections and len(manager.connections[0]) == 2)
    assert manager.connections[0][1] == Durable("incoming.3", 77, 0, 0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await manager.stop()


async def test_a_manager_that_does_not_read_costs_one_number(tmp_path: Path) -> None:
    manager = Manager()
    await manager.start(tmp_path / "m")
    link = ManagerLink(tmp_path / "m", 0, "incoming.0", 0, asyncio.get_running_loop())
    running = asyncio.create_task(link.run())
    await eventually(lambda: manager.connections and len(manager.connections[0]) == 2)
    manager._transports[0].pause_reading()
    connection = link._connection
    assert connection is not None
    end = 0
    while not connection.full:
        for _ in range(1000):
            end += 1
            link.durable(end, 1, 2)
        await asyncio.sleep(0)
    assert connection._transport is not None
    kept = connection._transport.get_write_buffer_size()
    for _ in range(10_000):
        end += 1
        link.durable(end, 1, 2)
    await asyncio.sleep(0)
    assert connection._transport.get_write_buffer_size() <= kept
    manager._transports[0].resume_reading()
    frames = manager.connections[0]
    await eventually(lambda: isinstance(frames[-1], Durable) and frames[-1].end == end)
    durable = [frame for frame in frames if isinstance(frame, Durable)]
    assert sum(frame.messages for frame in durable) == end
    assert sum(frame.recipients for frame in durable) == 2 * end
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await manager.stop()
