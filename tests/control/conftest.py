"""Fixtures: a control process with a fake manager, and a client of it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import msgspec
import pytest

from mailcore.control.async_client import AsyncControlClient
from mailcore.control.protocol.table import OPERATIONS
from tests.control.running_control import RunningControl, open_control


@pytest.fixture(autouse=True)
def answers_have_their_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every part of an answer fits the type of its operation, and has nothing that the type lacks."""
    parts = AsyncControlClient.parts

    async def checked(
        self: AsyncControlClient, operation: str, arguments: dict[str, Any] | None = None, *, why: str = ""
    ) -> AsyncGenerator[Any, None]:
        async with contextlib.aclosing(parts(self, operation, arguments, why=why)) as answer:
            async for part in answer:
                typed = msgspec.convert(part, OPERATIONS[operation].result)
                assert msgspec.msgpack.decode(msgspec.msgpack.encode(typed)) == part
                yield part

    monkeypatch.setattr(AsyncControlClient, "parts", checked)


@pytest.fixture
async def running() -> AsyncIterator[RunningControl]:
    async with open_control() as running:
        yield running


@pytest.fixture
async def control(running: RunningControl) -> AsyncIterator[AsyncControlClient]:
    async with running.client(who="alice") as client:
        yield client
