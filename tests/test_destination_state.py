"""The state of a destination is decided by one function, in the order in which the scheduler checks its conditions."""

from __future__ import annotations

import itertools
from typing import Any

from appliance.destinations.row import rows_of
from appliance.live.snapshot import destinations_of, trouble_of
from mailcore.destination_state import DestinationState, states_of
from tests.answers import active_destination, destinations

FLAGS = ("transport_dead", "dead", "suspended", "resting", "full", "transport_resting", "transport_full")
BLOCKING = list(DestinationState)[:-2]


def test_every_condition_is_named_in_the_schedulers_order() -> None:
    for flags in itertools.product((False, True), repeat=len(FLAGS)):
        given: dict[str, Any] = dict(zip(FLAGS, flags, strict=True))
        busy = 3 if given.pop("full") else 1
        blocking = [state for state, holds in zip(BLOCKING, flags, strict=True) if holds]
        assert states_of(busy=busy, window=3, **given) == (blocking or [DestinationState.DELIVERING])


def test_without_a_window_nothing_is_full_and_without_a_delivery_it_is_ready() -> None:
    assert states_of(busy=3) == [DestinationState.DELIVERING]
    assert states_of(window=0) == [DestinationState.READY]


def test_table_and_overview_put_the_same_state_first() -> None:
    known = active_destination(dead_until=9.0, limit=5, queued=1, suspended=True, suspended_until=20.0)
    answer = destinations(destinations={"smtp:a.example": known}, queued={"smtp:a.example": 1})
    [row] = rows_of(answer).rows
    [trouble] = trouble_of(destinations_of(answer), answer, lambda _name, _count: 0.0)
    assert row.states[0] is DestinationState.DEAD
    assert row.badges[0].words.startswith(trouble["kind"])
    assert trouble["until"] == row.badges[0].until == 9.0
