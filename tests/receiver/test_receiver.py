"""The receiver as a process: crash-only, sharing its port, bounded in memory."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from mailcore.envelope import DataPlace
from mailcore.log.disk import Disk
from mailcore.queue.spool import Spool
from tests.receiver.running_receiver import (
    Lane,
    ReceiverProcess,
    receiver_process,
    reserved_port,
    settings_in,
    spooled_data,
)
from tests.receiver.server_in_process import Client, without_trace

LINE = b"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef01234567890123\r\n"


async def send(client: Client, data: bytes = b"x\r\n") -> str:
    """The queue id."""
    await client.to_data()
    await client.send(data + b".\r\n")
    reply = await client.reply()
    assert reply.startswith(b"250 2.0.0 Ok: queued as ")
    return reply.split()[-1].decode()


def lane_of(home: Path) -> Lane:
    return Lane(settings_in(home))


async def test_what_was_acknowledged_is_there_after_a_kill(tmp_path: Path) -> None:
    acknowledged = []
    with reserved_port() as port:
        for _ in range(3):
            async with receiver_process(tmp_path, port) as receiver:
                client = await receiver.client()
                for _ in range(5):
                    acknowledged.append(await send(client))
                big = await send(client, LINE * 2000)
                acknowledged.append(big)
                await client.to_data()
                await client.send(b"never ended\r\n")
                await receiver.kill()
                await client.close()
    lane = lane_of(tmp_path)
    assert lane.queue_ids == acknowledged
    assert lane.queue_ids == sorted(lane.queue_ids)
    spool = Spool(Disk(), str(tmp_path / "spool"))
    for envelope, _ in lane.messages:
        if envelope.data is DataPlace.SPOOL:
            assert without_trace(spooled_data(spool.path(envelope.queue_id), envelope)) == LINE * 2000


async def test_two_receivers_share_one_port_and_each_has_its_lane(tmp_path: Path) -> None:
    with reserved_port() as port:
        async with receiver_process(tmp_path, port) as first, receiver_process(tmp_path, port, 1):
            seen: set[str] = set()
            async with asyncio.timeout(60):
                while len(seen) < 2:
                    client = await first.client()
                    seen.add((await send(client))[-2:])
                    await client.close()
            assert seen == {"00", "01"}


async def test_a_second_receiver_on_the_same_lane_does_not_begin(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with reserved_port() as port:
        async with receiver_process(tmp_path, port) as first:
            client = await first.client()
            async with receiver_process(tmp_path, port) as second:
                assert second.process is not None
                assert await second.process.wait() == 1
            await client.close()
    assert "is locked by another process" in capfd.readouterr().err


async def upload(receiver: ReceiverProcess, size_bytes: int) -> None:
    client = await receiver.client()
    await client.to_data()
    piece = LINE * (65_536 // len(LINE))
    for _ in range(size_bytes // len(piece)):
        client.writer.write(piece)
        await client.writer.drain()
    await client.send(b".\r\n")
    assert (await client.reply()).startswith(b"250")
    await client.close()


@pytest.mark.parametrize(
    ("clients", "size_bytes"), [(20, 8_000_000), pytest.param(100, 30_000_000, marks=pytest.mark.long)]
)
async def test_big_messages_cost_little_memory(tmp_path: Path, clients: int, size_bytes: int) -> None:
    """100 clients with 30 MB each may cost 100 MB; 20 of them a fifth."""
    with reserved_port() as port:
        async with receiver_process(tmp_path, port, connections_per_client_max=1000) as receiver:
            await upload(receiver, 1_000_000)
            before = receiver.status_kb("VmRSS")
            await asyncio.gather(*(upload(receiver, size_bytes) for _ in range(clients)))
            assert receiver.status_kb("VmHWM") - before < clients * 1000
    lane = lane_of(tmp_path)
    assert len(lane.messages) == clients + 1


async def test_the_port_may_come_free_later(tmp_path: Path) -> None:
    """A killed receiver, or another daemon, may hold it for a moment."""
    with reserved_port() as port:
        async with receiver_process(tmp_path, port) as receiver:
            client = await receiver.client()
            await send(client)
            await receiver.kill()
            with contextlib.suppress(OSError):
                await client.close()
            await receiver.start()
            client = await receiver.client()
            await send(client)
            await client.close()
    assert len(lane_of(tmp_path).messages) == 2
