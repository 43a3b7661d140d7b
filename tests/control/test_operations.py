"""What control answers itself, and what it makes of the manager's answers. Real lanes, real sockets, a fake manager."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mailcore.control.client import AsyncControlClient, Refused
from mailcore.envelope import Envelope, Recipient
from mailcore.log.disk import Disk
from mailcore.log.positions import LanePosition, RestartPositions, write_positions
from tests.control.fake_manager import Silence
from tests.control.house import House, open_house
from tests.queue.cast import NOW, deferred, envelope

ABSENT = "1K0RDGV4BE9ZZ"


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with open_house() as house:
        yield house


@pytest.fixture
async def control(house: House) -> AsyncIterator[AsyncControlClient]:
    async with house.client(who="alice") as client:
        yield client


async def all_items(control: AsyncControlClient, **arguments: Any) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    cursor: str | None = ""
    while cursor is not None:
        page = await control.call("list", {**arguments, "cursor": cursor})
        items += page["items"]
        cursor = page["cursor"]
    return items


# -- passing on


async def test_what_the_manager_answers_is_passed_on(house: House, control: AsyncControlClient) -> None:
    house.manager.answers["size"] = lambda _: {"messages": 3}
    assert await control.call("size") == {"messages": 3}
    assert house.manager.hello[0].role == "control"
    assert house.manager.hello[0].pid == os.getpid()


async def test_the_managers_errors_are_its_own_words(house: House, control: AsyncControlClient) -> None:
    def refuse(arguments: dict[str, Any]) -> None:
        raise ValueError(f"there is no transport {arguments['transport']!r}")

    house.manager.answers["transport_set"] = refuse
    with pytest.raises(Refused, match=r"^there is no transport 'x'$"):
        await control.call("transport_set", {"transport": "x", "parameter": "y", "value": 1})


async def test_a_change_carries_who_and_why(house: House, control: AsyncControlClient) -> None:
    house.manager.answers["suspend"] = lambda _: {}
    await control.call("suspend", {"destination": "smtp:example.org"}, why="they asked")
    (request,) = house.manager.asked("suspend")
    assert (request.who, request.why) == (f"alice (uid {os.getuid()})", "they asked")
    assert request.arguments == {"destination": "smtp:example.org", "until": None}


async def test_bad_arguments_do_not_reach_the_manager(house: House, control: AsyncControlClient) -> None:
    with pytest.raises(Refused, match="destinations: limit: Expected `int` >= 1"):
        await control.call("destinations", {"limit": 0})
    with pytest.raises(Refused, match="there is no operation"):
        await control.call("shutdown")
    assert house.manager.requests == []


async def test_what_control_asks_of_the_manager_is_not_for_clients(house: House, control: AsyncControlClient) -> None:
    with pytest.raises(Refused, match="may not cut"):
        await control.call("cut")


# -- listing


async def test_a_list_is_read_from_the_lanes_and_says_who_is_active(house: House, control: AsyncControlClient) -> None:
    resting, active = deferred("a@example.org"), envelope("b@example.org")
    house.write("retry.300", resting)
    house.write("incoming.0", active)
    house.manager.answers["working"] = lambda _: {active.queue_id: {"remaining": 1, "replies": {0: "421 busy"}}}
    page = await control.call("list")
    assert [(item["queue_id"], item["state"], item["reason"]) for item in page["items"]] == [
        (active.queue_id, "active", "421 busy"),
        (resting.queue_id, "deferred", "450 4.2.0 try again later"),
    ]
    assert (page["cursor"], page["note"]) == (None, "")
    assert [len(request.arguments["queue_ids"]) for request in house.manager.asked("working")] == [2]


async def test_pages_end_at_the_limit_and_go_on_at_the_cursor(house: House, control: AsyncControlClient) -> None:
    envelopes = [envelope(f"u{number}@example.org") for number in range(25)]
    house.write("incoming.0", *envelopes[:13])
    house.write("retry.5", *envelopes[13:])
    page = await control.call("list", {"limit": 10})
    assert len(page["items"]) == 10
    assert page["cursor"].startswith("incoming.0:")
    assert [item["queue_id"] for item in await all_items(control, limit=10)] == [each.queue_id for each in envelopes]


async def test_a_filter_may_ask_where_mail_would_go(house: House, control: AsyncControlClient) -> None:
    house.write("incoming.0", envelope("a@example.org"), envelope("b@example.net"))
    items = await all_items(control, filter={"destination": "smtp:example.net"})
    assert [item["recipients"] for item in items] == [["b@example.net"]]


async def test_a_bad_cursor_is_an_error(control: AsyncControlClient) -> None:
    with pytest.raises(Refused, match="'nonsense' is no cursor"):
        await control.call("list", {"cursor": "nonsense"})


async def test_without_the_manager_a_list_says_of_when_it_is() -> None:
    async with open_house(manager=False) as house, house.client() as control:
        (offset,) = house.write("retry.5", deferred("a@example.org"))
        positions = RestartPositions(1, NOW, {"retry.5": LanePosition(offset, offset, offset)}, 0, 0)
        write_positions(Disk(), str(house.settings.queue_directory), positions)
        page = await control.call("list")
        assert len(page["items"]) == 1
        assert page["note"].startswith("the manager is away; as of 2026-11-18 ")
        with pytest.raises(Refused, match=r"^the manager is not running; mail is still accepted$"):
            await control.call("size")


# -- showing


async def test_a_message_is_shown_with_all_its_recipients(house: House, control: AsyncControlClient) -> None:
    lane = house.lane("retry.60")
    everybody = [Recipient(n, f"u{n}@example.org", "smtp:example.org", "", f"451 {n}") for n in range(1500)]
    batch = lane.write_batch(everybody[:1000])
    message = envelope(recipients=tuple(everybody[1000:]), recipient_count=1500, batches=(batch,), helo="client")
    house.write("retry.60", message)
    parts = [part async for part in control.parts("show", {"queue_id": message.queue_id})]
    assert parts[0]["message"]["lane"] == "retry.60"
    assert parts[0]["envelope"]["helo"] == "client"
    assert parts[0]["working"] is None
    assert [len(part["recipients"]) for part in parts[1:]] == [1000, 500]
    last = parts[2]["recipients"][-1]
    assert last == {
        "number": 1499, "address": "u1499@example.org", "destination": "smtp:example.org", "reply": "451 1499",
        "done": False,
    }  # fmt: skip


async def test_of_an_active_message_the_manager_knows_more(house: House, control: AsyncControlClient) -> None:
    message = envelope(["a@example.org", "b@example.org"])
    (offset,) = house.write("incoming.0", message)
    working = {"lane": "incoming.0", "offset": offset, "generation": 0, "done": [0], "replies": {1: "450 later"}}
    house.manager.answers["working"] = lambda _: {message.queue_id: working}
    house.manager.answers["explain"] = lambda _: [{"sentence": "waits for its turn"}]
    parts = [part async for part in control.parts("show", {"queue_id": message.queue_id})]
    assert parts[0]["message"]["state"] == "active"
    assert parts[0]["explain"] == [{"sentence": "waits for its turn"}]
    assert [(each["done"], each["reply"]) for each in parts[1]["recipients"]] == [(True, ""), (False, "450 later")]


async def test_what_the_manager_thinks_of_as_elsewhere_is_still_found(
    house: House, control: AsyncControlClient
) -> None:
    other, message = envelope(), envelope()
    other_at, _ = house.write("incoming.0", other, message)
    house.manager.answers["working"] = lambda _: {message.queue_id: {"lane": "incoming.0", "offset": other_at}}
    house.manager.answers["explain"] = lambda _: []
    parts = [part async for part in control.parts("show", {"queue_id": message.queue_id})]
    assert parts[0]["message"]["queue_id"] == message.queue_id


async def test_a_message_that_is_not_there_is_said_to_be_absent(control: AsyncControlClient) -> None:
    with pytest.raises(Refused, match=f"^there is no message {ABSENT} in the queue$"):
        await control.call("show", {"queue_id": ABSENT})


# -- changing named messages


def accept(house: House, change: str) -> None:
    house.manager.answers[change] = lambda given: {"changed": len(given["messages"]), "errors": {}}


async def test_queue_ids_become_positions(house: House, control: AsyncControlClient) -> None:
    resting, active = deferred("a@example.org"), envelope()
    (offset,) = house.write("retry.5", resting)
    house.manager.answers["working"] = lambda given: {
        queue_id: {"lane": "incoming.3", "offset": 77} for queue_id in given["queue_ids"] if queue_id == active.queue_id
    }
    accept(house, "delete")
    result = await control.call("delete", {"queue_ids": [resting.queue_id, active.queue_id, ABSENT]}, why="spam")
    assert result == {"changed": 2, "errors": {ABSENT: "there is no such message in the queue"}}
    (request,) = house.manager.asked("delete")
    assert sorted(request.arguments["messages"]) == sorted(
        [[resting.queue_id, "retry.5", offset], [active.queue_id, "incoming.3", 77]]
    )
    assert request.why == "spam"


async def test_positions_from_a_list_save_the_search(house: House, control: AsyncControlClient) -> None:
    accept(house, "hold")
    assert (await control.call("hold", {"messages": [[ABSENT, "retry.5", 4096]]}))["changed"] == 1
    assert house.manager.asked("hold")[0].arguments == {"messages": [[ABSENT, "retry.5", 4096]]}
    assert house.manager.asked("working") == []


async def test_a_message_that_moved_meanwhile_is_looked_for_once_more(
    house: House, control: AsyncControlClient
) -> None:
    message = deferred("a@example.org")
    (offset,) = house.write("retry.5", message)

    def delete(given: dict[str, Any]) -> dict[str, Any]:
        ((queue_id, lane, _),) = given["messages"]
        return {"changed": 1, "errors": {}} if lane == "retry.5" else {"changed": 0, "errors": {queue_id: "gone"}}

    house.manager.answers["delete"] = delete
    result = await control.call("delete", {"messages": [[message.queue_id, "incoming.0", 4096]]})
    assert result == {"changed": 1, "errors": {}}
    assert house.manager.asked("delete")[-1].arguments["messages"] == [[message.queue_id, "retry.5", offset]]


async def test_a_change_that_does_not_fit_is_not_tried_twice(house: House, control: AsyncControlClient) -> None:
    message = envelope()
    house.write("hold", message)
    house.manager.answers["retry"] = lambda given: {"changed": 0, "errors": {message.queue_id: "it is held"}}
    result = await control.call("retry", {"queue_ids": [message.queue_id]})
    assert result == {"changed": 0, "errors": {message.queue_id: "it is held"}}
    assert len(house.manager.asked("retry")) == 1


async def test_delay_and_reroute_pass_their_arguments_on(house: House, control: AsyncControlClient) -> None:
    accept(house, "delay")
    accept(house, "reroute")
    place = [[ABSENT, "retry.5", 4096]]
    await control.call("delay", {"messages": place, "until": NOW})
    await control.call("reroute", {"messages": place, "route": "relay:[192.0.2.1]"})
    assert house.manager.asked("delay")[0].arguments == {"messages": place, "until": NOW}
    assert house.manager.asked("reroute")[0].arguments == {"messages": place, "route": "relay:[192.0.2.1]"}


async def test_no_messages_at_all_is_an_error(control: AsyncControlClient) -> None:
    with pytest.raises(Refused, match="hold: queue_ids or messages: at least one is needed"):
        await control.call("hold", {})


async def test_recipients_are_added_where_the_message_lies(house: House, control: AsyncControlClient) -> None:
    message = deferred("a@example.org")
    (offset,) = house.write("retry.5", message)
    accept(house, "add_recipients")
    await control.call("add_recipients", {"queue_id": message.queue_id, "recipients": ["b@example.org"]})
    assert house.manager.asked("add_recipients")[0].arguments == {
        "messages": [[message.queue_id, "retry.5", offset]],
        "recipients": ["b@example.org"],
    }
    with pytest.raises(Refused, match="there is no message"):
        await control.call("add_recipients", {"queue_id": ABSENT, "recipients": ["b@example.org"]})


# -- changing all that match


async def test_all_that_match_are_changed_in_batches(house: House, control: AsyncControlClient) -> None:
    house.write("incoming.0", *(envelope(sender="spam@example.org") for _ in range(1500)), envelope())
    accept(house, "delete")
    given = {"change": "delete", "filter": {"sender": "spam@*"}}
    result = await control.call("change_matching", given, why="spam")
    assert (result["matched"], result["changed"], result["failed"], result["done"]) == (1500, 1500, 0, True)
    sizes = [len(request.arguments["messages"]) for request in house.manager.asked("delete")]
    assert sum(sizes) == 1500
    assert max(sizes) <= 1000
    assert {request.why for request in house.manager.asked("delete")} == {"spam"}


async def test_what_the_change_writes_anew_is_not_changed_again(house: House, control: AsyncControlClient) -> None:
    house.write("retry.5", *(deferred("a@example.org") for _ in range(20)))

    def delay(given: dict[str, Any]) -> dict[str, Any]:
        house.write("retry.4000", *(deferred("a@example.org") for _ in given["messages"]))
        return {"changed": len(given["messages"]), "errors": {}}

    house.lane("retry.4000")
    house.manager.answers["delay"] = delay
    given = {"change": "delay", "filter": {}, "until": NOW + 9999}
    assert (await control.call("change_matching", given))["changed"] == 20


async def test_a_dry_run_counts_and_changes_nothing(house: House, control: AsyncControlClient) -> None:
    house.write("incoming.0", *(envelope() for _ in range(5)))
    result = await control.call("change_matching", {"change": "hold", "filter": {}, "dry_run": True})
    assert (result["matched"], result["changed"]) == (5, 0)
    assert house.manager.asked("hold") == []


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
    house: House, control: AsyncControlClient, change: str, lanes: list[str]
) -> None:
    written: dict[str, Envelope] = {lane: envelope() for lane in ("incoming.0", "retry.5", "hold", "deleted")}
    for lane, message in written.items():
        house.write(lane, message)
    accept(house, change)
    await control.call("change_matching", {"change": change, "filter": {}})
    asked = [message[1] for request in house.manager.asked(change) for message in request.arguments["messages"]]
    assert asked == lanes


async def test_messages_that_could_not_be_changed_are_counted_and_named(
    house: House, control: AsyncControlClient
) -> None:
    house.write("incoming.0", *(envelope() for _ in range(150)))
    house.manager.answers["bounce"] = lambda given: {
        "changed": 0, "errors": {queue_id: "busy" for queue_id, _, _ in given["messages"]}
    }  # fmt: skip
    result = await control.call("change_matching", {"change": "bounce", "filter": {}})
    assert (result["failed"], len(result["errors"])) == (150, 100)


async def test_nothing_is_changed_by_halves_while_the_manager_is_away() -> None:
    async with open_house(manager=False) as house, house.client() as control:
        house.write("incoming.0", envelope())
        with pytest.raises(Refused, match="the manager is not running"):
            await control.call("change_matching", {"change": "delete", "filter": {}})


# -- handing in


async def inject(control: AsyncControlClient, *pieces: bytes, **begin: Any) -> Any:
    await control.call("inject_begin", {"sender": "me@example.org", "recipients": ["you@example.org"], **begin})
    for piece in pieces:
        await control.call("inject_data", {"data": piece})
    return await control.call("inject_end")


async def test_a_message_handed_in_is_safe_before_the_manager_hears_of_it(
    house: House, control: AsyncControlClient
) -> None:
    spool = house.server.injecting._spool

    def take(given: dict[str, Any]) -> dict[str, Any]:
        stored, size = spool.read_envelope(given["envelope"][0])
        assert size == stored.size_bytes
        return {"queue_id": stored.queue_id}

    house.manager.answers["inject"] = take
    answer = await inject(control, b"Subject: x\n\n", b"body\n", not_before=NOW)
    (file,) = house.spool_files()
    assert file.name == answer["queue_id"]
    assert house.manager.asked("inject")[0].arguments["not_before"] == NOW


async def test_a_message_the_manager_refuses_leaves_nothing(house: House, control: AsyncControlClient) -> None:
    def refuse(_: dict[str, Any]) -> None:
        raise ValueError("not now")

    house.manager.answers["inject"] = refuse
    with pytest.raises(Refused, match=r"^not now$"):
        await inject(control, b"x")
    assert house.spool_files() == []


async def test_what_may_have_been_queued_keeps_its_spool_file(house: House, control: AsyncControlClient) -> None:
    def take(_: dict[str, Any]) -> None:
        house.server.start(asyncio.ensure_future(house.manager.stop()))
        raise Silence

    house.manager.answers["inject"] = take
    with pytest.raises(Refused, match="the manager ended while it was asked; whether it was done is not known"):
        await inject(control, b"x")
    assert len(house.spool_files()) == 1


async def test_the_operations_of_handing_in_come_in_order(house: House, control: AsyncControlClient) -> None:
    with pytest.raises(Refused, match="inject_begin comes first"):
        await control.call("inject_data", {"data": b"x"})
    with pytest.raises(Refused, match="inject_begin comes first"):
        await control.call("inject_end")
    begin = {"sender": "", "recipients": ["you@example.org"]}
    await control.call("inject_begin", begin)
    with pytest.raises(Refused, match="inject_end comes first"):
        await control.call("inject_begin", begin)


async def test_a_message_that_grows_too_big_is_refused_and_gone(house: House, control: AsyncControlClient) -> None:
    await control.call("inject_begin", {"sender": "", "recipients": ["you@example.org"]})
    with pytest.raises(Refused, match="too big; allowed: 100000 bytes"):
        await control.call("inject_data", {"data": b"x" * 100_000})
    assert house.spool_files() == []
    with pytest.raises(Refused, match="inject_begin comes first"):
        await control.call("inject_end")


async def test_without_the_manager_nothing_is_taken_in() -> None:
    async with open_house(manager=False) as house, house.client() as control:
        with pytest.raises(Refused, match="mail is still accepted over SMTP"):
            await control.call("inject_begin", {"sender": "", "recipients": ["you@example.org"]})
        assert house.spool_files() == []
