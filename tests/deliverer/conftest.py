"""The tests of the SMTP client run on uvloop, as the processes do: its transports differ from asyncio's in more than speed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop

# It pairs sockets of the test with asyncio's own streams.
ON_ASYNCIO = {"test_deliverer"}


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    if item.path.stem in ON_ASYNCIO:
        return {"asyncio": asyncio.new_event_loop}
    return {"uvloop": uvloop.new_event_loop}
