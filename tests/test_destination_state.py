"""The state of a destination is decided by one function, in the order in which the scheduler checks its conditions."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from mailcore.destination_state import DestinationState, is_failing, states_of

FLAGS = ("transport_dead", "dead", "suspended", "failing", "resting", "full", "transport_resting", "transport_full")
BLOCKING = list(DestinationState)[:-2]


def test_every_condition_is_named_in_the_schedulers_order() -> None:
    for flags in itertools.product((False, True), repeat=len(FLAGS)):
        given: dict[str, Any] = dict(zip(FLAGS, flags, strict=True))
        busy = 3 if given.pop("full") else 1
        blocking = [state for state, holds in zip(BLOCKING, flags, strict=True) if holds]
        if blocking in ([], [DestinationState.FAILING]):
            blocking.append(DestinationState.DELIVERING)
        assert states_of(busy=busy, window=3, **given) == blocking


def test_without_a_window_nothing_is_full_and_without_a_delivery_it_is_ready() -> None:
    assert states_of(busy=3) == [DestinationState.DELIVERING]
    assert states_of(window=0) == [DestinationState.READY]


@pytest.mark.parametrize(
    ("tries", "share", "queued", "deferred_at", "delivered_at", "failing"),
    [
        (20.0, 0.04, False, None, 9.0, True),
        (20.0, 0.75, True, None, 9.0, False),
        (9.0, 0.04, True, None, 9.0, False),  # too few to say so
        (0.0, None, True, 9.0, None, True),
        (0.0, None, True, 9.0, 8.0, True),
        (0.0, None, True, 8.0, 9.0, False),
        (0.0, None, False, 9.0, None, False),  # nothing waits there any more
        (0.0, None, True, None, None, False),
    ],
)
def test_a_destination_is_failing(
    tries: float,
    share: float | None,
    queued: bool,
    deferred_at: float | None,
    delivered_at: float | None,
    failing: bool,
) -> None:
    said = is_failing(tries=tries, share=share, queued=queued, deferred_at=deferred_at, delivered_at=delivered_at)
    assert said is failing
