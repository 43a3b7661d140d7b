"""Takes the steps of long reading in threads, so that no client waits long for another, and a client that is gone ends it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from mailcore.control.view import View
from mailcore.lookup.tracing import Walk

__all__ = ["SAID_S", "STEP_S", "going"]

STEP_S = 0.2  # in a thread, before others get their turn
SAID_S = 1.0  # a client hears at least this often that work continues


async def going(view: View, walk: Walk[Any]) -> AsyncGenerator[None, None]:
    """Takes all steps of a walk; stops about every second."""
    monotonic = view.browser.monotonic
    said = monotonic()
    try:
        while not await view.in_thread(walk.go, STEP_S, monotonic):
            if monotonic() - said >= SAID_S:
                said = monotonic()
                yield
    finally:
        walk.close()
