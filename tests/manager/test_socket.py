"""The manager's socket is there as long as the manager."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import uvloop

from mailcore.config.settings import Settings
from mailcore.faults import Code
from mailcore.frames import FrameWriter, Request, Response
from mailcore.manager import manager
from tests.eventually import PATIENCE_S
from tests.manager.manager_in_process import Home


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


def test_a_bug_in_an_answer_is_a_fault_and_the_manager_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def asked() -> list[Response]:
        home = Home(tmp_path)
        running = home.start()
        sent: list[Response] = []
        writer = cast(FrameWriter, SimpleNamespace(send=sent.append))

        def broken(arguments: dict[str, Any]) -> None:
            raise LookupError("a bug")

        running.control["size"] = broken
        for operation in ("size", "cut"):
            running.request(writer, Request(1, operation, {}))
        home.kill()
        return sent

    fault, answer = uvloop.run(asked())
    assert fault.error is not None
    assert fault.error.code is Code.INTERNAL
    assert answer.error is None
    assert "LookupError" in capsys.readouterr().err
