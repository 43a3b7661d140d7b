"""Why a message waits, asked of the whole appliance wherever the message is."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings
from django.utils.html import escape

from appliance.common.door import async_door
from appliance.live.fragments import LiveState
from appliance.live.hub import Hub
from appliance.status.overview_views import live_part
from mailcore.config.load import load
from mailcore.doctor import balance
from mailcore.doctor.host import Host
from mailcore.faults import Code
from mailcore.lab.lab import Lab
from mailcore.manager.waiting import GROUPS_MAX, why_deferred
from tests.end_to_end.appliance import COMMAND
from tests.running.running_core import RunningCore, Sections, route_to, running

LONG: Sections = {
    "queue": {"retry_ladder_s": [60], "checkpoint_interval_s": 0.1},
    "scheduler": {"minimal_backoff_time": 60.0, "maximal_backoff_time": 60.0},
}


@pytest.fixture(autouse=True)
def no_alerts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The overview is rendered without the portal's database, which a page reads in a thread."""
    monkeypatch.setattr("appliance.status.overview_views.open_alerts", lambda: None)


async def why(core: RunningCore, queue_id: str) -> list[dict[str, Any]]:
    answer = await core.ask("explain", queue_id=queue_id)
    groups: list[dict[str, Any]] = answer["reasons"]
    return groups


async def test_on_its_whole_way_it_can_be_asked_why_it_waits(tmp_path: Path) -> None:
    async with Lab(["reject(1, 450):127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as core:
        destination = route_to(lab, 0)
        until = time.time() + 3600
        await core.ask("suspend", destination=destination, until=until)
        queue_id = await core.send("a@example.org", "b@example.org")

        async def suspended() -> dict[str, Any] | None:
            groups = await why(core, queue_id)
            return groups[0] if groups[0]["state"] == "suspended" else None

        group = await core.eventually(suspended, "the scheduler's reason")
        assert (group["destination"], group["recipients"]) == (destination, 2)
        assert abs(group["until"] - until) < 1, "times are the wall clock's"
        await core.ask("resume", destination=destination)
        await core.until_in(queue_id, "retry.60")
        (group,) = await why(core, queue_id)
        assert (group["state"], group["destination"], group["recipients"]) == ("deferred", destination, 2)
        assert 0 < group["until"] - time.time() <= 61
        assert "450" in group["reply"]
        before = time.time()
        await core.order("hold", queue_id, why="a question")
        await core.until_in(queue_id, "hold")
        (group,) = await why(core, queue_id)
        assert (group["state"], group["reason"]) == ("held", "a question")
        assert before - 1 < group["since"] < time.time() + 1
        await core.order("delete", queue_id, why="no answer")
        await core.until_in(queue_id, "deleted", deleted=True)
        (group,) = await why(core, queue_id)
        assert (group["state"], group["reason"]) == ("deleted", "no answer")
        assert group["until"] > time.time()
        scheduled = await core.inject("c@example.org", not_before=time.time() + 600)
        (group,) = await why(core, scheduled)
        assert group["state"] == "delayed"


async def test_what_is_in_flight_and_what_waits_for_it(tmp_path: Path) -> None:
    sections: Sections = {
        **LONG,
        "transports.smtp": {"destination_concurrency_limit": 1, "destination_recipient_limit": 1},
    }
    async with Lab(["slow(30):127.0.0.1:0"]) as lab, running(tmp_path, lab, sections) as core:
        first = await core.send("a@example.org")
        await core.until_in_flight()
        (group,) = await why(core, first)
        assert group["state"] == "delivering"
        second = await core.send("a@example.org")
        (group,) = await why(core, second)
        assert (group["state"], group["busy"], group["window"]) == ("window full", 1, 1)
        assert group["destination"].startswith("smtp:a@"), "a recipient is a destination here"
        assert (await core.refusal("release", first)).code is Code.CONFLICT
        answer = core.ask("hold", "later", queue_ids=[first])
        assert (await answer)["changed"] == 1
        groups = await why(core, first)
        assert {group["state"] for group in groups} == {"delivering", "ordered"}
        assert "waiting for 1 delivery in progress" in groups[-1]["sentence"]


def test_what_a_pass_deferred_has_a_reason_for_each_destination_without_a_count_in_it() -> None:
    one, two = "smtp:one.example", "smtp:two.example"
    deferred = {
        0: (one, "450 busy", "", 0),
        1: (two, "Connection refused", "", 0),
        2: (one, "451 still busy", "", 0),
    }
    reasons = why_deferred(deferred)
    assert [(each.destination, each.recipients, each.reply) for each in reasons] == [
        (one, 2, "451 still busy"), (two, 1, "Connection refused"),
    ]  # fmt: skip
    after = "deferred; the next attempt follows some time after this pass"
    assert [each.sentence for each in reasons] == [
        f"{after}; last: 451 still busy",
        f"{after}; last: Connection refused",
    ]
    many = why_deferred({number: (f"smtp:{number}.example", "", "", 0) for number in range(GROUPS_MAX + 5)})
    assert (len(many), many[0].sentence, many[-1].recipients) == (GROUPS_MAX + 1, after, 5)


async def test_when_the_deliverers_are_full_that_is_the_reason(tmp_path: Path) -> None:
    sections: Sections = {**LONG, "deliverer": {"processes": 1, "concurrency": 3}}
    async with Lab(["slow(30):127.0.0.1:0"]) as lab, running(tmp_path, lab, sections) as core:
        for number in range(3):
            await core.send(f"r{number}@example.org")

        async def full() -> bool:
            connected = (await core.ask("state"))["deliverers"]  # none yet, just after the start
            return [(each["in_flight"], each["capacity"]) for each in connected] == [(3, 3)]

        await core.eventually(full, "three deliveries under way")
        first, second = [await core.send("a@example.org") for _ in range(2)]

        async def in_line() -> bool:
            return bool((await why(core, second))[0]["state"] == "deliverers full")

        await core.eventually(in_line, "the reason")
        for queue_id in (first, second):
            (group,) = await why(core, queue_id)
            assert (group["state"], group["busy"], group["capacity"]) == ("deliverers full", 3, 3)
            assert group["sentence"].startswith("all deliverers busy: 3 of 3 deliveries in progress; then ")
        (group,) = await why(core, second)
        assert group["job"] == first


async def test_when_the_active_set_is_full_everybody_says_so_and_who_fills_it(tmp_path: Path) -> None:
    sections: Sections = {**LONG, "scheduler": {**LONG["scheduler"], "message_active_limit": 10}}
    async with Lab(["slow(100):127.0.0.1:0", "accept:127.0.0.1:0"]) as lab:
        fast = {"fast.example": route_to(lab, 1)}
        async with running(tmp_path, lab, sections, routes=fast) as core:
            assert (await core.ask("state"))["active_full"] == ""
            for number in range(10):
                await core.send(f"r{number}@example.org")
            waiting = await core.send("a@fast.example")
            slow = route_to(lab, 0)

            async def full() -> str:
                said = str((await core.ask("state"))["active_full"])
                return said if "window full" in said else ""  # before, its first entries are not with a deliverer yet

            sentence = await core.eventually(full, "the active set to be full")
            expected = (
                rf"the active set is full: 10 of 10 messages .*; most are for {re.escape(slow)} \(10, window full\)"
            )
            assert re.fullmatch(expected, sentence), sentence
            (group,) = await why(core, waiting)
            assert (group["state"], sentence in group["sentence"]) == ("queued", True)
            parts = [part async for part in core.control.parts("show", {"queue_id": waiting})]
            assert parts[0]["explain"] == [group]
            said = await asyncio.create_subprocess_exec(
                str(COMMAND), "status", "--config", str(core.config), stdout=asyncio.subprocess.PIPE
            )
            out = (await said.communicate())[0].decode()
            assert sentence in out, out
            host = Host.of(load(core.config), core.config)
            assert [each.found for each in balance.look(host) if each.what == "active set"] == [sentence]
            with override_settings(CONTROL_SOCKET=core.home / "run" / "control.sock"):
                hub = Hub(lambda timeout_s: async_door("test", timeout_s))
                await hub.tick()
                await hub.close()
            assert escape(sentence) in live_part(LiveState(hub.snapshot)).fragments["needs"]


async def test_deferred_mail_that_waits_for_its_share_says_so(tmp_path: Path) -> None:
    sections: Sections = {
        **LONG,
        "queue": {"retry_ladder_s": [1], "checkpoint_interval_s": 0.1},
        "scheduler": {"message_active_limit": 10, "deferred_active_share": 0.1, "minimal_backoff_time": 1.0},
    }
    async with Lab(["reject(1, 450):127.0.0.1:0"]) as lab, running(tmp_path, lab, sections) as core:
        sent = [await core.send("a@example.org") for _ in range(2)]
        for queue_id in sent:
            await core.until_in(queue_id, "retry.")
        await lab.hops[0].set_behaviour("slow(100)")

        async def waits() -> bool:
            groups = [group for queue_id in sent for group in await why(core, queue_id)]
            return any("deferred mail has its whole share" in group["sentence"] for group in groups)

        await core.eventually(waits, "the reason")
