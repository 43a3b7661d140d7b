"""Questions about the queue as it was that have no answer, and what they say instead."""

from __future__ import annotations

import time

import pytest

from mailcore.control.client import Refused
from mailcore.events.read.archive import open_archive
from mailcore.faults import Code
from mailcore.lookup.archive import Trouble
from tests.control.running_control import RunningControl


@pytest.mark.parametrize("operation", ["size_at", "list_at"])
async def test_the_future_is_refused_at_its_argument(running: RunningControl, operation: str) -> None:
    async with running.client() as control:
        with pytest.raises(Refused, match="in the future") as refused:
            await control.call(operation, {"time": time.time() + 60})
    assert (refused.value.code, refused.value.argument) == (Code.INVALID, "time")


async def test_without_events_nothing_is_known(running: RunningControl) -> None:
    async with running.client() as control:
        with pytest.raises(Refused, match="no events are exported yet") as refused:
            await control.call("size_at", {"time": time.time() - 60})
    assert refused.value.code is Code.NOT_FOUND


def test_a_home_without_events_has_no_count(running: RunningControl) -> None:
    archive = open_archive(running.settings)
    assert archive.counted_until() == 0.0
    assert archive.since(Trouble()) is None


async def test_a_cursor_of_another_kind_is_refused(running: RunningControl) -> None:
    async with running.client() as control:
        with pytest.raises(Refused):
            await control.call("list_at", {"time": time.time() - 60, "cursor": "hold:12"})
