"""Changes: queue ids become positions, filters become batches, and the manager has the last word."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from mailcore.control import change_progress
from mailcore.control.async_client import AsyncControlClient
from mailcore.control.client import Refused
from mailcore.envelope import Envelope
from mailcore.faults import Code, Fault
from mailcore.manager_answers import Overtaken
from tests.control.fake_manager import Silence, progress, working
from tests.control.running_control import RunningControl, open_control
from tests.lookup.sample_messages import NOW, deferred, envelope

ABSENT = "1K0RDGV4BE9ZZ"


# -- changing named messages


def answer(
    changed: int, errors: Mapping[str, Fault] = MappingProxyType({}), elsewhere: Sequence[str] = ()
) -> dict[str, Any]:
    """The manager's."""
    return {"changed": changed, "errors": dict(errors), "elsewhere": list(elsewhere)}


def accept(running: RunningControl, change: str) -> None:
    running.manager.answers[change] = lambda given: answer(len(given["messages"]))


async def test_queue_ids_become_positions(running: RunningControl, control: AsyncControlClient) -> None:
    resting, active = deferred("a@example.org"), envelope()
    (offset,) = running.write("retry.5", resting)
    running.manager.answers["working"] = lambda given: working(
        **{queue_id: progress("incoming.3", 77) for queue_id in given["queue_ids"] if queue_id == active.queue_id}
    )
    accept(running, "delete")
    result = await control.call("delete", {"queue_ids": [resting.queue_id, active.queue_id, ABSENT]}, why="spam")
    assert (result["changed"], list(result["errors"])) == (2, [ABSENT])
    assert result["errors"][ABSENT]["code"] == Code.NOT_FOUND
    (request,) = running.manager.asked("delete")
    assert sorted(request.arguments["messages"]) == sorted(
        [[resting.queue_id, "retry.5", offset], [active.queue_id, "incoming.3", 77]]
    )
    assert request.why == "spam"


async def test_positions_from_a_list_save_the_search(running: RunningControl, control: AsyncControlClient) -> None:
    accept(running, "hold")
    assert (await control.call("hold", {"messages": [[ABSENT, "retry.5", 4096]]}))["changed"] == 1
    assert running.manager.asked("hold")[0].arguments == {"messages": [[ABSENT, "retry.5", 4096]]}
    assert running.manager.asked("working") == []


async def test_a_message_that_moved_meanwhile_is_looked_for_once_more(
    running: RunningControl, control: AsyncControlClient
) -> None:
    message = deferred("a@example.org")
    (offset,) = running.write("retry.5", message)

    def delete(given: dict[str, Any]) -> dict[str, Any]:
        ((queue_id, lane, _),) = given["messages"]
        return answer(1) if lane == "retry.5" else answer(0, {queue_id: Fault(Code.NOT_FOUND, "gone")}, [queue_id])

    running.manager.answers["delete"] = delete
    result = await control.call("delete", {"messages": [[message.queue_id, "incoming.0", 4096]]})
    assert (result["changed"], result["errors"]) == (1, {})
    assert running.manager.asked("delete")[-1].arguments["messages"] == [[message.queue_id, "retry.5", offset]]


async def test_a_change_that_does_not_fit_is_not_tried_twice(
    running: RunningControl, control: AsyncControlClient
) -> None:
    message = envelope()
    running.write("hold", message)
    held = Fault(Code.CONFLICT, "it is held")
    running.manager.answers["retry"] = lambda given: answer(0, {message.queue_id: held})
    result = await control.call("retry", {"queue_ids": [message.queue_id]})
    assert (result["changed"], result["errors"]) == (0, {message.queue_id: msgspec.to_builtins(held)})
    assert len(running.manager.asked("retry")) == 1


async def test_delay_and_reroute_pass_their_arguments_on(running: RunningControl, control: AsyncControlClient) -> None:
    accept(running, "delay")
    accept(running, "reroute")
    place = [[ABSENT, "retry.5", 4096]]
    await control.call("delay", {"messages": place, "until": NOW})
    await control.call("reroute", {"messages": place, "route": "relay:[192.0.2.1]"})
    assert running.manager.asked("delay")[0].arguments == {"messages": place, "until": NOW}
    assert running.manager.asked("reroute")[0].arguments == {"messages": place, "route": "relay:[192.0.2.1]"}


async def test_no_messages_at_all_is_an_error(control: AsyncControlClient) -> None:
    with pytest.raises(Refused, match="hold: queue_ids or messages: at least one is needed"):
        await control.call("hold", {})


async def test_recipients_are_added_where_the_message_lies(
    running: RunningControl, control: AsyncControlClient
) -> None:
    message = deferred("a@example.org")
    (offset,) = running.write("retry.5", message)
    accept(running, "add_recipients")
    await control.call("add_recipients", {"queue_id": message.queue_id, "recipients": ["b@example.org"]})
    assert running.manager.asked("add_recipients")[0].arguments == {
        "messages": [[message.queue_id, "retry.5", offset]],
        "recipients": ["b@example.org"],
    }
    with pytest.raises(Refused, match="there is no message"):
        await control.call("add_recipients", {"queue_id": ABSENT, "recipients": ["b@example.org"]})


# -- changing all that match


async def test_all_that_match_are_changed_in_batches(running: RunningControl, control: AsyncControlClient) -> None:
    running.write("incoming.0", *(envelope(sender="spam@example.org") for _ in range(1500)), envelope())
    accept(running, "delete")
    given = {"change": "delete", "filter": {"sender": "spam@*"}}
    result = await control.call("change_matching", given, why="spam")
    assert (result["matched"], result["changed"], result["failed"], result["done"]) == (1500, 1500, 0, True)
    sizes = [len(request.arguments["messages"]) for request in running.manager.asked("delete")]
    assert sum(sizes) == 1500
    assert max(sizes) <= 1000
    assert {request.why for request in running.manager.asked("delete")} == {"spam"}


async def test_what_the_change_writes_anew_is_not_changed_again(
    running: RunningControl, control: AsyncControlClient
) -> None:
    messages = [deferred("a@example.org") for _ in range(20)]
    running.write("retry.5", *messages)

    def delay(given: dict[str, Any]) -> dict[str, Any]:
        running.write("retry.4000", *(msgspec.structs.replace(each, generation=9) for each in messages))
        for _, lane, offset in given["messages"]:
            running.lane(lane).mark_garbage(offset)
        return answer(len(given["messages"]))

    running.lane("retry.4000")
    running.manager.answers["delay"] = delay
    given = {"change": "delay", "filter": {}, "until": NOW + 9999}
    assert (await control.call("change_matching", given))["changed"] == 20


def asked_for(running: RunningControl, change: str) -> list[str]:
    return [message[0] for request in running.manager.asked(change) for message in request.arguments["messages"]]


async def test_a_change_with_the_cut_of_a_count_touches_nothing_that_came_later(
    running: RunningControl, control: AsyncControlClient
) -> None:
    now = time.time()

    def lately(**fields: Any) -> Envelope:
        return envelope(arrived_at=now - 60, **fields)

    def moved(message: Envelope) -> Envelope:
        return msgspec.structs.replace(message, generation=1, attempts=1)

    counted = [lately() for _ in range(3)]
    first, _, _ = running.write("incoming.0", *counted)
    running.lane("local"), running.lane("retry.5")
    given = {"change": "delete", "filter": {}}
    count = await control.call("change_matching", given | {"dry_run": True})
    assert (count["matched"], count["matched_recipients"]) == (3, 3)
    assert len(count["cut"]) < 100
    # Later: one still where it came in, one put off since, one that took long to come, a bounce and one that began later;
    # and of those counted one was put off since.
    put_off = lately()
    _, offset = running.write("incoming.0", lately(), put_off)
    running.write("retry.5", moved(put_off), moved(counted[0]), envelope(arrived_at=now + 60, generation=1))
    running.write("retry.30", lately(not_before=now + 9999))
    running.write("local", envelope(arrived_at=now - 1))
    running.lane("incoming.0").mark_garbage(first)
    running.lane("incoming.0").mark_garbage(offset)
    accept(running, "delete")
    again = await control.call("change_matching", given | {"dry_run": True, "cut": count["cut"]})
    assert (again["matched"], again["cut"]) == (3, count["cut"])
    result = await control.call("change_matching", given | {"cut": count["cut"]})
    assert (result["matched"], result["matched_recipients"], result["changed"]) == (3, 3, 3)
    assert sorted(asked_for(running, "delete")) == sorted(each.queue_id for each in counted)


async def test_nobody_grows_into_a_filter_after_the_count(running: RunningControl, control: AsyncControlClient) -> None:
    now = time.time()
    old, young = envelope(arrived_at=now - 4000), envelope(arrived_at=now - 3000)
    running.write("incoming.0", old, young)
    accept(running, "delete")
    ends = f"incoming.0:{running.lane('incoming.0').end}"
    given = {"change": "delete", "filter": {"older_than_s": 2500}, "cut": f"{now - 1000} {ends}"}
    assert (await control.call("change_matching", given))["matched"] == 1
    assert asked_for(running, "delete") == [old.queue_id]
    given["filter"] = {"younger_than_s": 2500}
    await control.call("change_matching", given)
    assert asked_for(running, "delete") == [old.queue_id, young.queue_id]


async def test_what_was_counted_is_changed_although_its_clock_was_ahead(
    running: RunningControl, control: AsyncControlClient
) -> None:
    """The clock was set back before the count: the mail seems to come later than that."""
    now = time.time()
    counted = [envelope(arrived_at=now + 1800, generation=generation) for generation in (0, 1, 1)]
    for lane, message in zip(("incoming.0", "retry.5", "hold"), counted, strict=True):
        running.write(lane, message)
    accept(running, "delete")
    given = {"change": "delete", "filter": {}}
    count = await control.call("change_matching", given | {"dry_run": True})
    assert count["matched"] == 3
    running.write("incoming.0", envelope(arrived_at=now + 1), envelope(arrived_at=now - 1))
    running.write("retry.5", deferred("b@example.org", arrived_at=now + 1800))
    assert (await control.call("change_matching", given | {"cut": count["cut"]}))["matched"] == 3
    assert sorted(asked_for(running, "delete")) == sorted(each.queue_id for each in counted)


async def test_nobody_grows_into_a_filter_when_the_clock_is_set_back_after_the_count(
    running: RunningControl, control: AsyncControlClient
) -> None:
    counted_at = time.time() + 3600
    old, young = envelope(arrived_at=counted_at - 3000), envelope(arrived_at=counted_at - 2000)
    running.write("incoming.0", old, young)
    accept(running, "delete")
    ends = f"incoming.0:{running.lane('incoming.0').end}"
    given = {"change": "delete", "filter": {"younger_than_s": 2500}, "cut": f"{counted_at} {ends}"}
    await control.call("change_matching", given)
    assert asked_for(running, "delete") == [young.queue_id]
    given["filter"] = {"older_than_s": 2500}
    await control.call("change_matching", given)
    assert asked_for(running, "delete") == [young.queue_id, old.queue_id]


@pytest.mark.parametrize(
    "cut", ["x", "nan", "1.0 incoming.0", "1.0 incoming.0:", "1.0  ", "1.0 incoming.0:1 incoming.0:2"]
)
async def test_what_is_no_cut_is_refused(control: AsyncControlClient, cut: str) -> None:
    with pytest.raises(Refused, match="is not a valid cut; use the cut that a dry run returned"):
        await control.call("change_matching", {"change": "delete", "filter": {}, "cut": cut})


async def test_a_cut_made_while_the_manager_is_away_goes_by_the_time_alone(
    running: RunningControl, control: AsyncControlClient
) -> None:
    running.write("incoming.0", envelope())
    await running.lose_the_manager()
    count = await control.call("change_matching", {"change": "delete", "filter": {}, "dry_run": True})
    assert (count["matched"], " " in count["cut"]) == (1, False)


async def test_a_dry_run_counts_and_changes_nothing(running: RunningControl, control: AsyncControlClient) -> None:
    running.write("incoming.0", *(envelope() for _ in range(5)))
    result = await control.call("change_matching", {"change": "hold", "filter": {}, "dry_run": True})
    assert (result["matched"], result["changed"]) == (5, 0)
    assert running.manager.asked("hold") == []


@pytest.mark.parametrize(
    ("change", "lanes"),
    [
        ("undelete", ["deleted"]),
        ("release", ["hold"]),
        ("hold", ["incoming.0", "retry.5"]),
        ("retry", ["incoming.0", "retry.5"]),
        ("delete", ["incoming.0", "retry.5", "hold"]),
    ],
)
async def test_a_change_goes_where_it_can_do_anything(
    running: RunningControl, control: AsyncControlClient, change: str, lanes: list[str]
) -> None:
    written: dict[str, Envelope] = {lane: envelope() for lane in ("incoming.0", "retry.5", "hold", "deleted")}
    for lane, message in written.items():
        running.write(lane, message)
    accept(running, change)
    await control.call("change_matching", {"change": change, "filter": {}})
    asked = [message[1] for request in running.manager.asked(change) for message in request.arguments["messages"]]
    assert asked == lanes


async def test_messages_that_could_not_be_changed_are_counted_and_named(
    running: RunningControl, control: AsyncControlClient
) -> None:
    running.write("incoming.0", *(envelope() for _ in range(150)))
    running.manager.answers["bounce"] = lambda given: answer(
        0, {queue_id: Fault(Code.BUSY, "busy") for queue_id, _, _ in given["messages"]}
    )
    result = await control.call("change_matching", {"change": "bounce", "filter": {}})
    assert (result["failed"], len(result["errors"])) == (150, 100)


async def test_what_became_of_those_being_delivered_is_answered(
    running: RunningControl, control: AsyncControlClient
) -> None:
    first, second = envelope(), envelope()
    running.write("incoming.0", first, second)
    flying = {first.queue_id: [0, 1], second.queue_id: [7]}
    running.manager.answers["hold"] = lambda given: answer(2) | {"recipients": 4, "in_flight": flying}
    looks: Iterator[Overtaken] = iter(())
    running.manager.answers["overtaken"] = lambda given: next(looks)
    for name, given in (
        ("change_matching", {"change": "hold", "filter": {}, "wait_s": 60}),
        ("hold", {"queue_ids": [first.queue_id, second.queue_id], "wait_s": 60}),
    ):
        looks = iter([Overtaken(too_late=1, undecided=2), Overtaken(too_late=2, undecided=0)])
        result = await control.call(name, given)
        assert (result["in_flight"], result["too_late"], result["undecided"]) == (3, 2, 0)
        assert running.manager.asked("overtaken")[-1].arguments == {"recipients": flying}


async def test_a_delivery_that_does_not_end_is_undecided(running: RunningControl, control: AsyncControlClient) -> None:
    message = envelope()
    running.write("incoming.0", message)
    running.manager.answers["hold"] = lambda given: answer(1) | {"in_flight": {message.queue_id: [0]}}
    running.manager.answers["overtaken"] = lambda given: Overtaken(too_late=0, undecided=1)
    result = await control.call("hold", {"queue_ids": [message.queue_id]})
    assert (result["in_flight"], result["too_late"], result["undecided"]) == (1, 0, 1)


def pages_of(running: RunningControl, change: str) -> list[int]:
    return [len(request.arguments["messages"]) for request in running.manager.asked(change)]


async def test_each_message_is_counted_once_when_the_manager_goes_in_the_middle(
    running: RunningControl, control: AsyncControlClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three pages the first is changed, of the second nobody knows, and the third is not reached.

    A page ends with its time, too, so how many messages it has is read from what the manager was asked.
    """
    monkeypatch.setattr(change_progress, "BACK_S", 0.0)
    running.write("incoming.0", *(envelope() for _ in range(2500)))

    def hold(given: dict[str, Any]) -> dict[str, Any]:
        if len(running.manager.asked("hold")) == 2:
            running.manager.lose_connections()
            raise Silence
        return answer(len(given["messages"]))

    running.manager.answers["hold"] = hold
    result = await control.call("change_matching", {"change": "hold", "filter": {}})
    changed, unknown = pages_of(running, "hold")
    assert (result["matched"], result["changed"], result["failed"]) == (2500, changed, 2500 - changed)
    assert result["failures"] == {Code.OUTCOME_UNKNOWN: unknown, Code.UNAVAILABLE: 2500 - changed - unknown}


async def test_a_change_waits_for_a_manager_that_was_killed(
    running: RunningControl, control: AsyncControlClient
) -> None:
    running.write("incoming.0", *(envelope() for _ in range(2500)))
    again: list[asyncio.Task[None]] = []

    async def restart() -> None:
        await asyncio.sleep(0.3)
        await running.manager.start()

    def hold(given: dict[str, Any]) -> dict[str, Any]:
        if len(running.manager.asked("hold")) == 1:
            running.manager.lose_connections()
            again.append(asyncio.create_task(restart()))
            raise Silence
        return answer(len(given["messages"]))

    running.manager.answers["hold"] = hold
    result = await control.call("change_matching", {"change": "hold", "filter": {}})
    unknown, *changed = pages_of(running, "hold")
    assert unknown + sum(changed) == 2500
    assert (result["changed"], result["failures"]) == (sum(changed), {Code.OUTCOME_UNKNOWN: unknown})


@pytest.mark.parametrize(("lane", "changed"), [({}, 2), ({"lane": "incoming*"}, 1)])
async def test_what_matched_and_went_elsewhere_meanwhile_is_changed_there(
    running: RunningControl, control: AsyncControlClient, lane: dict[str, str], changed: int
) -> None:
    stays, goes = envelope(sender="spam@example.org"), envelope(sender="spam@example.org")
    _, left = running.write("incoming.0", stays, goes)

    def hold(given: dict[str, Any]) -> dict[str, Any]:
        if ["incoming.0", left] not in [place for _, *place in given["messages"]]:
            return answer(len(given["messages"]))
        running.write("retry.5", msgspec.structs.replace(goes, generation=1))
        running.lane("incoming.0").mark_garbage(left)
        return answer(
            len(given["messages"]) - 1,
            {goes.queue_id: Fault(Code.NOT_FOUND, "it rests elsewhere by now")},
            [goes.queue_id],
        )

    running.manager.answers["hold"] = hold
    given = {"change": "hold", "filter": {"sender": "spam@*", **lane}}
    result = await control.call("change_matching", given)
    # With a lane asked for it is left where it went, and said so.
    assert (result["changed"], list(result["errors"])) == (changed, [goes.queue_id] if lane else [])
    assert result["changed"] + result["failed"] == 2


async def test_what_moves_while_the_queue_is_read_is_found_where_it_went(
    running: RunningControl, control: AsyncControlClient
) -> None:
    """It has left its lane before that is read, and lies beyond the end of another; what came in since is left alone."""
    running.write("incoming.0", *(envelope(sender="spam@example.org") for _ in range(1000)))
    goes = envelope(sender="spam@example.org")
    (left,) = running.write("retry.5", goes)
    running.lane("retry.30")

    def delete(given: dict[str, Any]) -> dict[str, Any]:
        if len(running.manager.asked("delete")) == 1:
            running.write("retry.30", msgspec.structs.replace(goes, generation=1))
            running.lane("retry.5").mark_garbage(left)
            running.write("incoming.0", envelope(sender="spam@example.org", arrived_at=time.time() - 1))
        return answer(len(given["messages"]))

    running.manager.answers["delete"] = delete
    result = await control.call("change_matching", {"change": "delete", "filter": {"sender": "spam@*"}})
    assert (result["matched"], result["changed"], result["failed"]) == (1001, 1001, 0)
    assert running.manager.asked("delete")[-1].arguments["messages"][0][:2] == [goes.queue_id, "retry.30"]


async def test_nothing_is_changed_by_halves_while_the_manager_is_away() -> None:
    async with open_control(manager=False) as running, running.client() as control:
        running.write("incoming.0", envelope())
        with pytest.raises(Refused, match="the manager is not running"):
            await control.call("change_matching", {"change": "delete", "filter": {}})
