"""Waits for what must become true, in one way for all tests: looks again and again, and fails with a sentence after PATIENCE_S.

Nothing is measured by it. The patience is as long as a machine with eight other busy processes needs, so that a test that runs
out of it has found a fault, and not a slow machine.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

__all__ = ["LOOK_EVERY_S", "PATIENCE_MS", "PATIENCE_S", "eventually", "eventually_blocking"]

# Below pytest's own timeout, which kills a test without a word about what it waited for. Of a law that is broken on purpose
# (tests/mutations) it is known that it may be waited for in vain.
PATIENCE_S = float(os.environ.get("WAYPOST_TEST_PATIENCE_S", "200"))
PATIENCE_MS = PATIENCE_S * 1000  # as Playwright takes it
LOOK_EVERY_S = 0.02

T = TypeVar("T")


async def eventually(
    condition: Callable[[], Awaitable[Any]] | Callable[[], Any],
    what: str | Callable[[], str] = "",
    look_every_s: float = LOOK_EVERY_S,
) -> Any:
    """Returns the first answer of ``condition`` that is true; it may be a coroutine function.

    ``what`` says what is waited for; a function is called when the time is over, and may tell how things stand then.
    Raises AssertionError after PATIENCE_S.
    """
    end = time.monotonic() + PATIENCE_S
    while True:
        answer = condition()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return answer
        _assert_in_time(end, condition, what)
        await asyncio.sleep(look_every_s)


def eventually_blocking(
    condition: Callable[[], T], what: str | Callable[[], str] = "", look_every_s: float = LOOK_EVERY_S
) -> T:
    """Does what ``eventually`` does, without an event loop."""
    end = time.monotonic() + PATIENCE_S
    while not (answer := condition()):
        _assert_in_time(end, condition, what)
        time.sleep(look_every_s)
    return answer


def _assert_in_time(end: float, condition: object, what: str | Callable[[], str]) -> None:
    if time.monotonic() > end:
        what = what() if callable(what) else what
        raise AssertionError(
            f"waited {PATIENCE_S:g} s in vain for {what or getattr(condition, '__qualname__', condition)}"
        )
