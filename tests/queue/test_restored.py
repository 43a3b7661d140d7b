"""What a queue out of a backup holds back, and what its marker must be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mailcore.envelope import Origin
from mailcore.log.disk import Disk
from mailcore.queue.active import Active, DataAt
from mailcore.queue.records import Administrative
from mailcore.queue.restored import NAME, NOT_RESTORED, Restored, RestoredDamaged, read_restored, write_restored
from tests.lookup.sample_messages import NOW, envelope

RESTORED = Restored(NOW, NOW + 100, {"incoming.0": 5000, "hold": 5000, "local": 5000}, {"TAKEN": 2})


def active(lane: str = "incoming.0", offset: int = 4999, order: str = "", **fields: Any) -> Active:
    message = Active(envelope(**fields), lane, offset, offset, 0, DataAt("", 0, 0), 0.0, 0.0)
    if order:
        arguments = {"recipients": ["new@example.org"], "route": "smtp:elsewhere"}
        message.order = Administrative(order, message.queue_id, "somebody", "their reason", NOW, arguments)
    return message


def test_what_lies_below_is_held_and_what_came_since_is_not() -> None:
    order = RESTORED.order(active(), NOW)
    assert order is not None
    assert (order.operation, order.why) == ("hold", RESTORED.why)
    assert "may have been delivered since" in RESTORED.why
    assert RESTORED.order(active(offset=5000), NOW) is None
    assert RESTORED.order(active("retry.60"), NOW) is None  # a lane the backup had not
    assert RESTORED.order(active("hold"), NOW) is None  # released by somebody since
    assert NOT_RESTORED.order(active(offset=0), NOW) is None


def test_what_was_being_released_in_the_backup_is_held_again_and_that_once() -> None:
    assert RESTORED.order(active("hold", order="release", queue_id="TAKEN", generation=2), NOW) is not None
    assert RESTORED.order(active("hold", order="release", queue_id="TAKEN", generation=3), NOW) is None


@pytest.mark.parametrize("operation", ["retry", "reroute", "delay", "bounce", "release", "undelete", "add_recipients"])
def test_an_order_of_the_backup_delivers_nothing_but_its_recipients_and_its_route_are_kept(operation: str) -> None:
    message = active(order=operation)
    assert message.order is not None
    order = RESTORED.order(message, NOW)
    assert order is not None
    assert order.operation == "hold"
    assert order.arguments == message.order.arguments


@pytest.mark.parametrize("operation", ["hold", "delete"])
def test_an_order_of_the_backup_that_delivers_nothing_is_carried_out(operation: str) -> None:
    message = active(order=operation)
    assert RESTORED.order(message, NOW) is message.order


def test_a_bounce_that_was_made_held_is_held_wherever_it_lies() -> None:
    assert RESTORED.order(active("local", 9000, origin=Origin.BOUNCE, held_because="why"), NOW) is not None
    assert RESTORED.order(active("local", 9000, origin=Origin.BOUNCE), NOW) is None


def test_the_marker_is_read_as_it_was_written(tmp_path: Path) -> None:
    disk = Disk()
    assert read_restored(disk, str(tmp_path)) is NOT_RESTORED
    write_restored(disk, str(tmp_path), RESTORED)
    assert read_restored(disk, str(tmp_path)) == RESTORED


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"backup_at": 1, "version": 2}', '{"backup_at": 1, "lanes": [1]}']
)
def test_a_marker_that_says_nothing_stops(tmp_path: Path, content: str) -> None:
    (tmp_path / NAME).write_text(content)
    with pytest.raises(RestoredDamaged, match=NAME):
        read_restored(Disk(), str(tmp_path))
