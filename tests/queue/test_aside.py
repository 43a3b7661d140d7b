"""What each change makes of a recipient in each state, where the message then rests, and how older versions wrote it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mailcore.change_rules import MessageState
from mailcore.envelope import Aside, AsideKind, Envelope, Recipient
from mailcore.queue.aside import (
    HELD,
    NUMBERS,
    Change,
    Tally,
    counts_of,
    is_due,
    numbers_in,
    paused_s,
    ranges_of,
    with_its_state,
)
from mailcore.queue.lanes import AT_ONCE, DELETED, HOLD, Ladder
from mailcore.queue.records import Administrative
from tests.lookup.sample_messages import NOW, envelope

UNDO_S = 3600
LADDER = Ladder([60, 300, 3600], 60, 3600)
HELD_ASIDE = Aside(AsideKind.HELD, 0.0, 10.0, "spam?", NOW - 50)
DELAYED = Aside(AsideKind.DELAYED, NOW + 600, 10.0, "tonight", NOW - 50)
DEFERRED = Aside(AsideKind.DEFERRED, NOW + 90)
GONE = Aside(AsideKind.DELETED, NOW + UNDO_S, 10.0, "spam", NOW - 50)


def changed(operation: str, aside: Aside | None, why: str = "their reason", **arguments: Any) -> Recipient:
    order = Administrative(operation, "Q", "ann", why, NOW, arguments)
    return Change(order, age_s=100.0, undo_time_s=UNDO_S)(Recipient(3, "a@example.org", aside=aside))


def test_a_hold_ends_with_a_release_alone() -> None:
    held = changed("hold", None).aside
    assert held is not None
    assert (held.kind, held.why, held.at, held.age_s) == (AsideKind.HELD, "their reason", NOW, 100.0)
    changes: dict[str, dict[str, Any]] = {
        "retry": {},
        "hold": {},
        "reroute": {"route": "smtp:other.example"},
        "delay": {"until": NOW + 50},
        "undelete": {},
        "add_recipients": {"recipients": ["b@example.org"]},
        "move": {},
    }
    for operation, arguments in changes.items():
        after = changed(operation, held, **arguments).aside
        assert after is not None, operation
        assert (after.kind, after.why) == (AsideKind.HELD, "their reason"), operation
    deleted = changed("delete", held).aside
    assert deleted is not None
    assert changed("undelete", deleted).aside == held
    assert changed("release", held).aside is None


def test_a_release_keeps_the_time_of_a_delay() -> None:
    held = changed("hold", DELAYED).aside
    assert held is not None
    assert held.age_s == 10.0, "its age did not grow since it was delayed"
    assert changed("release", held).aside == DELAYED
    later = changed("delay", HELD_ASIDE, until=NOW + 5_000).aside
    after = changed("release", later).aside
    assert after is not None
    assert (after.kind, after.until) == (AsideKind.DELAYED, NOW + 5_000)


def test_a_delete_can_be_undone_for_the_undo_time_and_restores_what_was_there() -> None:
    deferred = changed("delete", DEFERRED).aside
    assert deferred is not None
    assert deferred.before is None, "due at once when it is undeleted"
    for before in (None, HELD_ASIDE, DELAYED):
        deleted = changed("delete", before).aside
        assert deleted is not None
        assert (deleted.kind, deleted.until, deleted.before) == (AsideKind.DELETED, NOW + UNDO_S, before)
        assert changed("undelete", deleted).aside == before
        for operation in ("hold", "release", "retry", "bounce"):
            assert changed(operation, deleted).aside == deleted
        assert changed("delay", deleted, until=NOW).aside == deleted
        assert changed("reroute", deleted, route="smtp:other.example").route == ""


def test_what_is_undeleted_out_of_a_backup_is_held() -> None:
    back = changed("undelete", GONE, **{HELD: "restored"}).aside
    assert back is not None
    assert (back.kind, back.why) == (AsideKind.HELD, "restored")
    own = msgspec.structs.replace(GONE, before=HELD_ASIDE)
    assert changed("undelete", own, **{HELD: "restored"}).aside == HELD_ASIDE, "it keeps its own reason"


def test_a_delete_of_an_older_version_says_in_its_arguments_what_was_held() -> None:
    deleted = changed("delete", None, **{HELD: "the hold before"}).aside
    assert deleted is not None
    assert deleted.before is not None
    assert (deleted.before.kind, deleted.before.why) == (AsideKind.HELD, "the hold before")


def test_a_retry_ends_a_delay_and_a_wait_and_a_reroute_only_a_wait() -> None:
    assert changed("retry", DELAYED).aside is None
    assert changed("retry", DEFERRED).aside is None
    assert changed("reroute", DEFERRED, route="smtp:other.example").aside is None
    moved = changed("reroute", DELAYED, route="smtp:other.example")
    assert (moved.aside, moved.route) == (DELAYED, "smtp:other.example")


def test_the_lifetime_does_not_pass_while_a_recipient_is_aside() -> None:
    assert changed("release", HELD_ASIDE).paused_s == 90
    assert changed("retry", DELAYED).paused_s == 90
    assert changed("undelete", GONE).paused_s == 90
    assert changed("retry", DEFERRED).paused_s == 0, "a wait between two tries counts"
    again = Recipient(1, "a@example.org", aside=HELD_ASIDE, paused_s=5)
    assert paused_s(again, 110.0) == 105


def test_a_change_applies_to_the_recipients_it_names() -> None:
    change = Change(
        Administrative("hold", "Q", "ann", "", NOW, {NUMBERS: [[1, 2], [5, 5]]}), age_s=0.0, undo_time_s=UNDO_S
    )
    assert [number for number in range(8) if change.covers(number)] == [1, 2, 5]
    assert change(Recipient(2, "a@example.org")).aside is not None
    assert change(Recipient(3, "a@example.org")).aside is None
    bounce = Change(Administrative("bounce", "Q", "ann", "", NOW, {NUMBERS: [[3, 3]]}), age_s=0.0, undo_time_s=UNDO_S)
    assert bounce.bounces(Recipient(3, "a@example.org", aside=HELD_ASIDE))
    assert not bounce.bounces(Recipient(3, "a@example.org", aside=GONE))
    assert not bounce.bounces(Recipient(4, "a@example.org"))


def test_the_reasons_why_a_change_does_not_fit_are_those_of_a_message() -> None:
    release = Change(Administrative("release", "Q", "ann", "", NOW), age_s=0.0, undo_time_s=UNDO_S)
    assert release.refusal(Recipient(1, "a@example.org"), MessageState.WAITING)
    assert not release.refusal(Recipient(1, "a@example.org", aside=HELD_ASIDE), MessageState.WAITING)


def test_numbers_become_ranges_and_back() -> None:
    ranges = ranges_of([0, 1, 2, 7, 9, 10])
    assert ranges == [[0, 2], [7, 7], [9, 10]]
    assert numbers_in(ranges) == ([0, 7, 9], [2, 7, 10])
    assert numbers_in(None) is None


@pytest.mark.parametrize("wrong", ["x", [1], [[2, 1]], [[1, 2], [2, 3]], [[-1, 2]], [["a", "b"]], [[1, 2, 3]], {}])
def test_what_are_no_numbers_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="numbers"):
        numbers_in(wrong)


def place(*asides: Aside | None) -> tuple[str, int, float]:
    tally = Tally(NOW)
    for number, aside in enumerate(asides):
        tally.add(Recipient(number, "a@example.org", aside=aside))
    found = tally.place(LADDER, UNDO_S)
    return found.lane, found.interval_s, found.first_due_at


def test_a_message_rests_where_its_first_recipient_is_due() -> None:
    assert place(None) == (AT_ONCE, 0, 0.0)
    assert place(HELD_ASIDE, None) == (AT_ONCE, 0, 0.0)
    assert place(HELD_ASIDE, HELD_ASIDE) == (HOLD, 0, 0.0)
    assert place(GONE, GONE) == (DELETED, UNDO_S, 0.0)
    assert place(HELD_ASIDE, DEFERRED) == ("retry.60", 60, DEFERRED.until)
    assert place(DELAYED, DEFERRED) == ("retry.60", 60, DEFERRED.until)
    assert place(DELAYED, HELD_ASIDE) == ("retry.300", 300, DELAYED.until)
    assert place(GONE, HELD_ASIDE) == ("retry.3600", 3600, GONE.until), "until the deletion is permanent"
    assert place(Aside(AsideKind.DEFERRED, NOW - 1), HELD_ASIDE) == (AT_ONCE, 0, 0.0)
    assert place(Aside(AsideKind.DELETED, NOW - 1), HELD_ASIDE)[:2] == (AT_ONCE, 0)


def test_what_is_held_is_never_due_and_the_others_at_their_time() -> None:
    assert is_due(None, NOW)
    assert not is_due(HELD_ASIDE, NOW + 1e9)
    assert not is_due(DELAYED, NOW)
    assert is_due(DELAYED, NOW + 600)
    assert is_due(GONE, NOW + UNDO_S)


def test_deleted_recipients_do_not_count_as_queued() -> None:
    message = envelope(recipient_count=5, aside={"deleted": 2, "held": 1})
    assert counts_of(message, "retry.60") == (3, 2)
    assert counts_of(message, DELETED) == (5, 0), "the lane has a count of its own"


@pytest.mark.parametrize(
    ("lane", "fields", "expected"),
    [
        ("retry.60", {}, None),
        ("retry.60", {"not_before": NOW - 1}, None),
        ("retry.60", {"not_before": NOW + 600}, (AsideKind.DELAYED, "", None)),
        ("hold", {"held_because": "spam?"}, (AsideKind.HELD, "spam?", None)),
        ("hold", {}, (AsideKind.HELD, "", None)),
        ("hold", {"not_before": NOW + 600}, (AsideKind.HELD, "", AsideKind.DELAYED)),
        ("local", {"held_because": "as handed in"}, (AsideKind.HELD, "as handed in", None)),
        ("deleted", {"held_because": "spam"}, (AsideKind.DELETED, "spam", None)),
        ("deleted", {"held_because": "spam", "held_before": "spam?"}, (AsideKind.DELETED, "spam", AsideKind.HELD)),
        ("deleted", {"held_before": ""}, (AsideKind.DELETED, "", AsideKind.HELD)),
    ],
)
def test_a_message_of_an_older_version_has_its_state_as_a_whole(
    lane: str, fields: dict[str, Any], expected: Any
) -> None:
    aside = with_its_state(Recipient(0, "a@example.org"), envelope(**fields), lane, NOW).aside
    if expected is None:
        assert aside is None
    else:
        assert aside is not None
        assert (aside.kind, aside.why, aside.before and aside.before.kind) == expected


def test_a_recipient_keeps_its_own_state_whatever_the_message_says() -> None:
    recipient = Recipient(0, "a@example.org", aside=DELAYED)
    assert with_its_state(recipient, envelope(held_because="spam?"), HOLD, NOW) is recipient


def test_an_envelope_of_an_older_version_is_read() -> None:
    fields = msgspec.to_builtins(envelope(recipients=()))
    older = fields[: Envelope.__struct_fields__.index("aside")]
    read = msgspec.msgpack.decode(msgspec.msgpack.encode(older), type=Envelope)
    assert (read.aside, read.first_due_at) == ({}, 0.0)
    recipient = msgspec.msgpack.decode(msgspec.msgpack.encode([1, "a@example.org", "smtp:x", "", ""]), type=Recipient)
    assert (recipient.aside, recipient.paused_s) == (None, 0)
    both = Recipient(1, "a@example.org", aside=msgspec.structs.replace(GONE, before=HELD_ASIDE), paused_s=7)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(both), type=Recipient) == both
