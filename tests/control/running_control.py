"""A home with real lanes, a fake manager and the control server, in one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from mailcore.config.load import load, load_managed, managed_path
from mailcore.config.settings import Settings
from mailcore.config.settings_files import SettingsFiles
from mailcore.control.async_client import AsyncControlClient
from mailcore.control.server import ControlServer
from mailcore.envelope import Envelope
from mailcore.events.feed.feed import open_feed
from mailcore.events.read.archive import open_archive
from tests.control.fake_manager import FakeManager
from tests.lookup.sample_messages import Lane

CONFIGURATION = """
home = "home"
[receiver]
hostname = "mail.example.org"
message_size_limit = 100_000
recipient_limit = 20
[queue]
reserve_bytes = 0
[routes]
"*" = "smtp"
"""


class RunningControl:
    def __init__(self, directory: Path) -> None:
        self.config = directory / "waypost.toml"
        self.config.write_text(CONFIGURATION)
        self.settings: Settings = load(self.config)
        for each in (
            self.settings.home,
            self.settings.queue_directory,
            self.settings.spool_directory,
            self.settings.run_directory,
            self.settings.log_directory,
        ):
            each.mkdir()
        self.socket = self.settings.run_directory / "control.sock"
        self.manager = FakeManager(self.settings.run_directory / "manager.sock")
        self.manager.answers["cut"] = lambda _: {"lanes": self.cut()}
        self.lanes: dict[str, Lane] = {}
        files = SettingsFiles(load, load_managed, managed_path)
        self.server = ControlServer(self.settings, open_archive(self.settings), open_feed(self.settings), files=files)

    def lane(self, name: str) -> Lane:
        if name not in self.lanes:
            self.lanes[name] = Lane(self.settings.queue_directory, name)
        return self.lanes[name]

    def write(self, lane: str, *envelopes: Envelope) -> list[int]:
        return self.lane(lane).write(*envelopes)

    def cut(self) -> dict[str, list[int]]:
        return {name: [0, 0, lane.end] for name, lane in self.lanes.items()}

    def client(self, **more: Any) -> AsyncControlClient:
        return AsyncControlClient(self.socket, **more)

    async def lose_the_manager(self) -> None:
        """It is killed, and control has noticed."""
        await self.manager.stop()
        while not self.server.link.absence:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.005)

    def spool_files(self) -> list[Path]:
        return [path for path in self.settings.spool_directory.rglob("*") if path.is_file()]


@contextlib.asynccontextmanager
async def open_control(*, manager: bool = True) -> AsyncIterator[RunningControl]:
    # A directory with a short name: a Unix socket's path has 107 bytes.
    with tempfile.TemporaryDirectory(prefix="wp") as directory:
        running = RunningControl(Path(directory))
        if manager:
            await running.manager.start()
        serving = asyncio.create_task(running.server.run())
        try:
            while not running.socket.exists():
                await asyncio.sleep(0.005)
                if serving.done():
                    serving.result()
            yield running
        finally:
            await stop(running, serving)


async def stop(running: RunningControl, serving: asyncio.Task[None]) -> None:
    """What only tests need: the daemon is just killed."""
    for client in list(running.server.clients):
        client._transport.abort()
    tasks = [serving, *running.server._tasks]
    for task in tasks:
        if task is serving or any(name in repr(task.get_coro()) for name in ("ManagerLink", "LiveRoutes")):
            task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    if running.manager._server is not None:
        await running.manager.stop()
    for lane in running.lanes.values():
        lane.close()
    running.server.view.pool.shutdown()
    running.server.injecting._pool.shutdown()
    await asyncio.sleep(0)
