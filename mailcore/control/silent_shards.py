"""Knows which shards have not answered in time, so that a client that asks every second waits for each of them once.

The question that was not answered is asked again on a connection of its own, until it is answered or fails at once. So a shard
is asked as before as soon as it answers. Only questions are asked again, and never a change.

Keeps law: silent-is-unknown (docs/laws.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from mailcore.control.control_errors import ControlError, TimedOut
from mailcore.faults import Code

__all__ = ["PROBE_S", "SilentShards"]

PROBE_S = 15.0  # for one answer: a shard that hangs is sent a question four times a minute
AGAIN_S = 1.0

Probe: TypeAlias = Callable[[str, str, dict[str, Any]], Coroutine[Any, Any, None]]


class SilentShards:
    """Keeps the silent shards of one client. ``probe`` asks a socket, an operation and its arguments, for PROBE_S."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._why: dict[str, str] = {}  # by the path of the socket
        self._probing: dict[str, asyncio.Task[None]] = {}

    def look(self, path: str) -> None:
        """Raises TimedOut if the shard at this socket is silent."""
        why = self._why.get(path)
        if why is not None:
            raise TimedOut(why, code=Code.UNAVAILABLE)

    def failed(self, path: str, operation: str, arguments: dict[str, Any], error: ControlError) -> None:
        """Takes note of the error of a shard: it is silent if it has not answered a question in time."""
        if isinstance(error, TimedOut) and error.code is Code.UNAVAILABLE and path not in self._why:
            self._why[path] = str(error)
            probing = self._until_it_answers(path, operation, arguments)
            self._probing[path] = asyncio.get_running_loop().create_task(probing)

    async def close(self) -> None:
        """Ends the questions that wait, and forgets which shards are silent."""
        tasks = list(self._probing.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._why.clear()

    async def _until_it_answers(self, path: str, operation: str, arguments: dict[str, Any]) -> None:
        try:
            while True:
                try:
                    await self._probe(path, operation, arguments)
                    return
                except TimedOut:
                    await asyncio.sleep(AGAIN_S)
                except ControlError:
                    return  # asked again, it says so at once
        finally:
            self._why.pop(path, None)
            self._probing.pop(path, None)
