"""Fixtures of the command line: a house, and ``waypost`` in it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.cli.running_control import Waypost
from tests.control.running_control import House, open_house
from tests.faults import reworded

__all__ = ["reworded"]


@pytest.fixture(autouse=True)
def no_message_matters(reworded: None) -> None:
    """The commands work with whatever the control socket says."""


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with open_house() as house:
        yield house


@pytest.fixture
def waypost(house: House, capsys: pytest.CaptureFixture[str]) -> Waypost:
    return Waypost(house, capsys)
