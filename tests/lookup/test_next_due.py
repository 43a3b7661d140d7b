"""When a message is due next, and why, said of envelopes as the manager writes them."""

from __future__ import annotations

from typing import Any

import pytest

from mailcore.envelope import Aside, AsideKind, Envelope, Recipient
from mailcore.lookup.next_due import next_due
from tests.lookup.sample_messages import NOW, envelope

REFUSED, GREY = "connect: Connection refused", "450 4.1.1 greylisted"


def message(*recipients: tuple[Aside | None, str], **fields: Any) -> Envelope:
    """A message with one recipient for each state and reply."""
    each = tuple(
        Recipient(number, f"{number}@x.example", "", "", r, aside=a) for number, (a, r) in enumerate(recipients)
    )
    kinds = [a.kind.name.lower() for a, _ in recipients if a is not None]
    return envelope(recipients=each, aside={kind: kinds.count(kind) for kind in kinds}, **fields)


def deferred(in_s: float) -> Aside:
    return Aside(AsideKind.DEFERRED, NOW + in_s)


HELD = Aside(AsideKind.HELD, why="a question")
HELD_SILENTLY = Aside(AsideKind.HELD)
DELETED = Aside(AsideKind.DELETED, NOW + 30)
TONIGHT = Aside(AsideKind.DELAYED, NOW + 100, why="tonight")


@pytest.mark.parametrize(
    ("states", "in_s", "reason"),
    [
        ([(deferred(293), REFUSED), (HELD, GREY)], 293, REFUSED),
        ([(deferred(293), REFUSED), (HELD_SILENTLY, GREY)], 293, REFUSED),
        ([(deferred(200), REFUSED), (deferred(500), GREY)], 200, REFUSED),
        ([(deferred(500), GREY), (deferred(200), ""), (deferred(200), REFUSED)], 200, REFUSED),
        ([(deferred(293), REFUSED), (TONIGHT, GREY)], 100, "tonight"),
        ([(deferred(293), REFUSED), (DELETED, GREY)], 293, REFUSED),
        ([(deferred(293), ""), (HELD, GREY)], 293, ""),
    ],
)
def test_time_and_reason_are_those_of_the_same_recipients(
    states: list[tuple[Aside | None, str]], in_s: float, reason: str
) -> None:
    first = min(aside.until for aside, _ in states if aside is not None and aside.until)
    due = next_due(message(*states, due_at=NOW + 60, first_due_at=first))
    assert (due.at, due.reason, due.tried) == (NOW + in_s, reason, True)


def test_of_what_is_not_tried_the_reason_is_why_it_is_held() -> None:
    due = next_due(message((HELD, GREY), (DELETED, REFUSED), first_due_at=NOW + 30))
    assert (due.reason, due.tried) == ("a question", False)


def test_a_message_without_recipients_aside_has_one_time_and_its_last_reply() -> None:
    due = next_due(message((None, GREY), (None, REFUSED), due_at=NOW + 60, not_before=NOW + 90))
    assert due == (NOW + 90, REFUSED, True)


def test_of_a_long_list_the_time_is_that_of_the_first_wherever_it_lies() -> None:
    listed = envelope(
        recipients=(Recipient(0, "a@x.example", reply=GREY, aside=deferred(500)),),
        recipient_count=1_001,
        aside={"deferred": 1_001},
        first_due_at=NOW + 100,
    )
    assert next_due(listed) == (NOW + 100, "", True), "the reply of the one recipient that is read is not theirs"
