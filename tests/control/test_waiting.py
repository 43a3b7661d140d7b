"""Why a message at rest waits, said of envelopes as they lie in their lanes."""

from __future__ import annotations

import re
import time
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from mailcore.control import view
from mailcore.control.async_client import AsyncControlClient
from mailcore.control.waiting import GROUPS_MAX, why_at_rest, why_not_in_pass
from mailcore.envelope import Aside, AsideKind, Envelope, Recipient
from mailcore.lookup.browse import Found, Stretch
from mailcore.manager_answers import Progress, Reason, Reasons
from tests.control.fake_manager import progress, working
from tests.control.running_control import open_control
from tests.lookup.sample_messages import NOW, deferred, envelope

DATE = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d\d:\d\d"


def why(
    lane: str, message: Envelope, *, runner: int = 0, end: int | None = 10_000, offset: int = 500, away: bool = False
) -> list[Reason]:
    return why_at_rest(Found(lane, offset, message), Stretch(0, runner, end), NOW, away)


def only(groups: list[Reason], sentence: str) -> Reason:
    (group,) = groups
    assert re.fullmatch(sentence, group.sentence), group.sentence
    return group


def test_held_since_when_and_why() -> None:
    message = envelope(["a@example.org", "b@example.org"], held_because="looks odd", written_at=NOW - 60)
    group = only(why("hold", message), f"held since {DATE} until an operator releases it: looks odd")
    assert (group.state, group.recipients, group.since, group.reason) == (
        "held", 2, NOW - 60, "looks odd",
    )  # fmt: skip


def test_held_before_that_was_written_down() -> None:
    assert only(why("hold", envelope()), "held until an operator releases it").since is None


def test_deleted_and_until_when_it_can_be_undone() -> None:
    message = envelope(held_because="spam", due_at=NOW + 3600, written_at=NOW)
    group = only(why("deleted", message), f"deleted since {DATE}: spam; it can be undeleted until {DATE}")
    assert (group.state, group.until) == ("deleted", NOW + 3600)


def test_deleted_out_of_hold_where_it_comes_back_to() -> None:
    message = envelope(held_because="spam", due_at=NOW + 3600, written_at=NOW, held_before="looks odd")
    sentence = f"deleted since {DATE}: spam; it can be undeleted until {DATE}, and is held again then: looks odd"
    only(why("deleted", message), sentence)


def test_deferred_until_when_and_the_last_words_of_each_destination() -> None:
    recipients = (
        Recipient(0, "a@one.example", "smtp:one.example", "", "450 4.2.0 busy"),
        Recipient(1, "b@two.example", "smtp:two.example", "", "connect to mx: Connection refused"),
        Recipient(2, "c@one.example", "smtp:one.example", "", "451 4.3.0 still busy"),
    )
    message = envelope(recipients=recipients, attempts=3, due_at=NOW + 240, generation=3)
    one, two = why("retry.300", message)
    only([one], f"deferred: the next attempt is due at {DATE}; last: 451 4.3.0 still busy")
    assert (one.destination, one.recipients, one.until, one.state) == (
        "smtp:one.example", 2, NOW + 240, "deferred",
    )  # fmt: skip
    assert (two.destination, two.reply) == ("smtp:two.example", "connect to mx: Connection refused")


def test_a_recipient_that_was_added_is_not_said_to_have_the_attempts_of_the_message() -> None:
    recipients = (
        Recipient(0, "a@x.example", "smtp:x.example", "", "450 4.2.0 busy"),
        Recipient(1, "added@x.example", "smtp:x.example", "", ""),
    )
    tried, added = why("retry.300", envelope(recipients=recipients, attempts=2, due_at=NOW + 240))
    only([tried], f"deferred: the next attempt is due at {DATE}; last: 450 4.2.0 busy")
    only([added], f"not tried yet: the first attempt is due at {DATE}")
    aside = Aside(AsideKind.DEFERRED, NOW + 240)
    apart = tuple(msgspec.structs.replace(each, aside=aside) for each in recipients)
    both = why("retry.300", envelope(recipients=apart, attempts=2, aside={"deferred": 2}))
    assert [each.sentence for each in both] == [tried.sentence, added.sentence]


def test_no_clock_makes_it_wait_longer_than_its_lane() -> None:
    (group,) = why("retry.300", deferred("a@example.org", due_at=NOW + 1_000_000))
    assert group.until == NOW + 300


def test_more_destinations_than_anybody_reads_are_one_sum() -> None:
    recipients = tuple(Recipient(n, f"a@d{n}.example", f"smtp:d{n}.example") for n in range(GROUPS_MAX + 5))
    message = envelope(recipients=recipients, recipient_count=5_000, due_at=NOW + 10, attempts=1)
    groups = why("retry.60", message)
    assert len(groups) == GROUPS_MAX + 1
    assert groups[-1].state == "more"
    assert sum(group.recipients for group in groups) == 5_000


def test_scheduled_mail_says_its_own_time() -> None:
    group = only(
        why("retry.60", envelope(not_before=NOW + 500, due_at=NOW + 30)),
        f"delayed: not to be sent before {DATE}",
    )
    assert (group.state, group.until, group.looked_at) == ("delayed", NOW + 500, NOW + 30)


@pytest.mark.parametrize("lane", ["incoming.0", "local", "retry.0"])
def test_not_read_yet_and_how_far_the_runner_is(lane: str) -> None:
    group = only(why(lane, envelope(), runner=100), rf"due at once, and not taken up yet: .* lane {lane}, 400 bytes .*")
    assert (group.state, group.bytes_ahead) == ("queued", 400)
    only(why(lane, envelope(), runner=500), r".*it is the next one")


def test_due_and_not_taken_up() -> None:
    group = only(why("retry.300", deferred("a@example.org", due_at=NOW - 5)), f"due since {DATE}, and not taken up.*")
    assert group.state == "due"


def test_written_but_not_to_be_read_before_a_checkpoint() -> None:
    only(why("retry.0", envelope(), offset=20_000), "due at once; the manager reads it after its next checkpoint")


def test_behind_the_runner_and_not_active_its_pass_has_ended() -> None:
    assert why("incoming.0", envelope(), runner=501)[0].state == "ending"


def test_without_a_manager_what_is_due_waits_for_one_and_the_rest_for_its_time() -> None:
    only(why("incoming.0", envelope(), end=None, away=True), "due at once, but the manager is not running")
    assert why("retry.300", deferred("a@example.org"), end=None, away=True)[0].state == "deferred"


def test_a_time_that_is_none_is_shown_all_the_same() -> None:
    assert "1e+300" not in why("hold", envelope(written_at=1e300))[0].sentence


def mixed(*asides: Aside | None, **fields: Any) -> Envelope:
    """A message with one recipient for each state."""
    recipients = tuple(
        Recipient(number, f"{number}@x.example", "smtp:x.example", "", "450 busy", aside=aside)
        for number, aside in enumerate(asides)
    )
    names = [each.kind.name.lower() for each in asides if each is not None]
    return envelope(recipients=recipients, aside={name: names.count(name) for name in names}, attempts=2, **fields)


HELD = Aside(AsideKind.HELD, at=NOW - 60, why="looks odd")
DELETED = Aside(AsideKind.DELETED, NOW + 3600, at=NOW - 50, why="spam", before=HELD)
DELAYED = Aside(AsideKind.DELAYED, NOW + 7200, at=NOW - 40, why="tonight")


def test_recipients_in_states_of_their_own_each_say_theirs() -> None:
    first, second = (Aside(AsideKind.DEFERRED, NOW + left) for left in (100, 200))
    groups = why("retry.300", mixed(HELD, first, DELETED, HELD, DELAYED, second, first, first_due_at=NOW + 100))
    assert [(each.state, each.recipients, each.until, each.reason, each.since) for each in groups] == [
        ("deferred", 2, NOW + 100, UNSET, UNSET),
        ("deferred", 1, NOW + 200, UNSET, UNSET),
        ("delayed", 1, NOW + 7200, "tonight", NOW - 40),
        ("held", 2, UNSET, "looks odd", NOW - 60),
        ("deleted", 1, NOW + 3600, "spam", NOW - 50),
    ]
    only(groups[:1], f"deferred: the next attempt is due at {DATE}; last: 450 busy")
    only(groups[2:3], f"delayed since {DATE}: not to be sent before {DATE}: tonight")
    only(groups[3:4], f"held since {DATE} until an operator releases it: looks odd")
    sentence = f"deleted since {DATE}: spam; it can be undeleted until {DATE}, and is held again then: looks odd"
    only(groups[4:], sentence)


def test_beside_a_held_recipient_the_others_are_due() -> None:
    due, held = why("retry.0", mixed(HELD, None, None))
    assert (due.state, due.recipients) == ("queued", 2)
    assert (held.state, held.recipients) == ("held", 1)


def test_held_out_of_a_delay_says_what_comes_after_the_release() -> None:
    held = msgspec.structs.replace(HELD, before=DELAYED)
    only(
        why("hold", mixed(held)),
        f"held since {DATE} until an operator releases it: looks odd; then it is not sent before {DATE}",
    )


def test_states_of_recipients_in_records_of_their_own_are_counted() -> None:
    counts = {"held": 2_000, "deferred": 500}
    message = envelope(recipients=(), recipient_count=2_700, aside=counts, first_due_at=NOW + 9)
    groups = why("retry.60", message)
    assert [(each.state, each.recipients) for each in groups] == [("queued", 200), ("deferred", 500), ("held", 2_000)]


def test_more_reasons_than_anybody_reads_are_a_sum_for_each_state() -> None:
    asides = [msgspec.structs.replace(HELD, why=f"reason {number}") for number in range(GROUPS_MAX + 5)]
    groups = why("retry.60", mixed(*asides, DELETED))
    assert [(each.state, each.recipients) for each in groups[GROUPS_MAX:]] == [("held", 5), ("deleted", 1)]
    only(groups[GROUPS_MAX : GROUPS_MAX + 1], "more held; each recipient of the message shows .*")


SUSPENDED = Reason(state="suspended", recipients=1, sentence="destination suspended", destination="smtp:c.example")


def in_pass(**states: int) -> Progress:
    return progress(done=[0], replies={1: "450 busy"}, states=states, recipient_states={2: "suspended"})


def test_what_a_pass_does_not_take_has_its_own_reasons() -> None:
    """Of an active message: 0 is done, 1 was deferred in this pass, 2 waits for its destination."""
    due, later = (Aside(AsideKind.DEFERRED, NOW + left) for left in (-5, 200))
    message = mixed(due, due, due, later, HELD)
    deferred_now = Reason(state="deferred", recipients=1, sentence="deferred")
    reasons = why_not_in_pass(message, in_pass(suspended=1, deferred=2, held=1), [SUSPENDED, deferred_now])
    assert [(each.state, each.recipients, each.until) for each in reasons] == [
        ("deferred", 1, NOW + 200), ("held", 1, UNSET),
    ]  # fmt: skip
    ending = Reason(state="ending", recipients=4, sentence="pass finished")
    assert why_not_in_pass(message, in_pass(deferred=2, held=1), [ending]) == [], "that is the reason of all"


def test_a_message_without_recipients_aside_has_only_the_reasons_of_the_manager() -> None:
    deferred_now = Reason(state="deferred", recipients=1, sentence="deferred")
    assert why_not_in_pass(mixed(None, None, None), in_pass(suspended=1, deferred=1), [SUSPENDED, deferred_now]) == []


async def reasons_of(client: AsyncControlClient, operation: str, message: Envelope) -> list[dict[str, Any]]:
    answer, *_ = [part async for part in client.parts(operation, {"queue_id": message.queue_id})]
    found: list[dict[str, Any]] = answer["reasons" if operation == "explain" else "explain"]
    return found


@pytest.mark.parametrize("operation", ["explain", "show"])
async def test_of_an_active_message_each_group_of_recipients_is_explained(operation: str) -> None:
    async with open_control() as running, running.client() as client:
        message = mixed(None, Aside(AsideKind.DEFERRED, time.time() + 200), HELD)
        (offset,) = running.write("retry.60", message)
        states = {"suspended": 1, "deferred": 1, "held": 1}
        known = progress("retry.60", offset, states=states, recipient_states={0: "suspended"})
        running.manager.answers["working"] = lambda _: working(**{message.queue_id: known})
        running.manager.answers["explain"] = lambda _: Reasons(reasons=[SUSPENDED], state="suspended", states=states)
        answer = await reasons_of(client, operation, message)
        assert [(each["state"], each["recipients"]) for each in answer] == [
            ("suspended", 1), ("deferred", 1), ("held", 1),
        ]  # fmt: skip


@pytest.mark.parametrize("operation", ["explain", "show"])
async def test_just_after_a_pass_the_answer_is_that_of_the_next_checkpoint(
    operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "LOOK_AGAIN_S", 0.001)
    async with open_control() as running, running.client() as client:
        before = envelope(["a@x.example", "b@x.example"])
        (offset,) = running.write("incoming.0", before)
        asked = 0

        def cut(_: object) -> dict[str, Any]:
            nonlocal asked
            asked += 1
            if asked == 3:
                running.write("retry.300", deferred("b@x.example", queue_id=before.queue_id, due_at=time.time() + 200))
                running.lane("incoming.0").mark_garbage(offset)
            end = running.lane("incoming.0").end
            return {"lanes": running.cut() | {"incoming.0": [0, end, end]}}

        running.manager.answers["cut"] = cut
        (reason,) = await reasons_of(client, operation, before)
        assert (reason["state"], reason["recipients"]) == ("deferred", 1)


async def test_a_result_that_stays_unreadable_is_not_made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "SETTLE_S", 0.01)
    monkeypatch.setattr(view, "LOOK_AGAIN_S", 0.001)
    async with open_control() as running, running.client() as client:
        message = envelope(["a@x.example", "b@x.example"])
        running.write("incoming.0", message)
        end = running.lane("incoming.0").end
        running.manager.answers["cut"] = lambda _: {"lanes": {"incoming.0": [0, end, end]}}
        first, recipients = [part async for part in client.parts("show", {"queue_id": message.queue_id})]
        assert [each["state"] for each in first["explain"]] == ["ending"]
        assert {first["message"]["state"], *(each["state"] for each in recipients["recipients"])} == {"active"}
