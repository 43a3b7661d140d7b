"""Fixtures of the command line: a house, and ``waypost`` in it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.cli.running_control import Waypost
from tests.control.running_control import House, open_house


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with open_house() as house:
        yield house


@pytest.fixture
def waypost(house: House, capsys: pytest.CaptureFixture[str]) -> Waypost:
    return Waypost(house, capsys)
