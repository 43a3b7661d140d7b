"""Deliverers that read a message's data while the manager retires its segment, and deletes it when the message is over.

The queue is the real one, on a real disk; so are the deliverers' client and files, and the bytes go over loopback.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from mailcore.deliverer.message_data import DataError, DataFiles
from mailcore.envelope import Status
from mailcore.frames import Deliver
from mailcore.log.data_blocks import BLOCK_BYTES
from mailcore.log.disk import Disk
from mailcore.manager.carrying import Way
from mailcore.queue.active import Active
from mailcore.queue.bodies import LOOK_S
from tests.backup.queue_history import close_below
from tests.deliverer.delivery import Sender, outcomes
from tests.deliverer.scripted_server import ScriptedServer, serving
from tests.queue.simulated_machine import INCOMING, RETRY_S, OutsideMemory, SimulatedMachine
from tests.queue.steps import begun, deliver_all

SIZE = 200 * BLOCK_BYTES  # more than the sockets between us and a server that does not read take
FIRST = "00000000000000000000"


class Retiring:
    """A message whose data lies in a segment that the next checkpoint retires, and whose delivery has begun."""

    def __init__(self, directory: Path, patched: pytest.MonkeyPatch) -> None:
        for name, below in (("HOME", "queue"), ("SPOOL", "spool")):
            patched.setattr(f"tests.queue.simulated_machine.{name}", str(directory / below))
        self.directory = directory
        self.machine = SimulatedMachine(cast(Any, Disk()), OutsideMemory(), SIZE)
        patched.setattr(self.machine.passes, "way", lambda active, lane: Way.REFER)
        self.queue_id = self.machine.accept(size=SIZE)
        self.machine.durable()
        active = begun(self.machine)
        self.machine.attempt(active, {0: Status.DEFERRED})
        self.machine.end(active)
        for _ in range(2):
            self.machine.accept(size=SIZE)
            self.machine.durable()
            deliver_all(self.machine, begun(self.machine))
        self.checkpoints(1)
        self.machine.wait(RETRY_S)
        self.active: Active = begun(self.machine)

    @property
    def data(self) -> bytes:
        return (b"Subject: " + self.queue_id.encode() + b"\r\n").ljust(SIZE, b".")

    @property
    def names(self) -> set[str]:
        """The names of the segment with the data."""
        lane = self.directory / "queue" / INCOMING
        return {path.name for path in lane.glob(f"{FIRST}.*") if path.suffix != ".idx"}

    def checkpoints(self, count: int) -> None:
        for _ in range(count):
            self.machine.checkpoint()

    def retire(self) -> None:
        while self.names == {f"{FIRST}.seg"}:
            self.checkpoints(1)
        assert self.names == {f"{FIRST}.data"}

    def finish(self) -> None:
        """A verdict for the message, and what follows."""
        deliver_all(self.machine, self.active)
        self.machine.sync()
        self.checkpoints(3)
        self.machine.wait(LOOK_S)
        self.checkpoints(2)
        assert self.names == set()

    def entry(self, sender: Sender) -> Deliver:
        """What a deliverer gets: the place where the data lay when the delivery began."""
        at = self.active.data
        work = sender.work()
        return msgspec.structs.replace(
            work, queue_id=self.queue_id, path=at.path, offset=at.offset, length=at.length, data_sums=at.data_sums
        )


class ReadingDisk(Disk):
    """The real one; counts what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.read_bytes = 0

    def read(self, fd: int, length: int, offset: int) -> bytes:
        data = super().read(fd, length, offset)
        self.read_bytes += len(data)
        return data


@asynccontextmanager
async def deliverer(directory: Path, disk: Disk) -> AsyncIterator[tuple[Sender, ScriptedServer]]:
    async with serving(ScriptedServer()) as server:
        sender = Sender(directory, server.port)
        sender.files = DataFiles(disk, asyncio.get_running_loop())
        yield sender, server
        sender.close()


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    close_below(tmp_path)


async def test_a_segment_is_retired_and_deleted_under_a_deliverer_and_another_comes_late(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    retiring = Retiring(directory, monkeypatch)
    disk = ReadingDisk()
    async with (
        deliverer(directory, disk) as (slow, slow_hop),
        deliverer(directory, Disk()) as (late, late_hop),
        deliverer(directory, Disk()) as (last, last_hop),
    ):
        entries = [retiring.entry(each) for each in (slow, late, last)]
        assert {entry.path.rpartition("/")[2] for entry in entries} == {f"{FIRST}.seg"}
        slow_hop.data_go_on.clear()
        sending = asyncio.create_task(slow.deliver(entries[0]))
        await slow_hop.data_begun.wait()
        retiring.retire()
        assert outcomes(await late.deliver(entries[1])) == [("delivered", "2.0.0")], "it knows the first name only"
        retiring.finish()
        with pytest.raises(DataError, match="No such file"):
            last.open(entries[2])
        assert not sending.done()
        assert disk.read_bytes < SIZE, "some of it is still to be read"
        slow_hop.data_go_on.set()
        assert outcomes(await sending) == [("delivered", "2.0.0")], "its descriptor still reads what was deleted"
        whole = retiring.data + b"\r\n"
        assert [message.data for hop in (slow_hop, late_hop) for message in hop.messages] == [whole, whole]
        assert not last_hop.sessions
