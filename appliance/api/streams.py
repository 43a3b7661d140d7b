"""Counts what this process answers for as long as its reader stays: streams of events, and questions that wait for one.

Law: a process has STREAMS_MAX of them at most, and none of them holds a thread or a connection to the database.

Keeps law: streams-end-with-token (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from asgiref.sync import sync_to_async
from django.db import connections

from appliance.api.errors import ApiError
from mailcore.faults import Code

__all__ = ["STREAMS_MAX", "check_room", "streaming"]

STREAMS_MAX = 20  # each has a connection to the core ([control] clients_max)
_open = 0


def check_room() -> None:
    """Raises ApiError if there are as many as there may be."""
    if _open >= STREAMS_MAX:
        raise ApiError(f"{STREAMS_MAX} streams of events are open already.", code=Code.BUSY)


@asynccontextmanager
async def streaming() -> AsyncIterator[None]:
    """Counts one while the block runs."""
    global _open  # noqa: PLW0603  # of this process, as its loop is
    # A request keeps its thread, and with it a connection to the database, until it ends; this one lasts all day.
    await sync_to_async(connections.close_all)()
    _open += 1
    try:
        yield
    finally:
        _open -= 1
