"""Which lanes hold recipients that a change may fit: a message rests where its first recipient is due, the others may wait."""

from __future__ import annotations

import pytest

from mailcore.control.protocol.changes import CHANGES
from mailcore.lookup.selection import Selection
from mailcore.queue.lanes import AT_ONCE, DELETED, HOLD, LOCAL
from tests.lookup.sample_messages import NOW, envelope

LANES = dict.fromkeys(("incoming.0", LOCAL, AT_ONCE, "retry.60", HOLD, DELETED))


@pytest.mark.parametrize("change", CHANGES)
def test_a_lane_where_the_change_may_fit_one_recipient_is_read(change: str) -> None:
    selection = Selection(change, NOW)
    mixed = envelope(recipient_count=5, aside={"deferred": 1, "held": 1, "delayed": 1, "deleted": 1})
    for lane in LANES.keys() - {HOLD, DELETED}:  # there all are held, or deleted
        assert not selection.may_fit(mixed, lane) or lane in selection.lanes(LANES), lane


def test_who_waits_in_a_message_that_another_recipient_made_due_can_be_retried() -> None:
    assert AT_ONCE in Selection("retry", NOW).lanes(LANES)


def test_lanes_of_one_state_are_not_read_for_a_change_that_does_not_fit_it() -> None:
    assert {HOLD, DELETED}.isdisjoint(Selection("retry", NOW).lanes(LANES))
    assert DELETED not in Selection("release", NOW).lanes(LANES)
    assert HOLD not in Selection("undelete", NOW).lanes(LANES)
