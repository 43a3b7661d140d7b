"""A scripted milter in a thread of its own, for code that blocks."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator

from tests.eventually import PATIENCE_S
from tests.milter.scripted import ScriptedMilter, milter

__all__ = ["running_milter"]


@contextlib.contextmanager
def running_milter(**settings: object) -> Iterator[ScriptedMilter]:
    ready: list[ScriptedMilter] = []
    began = threading.Event()
    loop = asyncio.new_event_loop()
    over = asyncio.Event()

    async def serve() -> None:
        async with milter(**settings) as made:  # type: ignore[arg-type]
            ready.append(made)
            began.set()
            await over.wait()
        sessions = asyncio.all_tasks() - {asyncio.current_task()}
        for session in sessions:  # a client may have left them just now
            session.cancel()
        await asyncio.gather(*sessions, return_exceptions=True)

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert began.wait(PATIENCE_S)
    try:
        yield ready[0]
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()
