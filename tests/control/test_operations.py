"""What control answers itself, and what it makes of the manager's answers. Real lanes, real sockets, a fake manager."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import msgspec
import pytest

from mailcore.control import intake, view
from mailcore.control.async_client import AsyncControlClient
from mailcore.control.client import Refused
from mailcore.control.protocol.messages import Reasons
from mailcore.control.protocol.operation import Access, Answerer
from mailcore.control.protocol.table import OPERATIONS
from mailcore.envelope import Recipient
from mailcore.faults import Code
from mailcore.log.disk import Disk
from mailcore.log.positions import LanePosition, RestartPositions, write_positions
from mailcore.queue.identity import establish, guards_of
from tests.control.fake_manager import Silence, progress, reasons, working
from tests.control.running_control import RunningControl, open_control
from tests.faults import refused
from tests.lookup.sample_messages import NOW, deferred, envelope

ABSENT = "1K0RDGV4BE9ZZ"


async def all_items(control: AsyncControlClient, **arguments: Any) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    cursor: str | None = ""
    while cursor is not None:
        page = await control.call("list", {**arguments, "cursor": cursor})
        items += page["items"]
        cursor = page["cursor"]
    return items


# -- rights


async def test_every_client_may_ask_what_changes_nothing_and_no_more(running: RunningControl) -> None:
    """Control changes something in three classes only; an operation answered there is not for all clients.

    One of them, of the settings, answers questions as well.
    """
    changing = (running.server.operations._changes, running.server.injecting)
    assert {name for name in OPERATIONS if name.startswith("settings") and OPERATIONS[name].access is Access.READ} == {
        "settings", "settings_effects", "settings_history",
    }  # fmt: skip
    for name, answers in running.server.operations._answers.items():
        changes = getattr(answers, "__self__", None) in changing
        assert OPERATIONS[name].access is not Access.READ or not changes, name
        assert OPERATIONS[name].answerer is Answerer.CONTROL, name
    answered = {name for name, operation in OPERATIONS.items() if operation.answerer is Answerer.CONTROL}
    assert answered == set(running.server.operations._answers)


# -- passing on


async def test_what_the_manager_answers_is_passed_on(running: RunningControl, control: AsyncControlClient) -> None:
    running.manager.answers["size"] = lambda _: {"messages": 3}
    assert (await control.call("size"))["messages"] == 3
    assert running.manager.hello[0].role == "control"
    assert running.manager.hello[0].pid == os.getpid()


async def test_the_managers_errors_are_its_own_words(running: RunningControl, control: AsyncControlClient) -> None:
    def refuse(arguments: dict[str, Any]) -> None:
        raise ValueError(f"there is no transport {arguments['transport']!r}")

    running.manager.answers["transport_set"] = refuse
    with pytest.raises(Refused, match=r"^there is no transport 'x'$"):
        await control.call("transport_set", {"transport": "x", "parameter": "y", "value": 1})


async def test_a_change_carries_who_and_why(running: RunningControl, control: AsyncControlClient) -> None:
    running.manager.answers["suspend"] = lambda _: {}
    await control.call("suspend", {"destination": "smtp:example.org"}, why="they asked")
    (request,) = running.manager.asked("suspend")
    assert (request.who, request.why) == (f"alice (uid {os.getuid()})", "they asked")
    assert request.arguments == {"destination": "smtp:example.org", "until": None}


async def test_bad_arguments_do_not_reach_the_manager(running: RunningControl, control: AsyncControlClient) -> None:
    with refused(Code.INVALID, "limit"):
        await control.call("destinations", {"limit": 0})
    with pytest.raises(Refused, match="there is no operation"):
        await control.call("shutdown")
    assert running.manager.requests == []


async def test_what_control_asks_of_the_manager_is_not_for_clients(
    running: RunningControl, control: AsyncControlClient
) -> None:
    with pytest.raises(Refused, match="may not cut"):
        await control.call("cut")


# -- listing


async def test_a_list_is_read_from_the_lanes_and_says_who_is_active(
    running: RunningControl, control: AsyncControlClient
) -> None:
    resting, active = deferred("a@example.org"), envelope(["b@example.org", "c@example.org"])
    running.write("retry.300", resting)
    running.write("incoming.0", active)
    running.manager.answers["working"] = lambda _: working(**{active.queue_id: progress(replies={0: "421 busy"})})
    page = await control.call("list")
    shown = [(item["queue_id"], item["state"], item["reason"], item["recipient_count"]) for item in page["items"]]
    assert shown == [
        (active.queue_id, "active", "421 busy", 1),  # as ``size`` counts: the other one is done
        (resting.queue_id, "deferred", "450 4.2.0 try again later", 1),
    ]
    assert (page["cursor"], page["note"]) == (None, "")
    assert [len(request.arguments["queue_ids"]) for request in running.manager.asked("working")] == [2]


async def test_pages_end_at_the_limit_and_go_on_at_the_cursor(
    running: RunningControl, control: AsyncControlClient
) -> None:
    envelopes = [envelope(f"u{number}@example.org") for number in range(25)]
    running.write("incoming.0", *envelopes[:13])
    running.write("retry.5", *envelopes[13:])
    page = await control.call("list", {"limit": 10})
    assert len(page["items"]) == 10
    assert page["cursor"].startswith("incoming.0:")
    assert [item["queue_id"] for item in await all_items(control, limit=10)] == [each.queue_id for each in envelopes]


async def test_a_filter_may_ask_where_mail_would_go(running: RunningControl, control: AsyncControlClient) -> None:
    running.write("incoming.0", envelope("a@example.org"), envelope("b@example.net"))
    items = await all_items(control, filter={"destination": "smtp:example.net"})
    assert [item["recipients"] for item in items] == [["b@example.net"]]


async def test_a_bad_cursor_is_an_error(control: AsyncControlClient) -> None:
    with pytest.raises(Refused, match="'nonsense' is not a cursor"):
        await control.call("list", {"cursor": "nonsense"})


async def test_without_the_manager_a_list_says_of_when_it_is() -> None:
    async with open_control(manager=False) as running, running.client() as control:
        (offset,) = running.write("retry.5", deferred("a@example.org"))
        positions = RestartPositions(
            1, NOW, {"retry.5": LanePosition(offset, running.lane("retry.5").end, offset)}, 0, 0
        )
        write_positions(Disk(), str(running.settings.queue_directory), positions)
        page = await control.call("list")
        assert len(page["items"]) == 1
        assert page["note"].startswith("the manager is not running; as of 2026-11-18 ")
        with pytest.raises(
            Refused, match=r"^the manager is not running; mail is still accepted while the disk has room$"
        ):
            await control.call("size")


async def test_without_the_manager_and_a_disk_nobody_is_promised_that_mail_is_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_control(manager=False) as running, running.client() as control:
        settings = running.settings
        directories = {name: str(path) for name, path in settings.identified_directories.items() if path.exists()}
        logs = (str(settings.log_directory), str(settings.reports_directory))
        held = establish(Disk(), directories, *logs, NOW, lambda: "0" * 32)
        monkeypatch.setattr(Disk, "guards", guards_of(directories, held.identity))  # as every child has them
        with pytest.raises(Refused, match="mail is still accepted while the disk has room"):
            await control.call("size")
        settings.spool_directory.rename(settings.home / "spool.old")
        away = rf"no mail is accepted: the spool directory {settings.spool_directory} does not exist"
        with pytest.raises(Refused, match=f"^the manager is not running; {away}"):
            await control.call("size")
        with pytest.raises(Refused, match=f"nothing can be changed; {away}"):
            await control.call("change_matching", {"change": "hold", "filter": {"lane": "*"}})
        for lock in held.locks:
            os.close(lock)


async def test_a_disk_that_hangs_does_not_delay_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "LOOK_S_MAX", 0.01)
    monkeypatch.setattr(Disk, "check", lambda *_: time.sleep(0.3))
    assert "is not known" in await intake.Intake(Disk(), ["queue"]).state()


# -- showing


async def test_a_message_that_moves_meanwhile_is_shown(running: RunningControl, control: AsyncControlClient) -> None:
    """It lies beyond the end that the manager told, and has left the lane where it lay."""
    message = envelope()
    (left,) = running.write("retry.5", message)
    running.lane("retry.30")

    def cut(_: Any) -> dict[str, Any]:
        before = running.cut()
        if len(running.manager.asked("cut")) == 1:
            running.write("retry.30", msgspec.structs.replace(message, generation=1))
            running.lane("retry.5").mark_garbage(left)
        return {"lanes": before}

    running.manager.answers["cut"] = cut
    shown = await control.call("show", {"queue_id": message.queue_id, "recipients": False})
    assert shown["message"]["lane"] == "retry.30"
    with refused(Code.NOT_FOUND):
        await control.call("show", {"queue_id": "1K0RDGV4BE900"})


async def test_a_manager_that_has_just_started_is_asked_again_until_its_receivers_have_reported(
    running: RunningControl, control: AsyncControlClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mail that was acknowledged meanwhile is in the lane, and beyond the end that the manager knows."""
    first, second = envelope(), envelope()
    running.write("incoming.0", first, second)
    looks = 0

    def cut(_: dict[str, Any]) -> dict[str, Any]:
        nonlocal looks
        looks += 1
        heard = looks % 4 == 0
        end = running.lane("incoming.0").end if heard else 0
        return {"lanes": {"incoming.0": [0, 0, end]}, "unheard": [] if heard else ["incoming.0"]}

    running.manager.answers["cut"] = cut
    assert [each["queue_id"] for each in await all_items(control)] == [first.queue_id, second.queue_id]
    shown = [part async for part in control.parts("show", {"queue_id": second.queue_id})]
    assert shown[0]["message"]["queue_id"] == second.queue_id
    assert (await control.call("explain", {"queue_id": first.queue_id}))["reasons"]
    running.manager.answers["hold"] = lambda given: {"changed": len(given["messages"])}
    assert (await control.call("hold", {"queue_ids": [first.queue_id]}))["changed"] == 1

    # A receiver that stays away is waited for once.
    monkeypatch.setattr(view, "HEARD_S", 0.1)
    running.manager.answers["cut"] = lambda _: {"lanes": {"incoming.0": [0, 0, 0]}, "unheard": ["incoming.0"]}
    running.manager.requests.clear()
    assert await all_items(control) == []
    waited = len(running.manager.asked("cut"))
    assert waited > 1
    assert await all_items(control) == []
    assert len(running.manager.asked("cut")) == waited + 1


async def test_a_message_is_shown_with_all_its_recipients(running: RunningControl, control: AsyncControlClient) -> None:
    lane = running.lane("retry.60")
    everybody = [Recipient(n, f"u{n}@example.org", "smtp:example.org", "", f"451 {n}") for n in range(1500)]
    batch = lane.write_batch(everybody[:1000])
    message = envelope(recipients=tuple(everybody[1000:]), recipient_count=1500, batches=(batch,), helo="client")
    running.write("retry.60", message)
    parts = [part async for part in control.parts("show", {"queue_id": message.queue_id})]
    assert parts[0]["message"]["lane"] == "retry.60"
    assert parts[0]["envelope"]["helo"] == "client"
    assert parts[0]["working"] is None
    assert [len(part["recipients"]) for part in parts[1:]] == [1000, 500]
    last = parts[2]["recipients"][-1]
    assert last == {
        "number": 1499, "address": "u1499@example.org", "destination": "smtp:example.org", "reply": "451 1499",
        "done": False, "state": "deferred", "until": 0.0, "why": "", "since": 0.0,
    }  # fmt: skip


async def test_of_an_active_message_the_manager_knows_more(
    running: RunningControl, control: AsyncControlClient
) -> None:
    message = envelope(["a@example.org", "b@example.org"])
    tried_before = tuple(msgspec.structs.replace(each, reply="450 before") for each in message.recipients)
    message = msgspec.structs.replace(message, recipients=tried_before)
    (offset,) = running.write("incoming.0", message)
    known = progress(offset=offset, done=[0], replies={1: "450 later"})
    running.manager.answers["working"] = lambda _: working(**{message.queue_id: known})
    running.manager.answers["explain"] = lambda _: reasons("waits for its turn")
    parts = [part async for part in control.parts("show", {"queue_id": message.queue_id})]
    assert parts[0]["message"]["state"] == "active"
    assert parts[0]["explain"] == [{"state": "next", "recipients": 1, "sentence": "waits for its turn"}]
    assert parts[0]["working"]["done"] == [0]
    assert [(each["done"], each["reply"]) for each in parts[1]["recipients"]] == [(True, ""), (False, "450 later")]


async def test_why_a_message_waits_is_said_by_who_has_it(running: RunningControl, control: AsyncControlClient) -> None:
    resting, active = deferred("a@example.org", "450 4.2.0 busy", due_at=time.time() + 200), envelope()
    running.write("retry.300", resting)
    running.write("incoming.0", active)
    running.manager.answers["working"] = lambda given: working(
        **{each: progress() for each in given["queue_ids"] if each == active.queue_id}
    )
    running.manager.answers["explain"] = lambda given: (
        reasons("waits for its turn") if given["queue_id"] == active.queue_id else reasons()
    )
    explained = await control.ask("explain", Reasons, {"queue_id": active.queue_id})
    assert explained.reasons == reasons("waits for its turn").reasons
    (group,) = (await control.ask("explain", Reasons, {"queue_id": resting.queue_id})).reasons
    assert (group.state, group.reply) == ("deferred", "450 4.2.0 busy")
    shown = await anext(control.parts("show", {"queue_id": resting.queue_id}))
    assert [each["sentence"] for each in shown["explain"]] == [group.sentence]
    with pytest.raises(Refused, match=f"^there is no message {ABSENT} in the queue$"):
        await control.call("explain", {"queue_id": ABSENT})


async def test_what_the_manager_thinks_of_as_elsewhere_is_still_found(
    running: RunningControl, control: AsyncControlClient
) -> None:
    other, message = envelope(), envelope()
    other_at, _ = running.write("incoming.0", other, message)
    running.manager.answers["working"] = lambda _: working(**{message.queue_id: progress(offset=other_at)})
    running.manager.answers["explain"] = lambda _: reasons()
    parts = [part async for part in control.parts("show", {"queue_id": message.queue_id})]
    assert parts[0]["message"]["queue_id"] == message.queue_id


async def test_a_message_that_is_not_there_is_said_to_be_absent(control: AsyncControlClient) -> None:
    with pytest.raises(Refused, match=f"^there is no message {ABSENT} in the queue$"):
        await control.call("show", {"queue_id": ABSENT})


# -- handing in


async def inject(control: AsyncControlClient, *pieces: bytes, **begin: Any) -> Any:
    await control.call("inject_begin", {"sender": "me@example.org", "recipients": ["you@example.org"], **begin})
    for piece in pieces:
        await control.call("inject_data", {"data": piece})
    return await control.call("inject_end")


async def test_a_message_handed_in_is_safe_before_the_manager_hears_of_it(
    running: RunningControl, control: AsyncControlClient
) -> None:
    spool = running.server.injecting._spool

    def take(given: dict[str, Any]) -> dict[str, Any]:
        stored, size = spool.read_envelope(given["envelope"][0])
        assert size == stored.size_bytes
        return {"queue_id": stored.queue_id}

    running.manager.answers["inject"] = take
    answer = await inject(control, b"Subject: x\n\n", b"body\n", not_before=NOW)
    (file,) = running.spool_files()
    assert file.name == answer["queue_id"]
    assert running.manager.asked("inject")[0].arguments["not_before"] == NOW


async def test_a_message_the_manager_refuses_leaves_nothing(
    running: RunningControl, control: AsyncControlClient
) -> None:
    def refuse(_: dict[str, Any]) -> None:
        raise ValueError("not now")

    running.manager.answers["inject"] = refuse
    with pytest.raises(Refused, match=r"^not now$"):
        await inject(control, b"x")
    assert running.spool_files() == []


async def test_what_may_have_been_queued_keeps_its_spool_file(
    running: RunningControl, control: AsyncControlClient
) -> None:
    def take(_: dict[str, Any]) -> None:
        running.server.start(asyncio.ensure_future(running.manager.stop()))
        raise Silence

    running.manager.answers["inject"] = take
    with pytest.raises(Refused, match="the manager ended while it was asked; whether it was done is not known"):
        await inject(control, b"x")
    assert len(running.spool_files()) == 1


async def test_the_operations_of_handing_in_come_in_order(running: RunningControl, control: AsyncControlClient) -> None:
    with pytest.raises(Refused, match="inject_begin comes first"):
        await control.call("inject_data", {"data": b"x"})
    with pytest.raises(Refused, match="inject_begin comes first"):
        await control.call("inject_end")
    begin = {"sender": "", "recipients": ["you@example.org"]}
    await control.call("inject_begin", begin)
    with pytest.raises(Refused, match="inject_end comes first"):
        await control.call("inject_begin", begin)


async def test_a_message_that_grows_too_big_is_refused_and_gone(
    running: RunningControl, control: AsyncControlClient
) -> None:
    await control.call("inject_begin", {"sender": "", "recipients": ["you@example.org"]})
    with pytest.raises(Refused, match="too big; allowed: 100000 bytes"):
        await control.call("inject_data", {"data": b"x" * 100_000})
    assert running.spool_files() == []
    with pytest.raises(Refused, match="inject_begin comes first"):
        await control.call("inject_end")


async def test_without_the_manager_nothing_is_taken_in() -> None:
    async with open_control(manager=False) as running, running.client() as control:
        with pytest.raises(Refused, match="nothing can be handed in here; mail is still accepted while the disk"):
            await control.call("inject_begin", {"sender": "", "recipients": ["you@example.org"]})
        assert running.spool_files() == []
