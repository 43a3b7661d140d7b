"""Fixtures: a house with a fake manager, and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mailcore.control.client import AsyncControlClient
from tests.control.running_control import House, open_house


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with open_house() as house:
        yield house


@pytest.fixture
async def control(house: House) -> AsyncIterator[AsyncControlClient]:
    async with house.client(who="alice") as client:
        yield client
