"""The hub of this process: made with the server's loop (``appliance.asgi``), asked by the views."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from django.conf import settings

from appliance.common.door import async_door
from appliance.live.hub import Hub
from appliance.live.samples import DatabaseKeeper

__all__ = ["hub", "listening"]

WHO = "portal"

_hub: Hub | None = None


def hub() -> Hub | None:
    """Returns the hub; None while no server runs, as in a management command."""
    return _hub


@contextlib.asynccontextmanager
async def listening() -> AsyncIterator[Hub]:
    """Runs the hub meanwhile."""
    global _hub  # noqa: PLW0603  # one a process, as the loop is
    made = _hub = Hub(
        lambda timeout_s: async_door(WHO, timeout_s, skips_silent=True),
        keeper=DatabaseKeeper(),
        readers_max=settings.PORTAL.readers_max,
    )
    task = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        made.end()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        _hub = None
