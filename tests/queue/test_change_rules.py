"""One rule for all: each change in each state."""

from __future__ import annotations

import pytest

from mailcore.change_rules import MessageState, refusal
from mailcore.control.protocol.changes import CHANGES
from mailcore.queue.lanes import state_in

# change -> the states that it fits
FITS = {
    "undelete": {MessageState.DELETED},
    "release": {MessageState.HELD},
    "hold": {MessageState.WAITING, MessageState.DUE, MessageState.ACTIVE},
    "retry": {MessageState.WAITING, MessageState.ACTIVE},
    "delete": set(MessageState) - {MessageState.DELETED},
    "delay": set(MessageState) - {MessageState.DELETED},
    "reroute": set(MessageState) - {MessageState.DELETED},
    "bounce": set(MessageState) - {MessageState.DELETED},
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("state", MessageState)
def test_a_change_fits_or_says_why_not(change: str, state: MessageState) -> None:
    assert (refusal(change, state) == "") is (state in FITS[change])


def test_a_lane_says_the_state_of_what_rests_in_it() -> None:
    lanes = ("incoming.0", "retry.300", "retry.0", "local", "hold", "deleted")
    assert [state_in(lane).value for lane in lanes] == ["waiting", "waiting", "due", "due", "held", "deleted"]
