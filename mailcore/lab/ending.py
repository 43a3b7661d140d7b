"""How a lab ends: by SIGTERM or Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["ended_by_signal"]


@contextmanager
def ended_by_signal() -> Iterator[asyncio.Event]:
    """Gives an event that SIGTERM or SIGINT sets. uvloop leaves its handlers behind, so they are taken away at the end."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    numbers = (signal.SIGTERM, signal.SIGINT)
    for number in numbers:
        loop.add_signal_handler(number, ended.set)
    try:
        yield ended
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
