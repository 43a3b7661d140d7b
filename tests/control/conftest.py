"""Fixtures: a house with a fake manager, and a client of it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import msgspec
import pytest

from mailcore.control.client import AsyncControlClient
from mailcore.control.protocol.table import OPERATIONS
from tests.control.running_control import House, open_house


@pytest.fixture(autouse=True)
def answers_have_their_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every part of an answer fits the type of its operation, and has nothing that the type lacks."""
    parts = AsyncControlClient.parts

    async def checked(
        self: AsyncControlClient, operation: str, arguments: dict[str, Any] | None = None, *, why: str = ""
    ) -> AsyncGenerator[Any, None]:
        async with contextlib.aclosing(parts(self, operation, arguments, why=why)) as answer:
            async for part in answer:
                result = OPERATIONS[operation].result
                if result is not Any:
                    typed = msgspec.convert(part, result)
                    assert msgspec.msgpack.decode(msgspec.msgpack.encode(typed)) == part
                yield part

    monkeypatch.setattr(AsyncControlClient, "parts", checked)


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with open_house() as house:
        yield house


@pytest.fixture
async def control(house: House) -> AsyncIterator[AsyncControlClient]:
    async with house.client(who="alice") as client:
        yield client
