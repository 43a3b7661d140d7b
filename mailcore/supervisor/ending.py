"""How a child ends for a reload: it is asked to, and ends when nothing that it has begun is under way.

It is a courtesy, not a need: a child may be killed at any time, and is if it takes longer than ``supervisor.reload_s``. So a
child does not shut down; it ends at once when there is nothing left that a kill would break off.

Keeps law: reload-refuses-no-client (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import NoReturn

__all__ = ["END", "SHARD_BACK", "SHARD_GONE", "SHARD_LOST", "SHARD_MOVED", "asked_to_end", "end_at_once"]

# Exit statuses of a child whose queue a database keeps: all children end, and the owner step follows (mailcore/nodes).
SHARD_LOST = 79  # the shard is another owner's, or cannot be kept here
SHARD_BACK = 80  # the database has less than it once confirmed
SHARD_MOVED = 81  # of the manager: it delivers nothing any more, and the shard is to be handed over
SHARD_GONE = 82  # of the owner step and the supervisor of an adopted shard: another node has it
END = signal.SIGUSR1  # to a child; a child that does not wait for it yet, or is of another role, ends at once


async def asked_to_end(loop: asyncio.AbstractEventLoop) -> None:
    """Returns when the supervisor asks this child to end."""
    asked: asyncio.Future[None] = loop.create_future()
    loop.add_signal_handler(END, lambda: None if asked.done() else asked.set_result(None))
    await asked


def end_at_once(status: int = 0) -> NoReturn:
    """Ends this child."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
