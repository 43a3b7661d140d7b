"""The process ``peers`` of a node: its clients show and change the mail of all nodes, and those of others that of this one.

It keeps nothing, and speaks the control protocol of neither side: it knows who asks, and where a shard is. If it ends, the
mail of this node is shown and changed as before, and that of the others is not known for a second.

Keeps law: trust-is-a-row (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time

from mailcore.config.settings import Settings
from mailcore.maillog import MailLog
from mailcore.nodes.guard import Guards
from mailcore.nodes.parameters import address_of, node_of
from mailcore.nodes.trust import BELIEVED_S, Trust
from mailcore.peers.asked import Asked
from mailcore.peers.asking import Asking
from mailcore.peers.rows import Rows
from mailcore.supervisor.pulse import beat

__all__ = ["Peers", "main"]

SAID_S = 60.0  # the same reason once in this time


class Peers:
    """The work of the process, in a loop that is given."""

    def __init__(self, settings: Settings, log: MailLog) -> None:
        self._log = log
        self._last: tuple[str, float] = ("", 0.0)
        self._trust = Trust(settings, node_of(settings), address_of(settings), believed_s=BELIEVED_S)
        self._guards = Guards(self._trust)
        self._settings = settings

    async def run(self) -> None:
        """Works until it is cancelled."""
        loop = asyncio.get_running_loop()
        read = asyncio.Event()

        def say(words: str) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._say, words)

        def tell() -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(read.set)

        rows = Rows(self._settings, self._trust, tell, say)
        asking = Asking(self._settings, self._guards, rows, self._say)
        asked = Asked(self._settings, self._guards, self._say)
        asking.look()
        rows.start()
        beat(loop)
        async with asyncio.TaskGroup() as group:
            group.create_task(asked.keep_listening())
            while True:
                await read.wait()
                read.clear()
                asking.look()

    def _say(self, words: str) -> None:
        last, at = self._last
        if words != last or time.monotonic() > at + SAID_S:
            self._last = words, time.monotonic()
            self._log.shard_waits(words)
            self._log.flush()


def main(settings: Settings, parent: int) -> None:
    """Runs until it is killed. ``parent`` is the process of the node."""
    if os.getppid() == parent:
        asyncio.run(Peers(settings, MailLog(settings.log_directory)).run())
