"""Fixtures of the command line: a running, and ``waypost`` in it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.cli.running_control import Waypost
from tests.control.running_control import RunningControl, open_control
from tests.faults import reworded

__all__ = ["reworded"]


@pytest.fixture(autouse=True)
def no_message_matters(reworded: None) -> None:
    """The commands work with whatever the control socket says."""


@pytest.fixture
async def running() -> AsyncIterator[RunningControl]:
    async with open_control() as running:
        yield running


@pytest.fixture
def waypost(running: RunningControl, capsys: pytest.CaptureFixture[str]) -> Waypost:
    return Waypost(running, capsys)
