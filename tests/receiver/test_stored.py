"""A receiver whose lane is kept by a store that does not answer: 421 within the limit, nothing removed, nothing lost."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mailcore.envelope import DataPlace
from mailcore.log.store import Changes, Ends
from mailcore.receiver.receiver import Receiving
from mailcore.receiver.stored import ReceiverStores
from tests.eventually import eventually
from tests.queue.memory_store import MemoryStore
from tests.receiver.running_receiver import Running, WatchedDisk, settings_in, spooled_data
from tests.receiver.server_in_process import without_trace
from tests.receiver.test_reception import BIG, MESSAGE, send

WAIT_S = 0.4


class HeldStore(MemoryStore):
    """Commits wait while the gate is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.waits = False

    def commit(self, changes: Changes, ends: Ends) -> None:
        self.waits = True
        self.gate.wait()
        self.waits = False
        super().commit(changes, ends)

    def waiting_s(self) -> float:
        return WAIT_S if self.waits and not self.gate.is_set() and self.is_long else 0.0

    is_long = False  # set by the test: no clock decides


class Stored:
    def __init__(self, running: Running, lane: HeldStore, uploads: HeldStore) -> None:
        self.running, self.lane, self.uploads = running, lane, uploads

    def kept(self, data: bytes) -> bool:
        return any(data in bytes(content) for content in self.lane.files.values())


@contextlib.asynccontextmanager
async def stored(home: Path) -> AsyncIterator[Stored]:
    settings = settings_in(home)
    disk, lane, uploads = WatchedDisk(), HeldStore(), HeldStore()
    stores = ReceiverStores(lane, uploads, WAIT_S)
    made = Receiving(settings, 0, asyncio.get_running_loop(), disk=disk, stores=stores)
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    made.start([listener])
    running = Running(made, settings, disk, listener.getsockname()[:2])
    try:
        yield Stored(running, lane, uploads)
    finally:
        lane.gate.set()
        uploads.gate.set()
        await running.close()


async def test_a_250_says_that_the_store_has_the_message(tmp_path: Path) -> None:
    async with stored(tmp_path) as it:
        client = await it.running.ready()
        it.lane.gate.clear()
        await client.to_data()
        await client.send(MESSAGE + b".\r\n")
        await eventually(lambda: it.lane.waits)
        assert not it.kept(b"body")
        assert not list((it.running.settings.queue_directory / "incoming.0").glob("*.seg")), "local files come after"
        it.lane.gate.set()
        assert (await client.reply()).startswith(b"250")
        assert it.kept(b"body")
        assert [without_trace(data) for _, data in it.running.lane.messages] == [MESSAGE]
        lane = tmp_path / "queue" / "incoming.0"
        assert not [path for call, path in it.running.disk.events if call == "sync" and path.startswith(str(lane))]


async def test_a_client_that_waited_for_too_long_hears_421_and_its_message_stays(tmp_path: Path) -> None:
    """It may be in the store: it is queued when the store answers, and the log and the manager hear of it then."""
    async with stored(tmp_path) as it:
        client, other = await it.running.ready(), await it.running.ready()
        it.lane.gate.clear()
        assert (await send(client)).startswith(b"421 4.3.0")
        it.lane.is_long = True
        assert (await other.ask(b"MAIL FROM:<a@example.com>")).startswith(b"451 4.3.0")
        refused = await it.running.client()
        assert (await refused.reply()).startswith(b"421 4.3.0")
        assert "message-id=" not in it.running.mail_log
        it.lane.gate.set()
        await eventually(lambda: "message-id=" in it.running.mail_log)
        assert [without_trace(data) for _, data in it.running.lane.messages] == [MESSAGE]
        assert (await send(await it.running.ready())).startswith(b"250")


@pytest.mark.parametrize("which", ["uploads", "lane"])
async def test_a_large_message_waits_no_longer_and_its_data_stays_while_nothing_is_known(
    tmp_path: Path, which: str
) -> None:
    async with stored(tmp_path) as it:
        client = await it.running.ready()
        store: HeldStore = getattr(it, which)
        store.gate.clear()
        assert (await send(client, BIG)).startswith(b"421 4.3.0")
        store.gate.set()
        if which == "lane":
            await eventually(lambda: it.running.lane.messages)
            ((envelope, _),) = it.running.lane.messages
            assert envelope.data is DataPlace.SPOOL
            path = it.running.receiving.reception._spool.path(envelope.queue_id)
            assert without_trace(spooled_data(path, envelope)) == BIG
            with open(path, "rb") as file:  # noqa: ASYNC230  # it is small
                assert file.read() == it.uploads.files[path]
        else:  # no record names it
            await eventually(lambda: not it.uploads.files)
            assert it.running.lane.messages == []


async def test_what_the_store_refuses_is_refused_and_nothing_stays_of_it(tmp_path: Path) -> None:
    async with stored(tmp_path) as it:
        it.lane.refused = 1
        assert (await send(await it.running.ready())).startswith(b"452 4.3.1")
        assert it.running.lane.messages == []
        assert (await send(await it.running.ready())).startswith(b"250")
        it.lane.refused = 1
        assert (await send(await it.running.ready(), BIG)).startswith(b"452 4.3.1")
        await eventually(lambda: not it.uploads.files)
        assert (await send(await it.running.ready())).startswith(b"250")
        assert len(it.running.lane.messages) == 2
