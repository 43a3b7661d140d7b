"""What undelete brings back, told from what is on disk: lane, envelope, order."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mailcore.envelope import Envelope
from mailcore.queue.active import Active, DataAt
from mailcore.queue.records import Administrative
from mailcore.queue.restored import NOT_RESTORED, Restored
from mailcore.queue.undelete import HELD, held_before
from tests.lookup.sample_messages import NOW, envelope

LANES = dict.fromkeys(("incoming.0", "retry.60", "hold", "deleted", "local"), 5000)
RESTORED = Restored(NOW, NOW + 100, LANES, {})


def active(lane: str, offset: int = 100, order: str = "", arguments: Any = None, **fields: Any) -> Active:
    message = Active(envelope(**fields), lane, offset, offset, 0, DataAt("", 0, 0), 0.0, 0.0)
    if order:
        message.order = Administrative(order, message.queue_id, "somebody", "their reason", NOW, arguments or {})
    return message


@pytest.mark.parametrize(
    ("message", "held"),
    [
        (active("retry.60"), None),
        (active("retry.60", order="delete"), None),
        (active("hold", held_because="spam?"), "spam?"),
        (active("hold"), ""),  # held without a reason is held
        (active("hold", order="delete", held_because="spam?"), "spam?"),
        (active("local", order="delete", held_because="as handed in"), "as handed in"),
        (active("deleted", held_because="why it was deleted"), None),
        (active("deleted", order="undelete", held_because="why it was deleted", held_before="spam?"), "spam?"),
        (active("deleted", order="undelete", held_because="why it was deleted", held_before=""), ""),
        (active("incoming.0", order="hold"), "their reason"),  # it waits for what is in flight
        (active("incoming.0", order="delete", arguments={HELD: "the hold before"}), "the hold before"),
        (active("incoming.0", order="undelete", arguments={HELD: "the hold before"}), "the hold before"),
    ],
)
def test_what_was_held_is_known_and_why(message: Active, held: str | None) -> None:
    assert held_before(message) == held
    assert NOT_RESTORED.held_before(message) == held
    assert Restored(NOW, NOW, {"incoming.0": 50, "retry.60": 50, "deleted": 50}).held_before(message) == held


@pytest.mark.parametrize("lane", ["deleted", "incoming.0", "retry.60"])
@pytest.mark.parametrize("order", ["", "delete", "undelete"])
def test_what_was_deleted_in_a_backup_or_about_to_be_is_held_and_keeps_a_reason_of_its_own(
    lane: str, order: str
) -> None:
    assert RESTORED.held_before(active(lane, 4999, order)) == RESTORED.why
    assert RESTORED.held_before(active(lane, 5000, order)) is None
    assert RESTORED.held_before(active("deleted", 4999, order, held_before="spam?")) == "spam?"


def test_an_undelete_that_was_under_way_in_a_backup_holds_for_the_reason_of_the_hold() -> None:
    """Not for that of the deletion."""
    told = Restored(NOW, NOW + 100, LANES, {"TAKEN": 2})
    deleted: dict[str, Any] = {"queue_id": "TAKEN", "generation": 2, "held_because": "why it was deleted"}
    order = told.order(active("deleted", order="undelete", **deleted), NOW)
    assert order is not None
    assert (order.operation, order.why) == ("hold", told.why)
    order = told.order(active("deleted", order="undelete", held_before="spam?", **deleted), NOW)
    assert order is not None
    assert (order.operation, order.why) == ("hold", "spam?")


@pytest.mark.parametrize("held", [None, "", "spam?"])
def test_the_envelope_keeps_it_and_one_written_without_it_was_not_held(held: str | None) -> None:
    fields = msgspec.to_builtins(envelope(held_before=held))
    before = Envelope.__struct_fields__.index("held_before")
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(fields), type=Envelope).held_before == held
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(fields[:before]), type=Envelope).held_before is None
