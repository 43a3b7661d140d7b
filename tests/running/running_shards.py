"""A core with several shards, as ``running_core`` has one with one queue."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mailcore.config.known_shards import known_shards
from mailcore.control.async_client import AsyncControlClient
from mailcore.control.client import ControlError
from mailcore.lab.lab import Lab
from mailcore.queue.queue_id import shard_of
from tests.end_to_end.appliance import alive
from tests.eventually import PATIENCE_S, eventually
from tests.running.running_core import DATA, SENDER, RunningCore, Sections, route_to

__all__ = ["RunningShards", "running_shards"]


class RunningShards(RunningCore):
    """Each shard can be asked alone."""

    def __init__(
        self, directory: Path, routes: Mapping[str, str], sections: Sections | None = None, *, shards: int = 2
    ) -> None:
        merged = {section: dict(values) for section, values in (sections or {}).items()}
        merged.setdefault("core", {})["shards"] = shards
        super().__init__(directory, routes, merged)

    def set_shards(self, number: int) -> None:
        """Writes another number into the file; it holds with the next start."""
        before = self.config.read_text()
        text = "\n".join(f"shards = {number}" if line.startswith("shards = ") else line for line in before.splitlines())
        self.config.write_text(text + "\n")

    @property
    def run_directory(self) -> Path:
        return self.home / "run"

    def numbers(self) -> list[int]:
        """The shards that run."""
        return [each.number for each in known_shards(self.run_directory)]

    async def ask_shard(self, number: int, operation: str, **arguments: Any) -> Any:
        """An operation of the control socket of one shard."""
        (shard,) = [each for each in known_shards(self.run_directory) if each.number == number]
        client = AsyncControlClient(shard.run_directory / "control.sock", timeout_s=PATIENCE_S)
        try:
            return await client.call(operation, arguments)
        finally:
            await client.close()

    async def order_shard(self, number: int, operation: str, queue_id: str) -> None:
        """A change to one message of this shard, which must succeed."""
        await self._until_changed(queue_id, lambda: self.ask_shard(number, operation, queue_ids=[queue_id]))

    async def _answers(self) -> bool:
        if not self.numbers():
            return await super()._answers()
        try:
            sizes = [await self.ask_shard(number, "size") for number in self.numbers()]
        except ControlError:
            return False
        return not any(size["unheard"] for size in sizes)

    async def send_many(self, number: int, *, domain: str = "any.example", first: int = 0) -> list[str]:
        """So many messages, each over a connection of its own; their queue ids."""

        def send() -> list[str]:
            return [self._send((f"m{each}@{domain}",), SENDER, DATA) for each in range(first, first + number)]

        return await asyncio.to_thread(send)

    async def send_to(self, shard: int, *recipients: str) -> str:
        """One message that this shard takes; the queue id. The others get mail, too: the kernel chooses."""
        while True:
            queue_id = await asyncio.to_thread(self._send, recipients, SENDER, DATA)
            if shard_of(queue_id) == shard:
                return queue_id

    async def until_all_removed(self, queue_ids: list[str]) -> None:
        await self.until_removed(*queue_ids)

    async def stopped(self, name: str) -> int:
        """SIGSTOP of a process; its pid."""
        pid = self.processes()[name]
        os.kill(pid, signal.SIGSTOP)

        def is_stopped() -> bool:
            return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] == "T"

        await eventually(is_stopped, f"{name} to stop")
        return pid

    async def until_gone(self, pid: int) -> None:
        await eventually(lambda: not alive(pid), f"the end of {pid}")


@asynccontextmanager
async def running_shards(
    directory: Path, lab: Lab, sections: Sections | None = None, *, shards: int = 2, route: str = ""
) -> AsyncIterator[RunningShards]:
    """All mail goes to the first hop, or along ``route``."""
    core = RunningShards(directory, {"*": route or route_to(lab, 0)}, sections, shards=shards)
    await core.start()
    try:
        yield core
    finally:
        await core.control.close()
        core.stop()
