"""The manager's socket is there as long as the manager."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

import uvloop

from mailcore.config.settings import Settings
from mailcore.manager import manager
from tests.eventually import PATIENCE_S


def test_it_outlives_a_garbage_collection_before_anybody_has_connected(tmp_path: Path) -> None:
    """A manager that was killed may be back a second before the others look for it again."""
    settings = Settings(
        home=tmp_path,
        queue_directory=tmp_path / "queue",
        spool_directory=tmp_path / "spool",
        run_directory=tmp_path / "run",
        log_directory=tmp_path / "log",
    )
    for directory in (settings.run_directory, settings.log_directory, settings.queue_directory):
        directory.mkdir(parents=True, exist_ok=True)
    path = settings.run_directory / "manager.sock"

    async def started_collected_and_asked() -> None:
        running = asyncio.create_task(manager._run(settings))
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not path.exists() and not running.done():  # noqa: ASYNC110  # nobody says when
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)  # it listens, and nothing in the loop is new any more
            gc.collect()
            await asyncio.sleep(0.05)
            _, writer = await asyncio.open_unix_connection(path)
            writer.close()
        finally:
            asyncio.get_running_loop().set_exception_handler(None)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    uvloop.run(started_collected_and_asked())
