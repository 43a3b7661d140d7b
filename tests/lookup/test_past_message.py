"""A message as it was, record by record."""

from __future__ import annotations

import math

import pytest

from mailcore.envelope import Status
from mailcore.lookup.past_message import PastMessage
from mailcore.queue.records import Administrative
from tests.lookup.sample_messages import envelope

UNDO_S = 600.0


def arrived(recipients: int = 1, lane: str = "incoming.0") -> PastMessage:
    return PastMessage(recipients, lane, 100.0, UNDO_S)


def order(operation: str, at: float = 200.0, **arguments: object) -> Administrative:
    return Administrative(operation, "M1", "she", "because", at, arguments)


def test_mail_is_queued_until_it_was_tried_and_deferred_until_it_is_due() -> None:
    message = arrived(2)
    assert message.states(150.0) == {"queued": 2}
    message.verdict(0, Status.DEFERRED, "smtp:b.example", "450 later", 160.0)
    assert message.states(161.0) == {"deferred": 1, "queued": 1}
    message.verdict(1, Status.DELIVERED, "smtp:c.example", "250 ok", 162.0)
    message.replaced("retry.300", 163.0)
    assert (message.states(170.0), message.left, message.attempts) == ({"deferred": 1}, 1, 1)
    assert message.states(463.0) == {"queued": 1}
    assert message.destinations() == {"smtp:b.example": 1}


def test_mail_that_came_into_the_hold_lane_is_held_also_without_an_order() -> None:
    message = arrived()
    message.replaced("hold", 110.0)
    assert message.states(math.inf) == {"held": 1}


def test_what_is_deleted_counts_apart_until_its_verdict_and_is_due_when_it_is_undeleted() -> None:
    message = arrived()
    message.order(order("delete"))
    message.replaced("deleted", 201.0)
    assert (message.states(300.0), message.destinations()) == ({"deleted": 1}, {})
    message.order(order("undelete", 400.0))
    assert message.states(400.0) == {"queued": 1}


def test_a_change_of_some_leaves_the_others_as_they_are() -> None:
    message = arrived(3)
    message.order(order("hold", numbers=[[1, 1]]))
    message.replaced("retry.0", 201.0)
    assert message.states(202.0) == {"queued": 2, "held": 1}
    message.verdict(0, Status.DEFERRED, "smtp:b.example", "450 later", 203.0)
    message.verdict(1, Status.DEFERRED, "smtp:b.example", "450 later", 203.0)  # it was in flight
    assert message.states(204.0) == {"deferred": 1, "held": 1, "queued": 1}


def test_mail_handed_in_for_later_is_delayed_and_not_deferred() -> None:
    message = arrived(lane="retry.300")
    assert message.states(150.0) == {"delayed": 1}
    message.replaced("retry.60", 400.0)
    assert (message.states(410.0), message.attempts) == ({"delayed": 1}, 0)
    assert message.states(460.0) == {"queued": 1}


def test_added_recipients_are_held_as_the_others_are() -> None:
    message = arrived()
    message.order(order("hold"))
    message.order(order("add_recipients", recipients=["x@b.example"]))
    assert (message.states(300.0), message.left) == ({"held": 2}, 2)
    shown = list(message.recipients({0: "a@b.example"}, 300.0))
    assert [each.address for each in shown] == ["a@b.example", "x@b.example"]
    item = message.item(envelope("a@b.example", queue_id="M1"), shown, 300.0, "x@b.example")
    assert (item.recipients, item.recipient_count, item.reason) == (["x@b.example", "a@b.example"], 2, "because")


@pytest.mark.parametrize(
    "wrong",
    [order("hold", numbers="all"), order("delay", until="soon"), order("delay"), order("unknown"), order("release")],
)
def test_an_order_that_cannot_be_understood_changes_nothing(wrong: Administrative) -> None:
    message = arrived()
    message.order(wrong)
    assert message.states(300.0) == {"queued": 1}
