"""What a queue out of a backup holds back, and what its marker must be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mailcore.envelope import AsideKind, Origin, Recipient
from mailcore.log.disk import Disk
from mailcore.queue.active import Active, DataAt
from mailcore.queue.aside import Change
from mailcore.queue.records import Administrative
from mailcore.queue.restored import NAME, NOT_RESTORED, Restored, RestoredDamaged, read_restored, write_restored
from tests.lookup.sample_messages import NOW, envelope

RESTORED = Restored(NOW, NOW + 100, {"incoming.0": 5000, "hold": 5000, "local": 5000}, {"TAKEN": 2})


def active(lane: str = "incoming.0", offset: int = 4999, order: str = "", **fields: Any) -> Active:
    message = Active(envelope(**fields), lane, offset, offset, 0, DataAt("", 0, 0), 0.0, 0.0)
    if order:
        arguments = {"recipients": ["new@example.org"], "route": "smtp:elsewhere"}
        message.orders.append(Administrative(order, message.queue_id, "somebody", "their reason", NOW, arguments))
    return message


def hold_of(restored: Restored, message: Active) -> Administrative | None:
    """The order that holds it, behind those it had."""
    orders = restored.orders(message, NOW)
    return orders[-1] if orders and orders[-1].operation == "hold" and not orders[-1].who else None


def test_what_lies_below_is_held_and_what_came_since_is_not() -> None:
    order = hold_of(RESTORED, active())
    assert order is not None
    assert (order.operation, order.why) == ("hold", RESTORED.why)
    assert "may have been delivered since" in RESTORED.why
    assert hold_of(RESTORED, active(offset=5000)) is None
    assert hold_of(RESTORED, active("retry.60")) is None  # a lane the backup had not
    assert hold_of(RESTORED, active("hold")) is None  # released by somebody since
    assert hold_of(NOT_RESTORED, active(offset=0)) is None


def test_what_was_being_released_in_the_backup_is_held_again_and_that_once() -> None:
    assert hold_of(RESTORED, active("hold", order="release", queue_id="TAKEN", generation=2)) is not None
    assert hold_of(RESTORED, active("hold", order="release", queue_id="TAKEN", generation=3)) is None


@pytest.mark.parametrize("operation", ["retry", "reroute", "delay", "release", "undelete", "add_recipients"])
def test_an_order_of_the_backup_is_carried_out_in_front_of_the_hold(operation: str) -> None:
    message = active(order=operation)
    assert [order.operation for order in RESTORED.orders(message, NOW)] == [operation, "hold"]


def test_what_was_about_to_be_deleted_in_the_backup_is_held_when_it_is_undeleted() -> None:
    orders = RESTORED.orders(active(order="delete"), NOW)
    recipient = Recipient(0, "a@example.org")
    for order in [*orders, Administrative("undelete", "Q", "ann", "", NOW)]:
        recipient = Change(order, age_s=0.0, undo_time_s=3600)(recipient)
    assert recipient.aside is not None
    assert (recipient.aside.kind, recipient.aside.why) == (AsideKind.HELD, RESTORED.why)


def test_an_order_of_the_backup_sends_no_bounce() -> None:
    assert [order.operation for order in RESTORED.orders(active(order="bounce"), NOW)] == ["hold"]


def test_what_was_deleted_in_the_backup_is_held_when_it_is_undeleted() -> None:
    assert RESTORED.held_if_undeleted("incoming.0", 4999) == RESTORED.why
    assert RESTORED.held_if_undeleted("incoming.0", 5000) is None


def test_a_bounce_that_was_made_held_is_held_wherever_it_lies() -> None:
    assert hold_of(RESTORED, active("local", 9000, origin=Origin.BOUNCE, held_because="why")) is not None
    assert hold_of(RESTORED, active("local", 9000, origin=Origin.BOUNCE)) is None


def test_the_marker_is_read_as_it_was_written(tmp_path: Path) -> None:
    disk = Disk()
    assert read_restored(disk, str(tmp_path)) is NOT_RESTORED
    write_restored(disk, str(tmp_path), RESTORED)
    assert read_restored(disk, str(tmp_path)) == RESTORED


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"backup_at": 1, "version": 3}', '{"backup_at": 1, "lanes": [1]}']
)
def test_a_marker_that_says_nothing_stops(tmp_path: Path, content: str) -> None:
    (tmp_path / NAME).write_text(content)
    with pytest.raises(RestoredDamaged, match=NAME):
        read_restored(Disk(), str(tmp_path))
