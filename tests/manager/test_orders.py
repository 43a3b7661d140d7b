"""What operators do to messages: at rest in each kind of lane, being worked on, twice, too late, and with a kill behind it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from mailcore.change_rules import MessageState, refusal
from mailcore.faults import Code
from mailcore.lab.lab import Lab
from tests.faults import refused
from tests.running.running_manager import House, Sections, recipients_of, route_to, running

NEVER = "reject(1, 451)"
LONG: Sections = {
    "queue": {"retry_ladder_s": [60]},
    "scheduler": {"minimal_backoff_time": 60, "maximal_backoff_time": 60},
}


async def in_retry(house: House, *recipients: str) -> str:
    """A message that rests in a retry lane for a minute."""
    queue_id = await house.send(*(recipients or ("a@example.org",)))
    await house.until_in(queue_id, "retry.60")
    return queue_id


async def suspended(house: House, lab: Lab) -> str:
    """A message in the scheduler, whose destination is suspended."""
    await house.ask("suspend", destination=route_to(lab, 0))
    queue_id = await house.send("a@example.org")

    async def waiting() -> bool:
        return queue_id in await house.ask("working", queue_ids=[queue_id])

    await house.eventually(waiting, "the scheduler to have it")
    return queue_id


@pytest.mark.parametrize("killed", [False, True], ids=["running", "killed"])
async def test_what_is_held_waits_until_it_is_released(tmp_path: Path, killed: bool) -> None:
    async with Lab([f"{NEVER}:127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as house:
        queue_id = await in_retry(house)
        await lab.hops[0].set_behaviour("accept")
        await house.order("hold", queue_id, why="a question of its author")
        if killed:
            await house.kill("manager")
        item = await house.until_in(queue_id, "hold")
        assert (item["state"], item["reason"]) == ("held", "a question of its author")
        assert (await house.size())["lanes"] == {"hold": {"messages": 1, "recipients": 1}}
        assert await house.refusal("hold", queue_id) == refusal("hold", MessageState.HELD)
        assert await house.refusal("retry", queue_id) == refusal("retry", MessageState.HELD)
        await house.order("release", queue_id)
        await house.until_empty()
        assert recipients_of(lab.messages) == ["a@example.org"]
        assert "no such message" in await house.refusal("release", queue_id)


@pytest.mark.parametrize("killed", [False, True], ids=["running", "killed"])
async def test_what_is_deleted_can_be_had_back(tmp_path: Path, killed: bool) -> None:
    async with Lab([f"{NEVER}:127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as house:
        queue_id = await in_retry(house)
        await lab.hops[0].set_behaviour("accept")
        await house.order("delete", queue_id)
        if killed:
            await house.kill("manager")
        assert (await house.size())["messages"] == 0
        item = await house.until_in(queue_id, "deleted", deleted=True)
        assert item["state"] == "deleted"
        assert "undelete it first" in await house.refusal("hold", queue_id)
        assert not lab.messages
        await house.order("undelete", queue_id)
        await house.until_empty()
        assert recipients_of(lab.messages) == ["a@example.org"]


async def test_a_release_and_an_undelete_hold_after_a_kill(tmp_path: Path) -> None:
    async with Lab([f"{NEVER}:127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as house:
        held, deleted = [await in_retry(house, f"{name}@example.org") for name in ("held", "deleted")]
        await lab.hops[0].set_behaviour("accept")
        await house.ask("suspend", destination=route_to(lab, 0))  # so that nothing is in flight at the kill
        await house.order("hold", held)
        await house.order("delete", deleted)
        await house.order("release", held)
        await house.order("undelete", deleted)
        await house.kill("manager")
        assert (await house.size())["messages"] == 2
        await house.ask("resume", destination=route_to(lab, 0))
        await house.until_empty()
        assert recipients_of(lab.messages) == ["deleted@example.org", "held@example.org"]


async def test_a_message_at_rest_is_tried_now_rerouted_and_delayed(tmp_path: Path) -> None:
    async with (
        Lab([f"{NEVER}:127.0.0.1:0", "accept:127.0.0.1:0"]) as lab,
        running(tmp_path, lab, {**LONG, "queue": {"retry_ladder_s": [1, 60]}}) as house,
    ):
        tried, rerouted, delayed = [await in_retry(house) for _ in range(3)]
        await house.order("retry", tried)
        item = await house.until_in(tried, "retry.60")
        assert item["attempts"] == 2
        await house.order("reroute", rerouted, route=route_to(lab, 1, "relay"))
        await lab.wait_for(1)
        until = time.time() + 3
        await house.order("delay", delayed, until=until)
        await lab.hops[0].set_behaviour("accept")
        await lab.wait_for(2)
        assert lab.hops[0].messages[0].at >= until - 1.1  # the last second is let go
        await house.order("retry", tried)
        await house.until_empty()
        assert [len(hop.messages) for hop in lab.hops] == [2, 1]


async def test_what_a_list_said_of_its_lane_is_not_held_against_a_message_that_has_moved(tmp_path: Path) -> None:
    async with Lab([f"{NEVER}:127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as house:
        queue_id = await in_retry(house)
        await house.order("hold", queue_id)
        item = await house.until_in(queue_id, "hold")
        await house.order("release", queue_id)
        await house.until_in(queue_id, "retry.")
        answer = await house.ask("hold", messages=[[queue_id, "hold", item["offset"]]])
        assert answer == {"changed": 1, "errors": {}}
        assert await house.until_in(queue_id, "hold")
        assert await house.refusal("hold", queue_id) == refusal("hold", MessageState.HELD)


async def test_a_message_is_returned_to_its_sender(tmp_path: Path) -> None:
    async with Lab([f"{NEVER}:127.0.0.1:0", "accept:127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as house:
        queue_id = await in_retry(house, "a@example.org", "b@example.org")
        await house.order("bounce", queue_id, why="unwanted")
        await house.until_empty()
        assert recipients_of(lab.hops[1].messages) == ["author@sender.example"]
        assert [arrival.sender for arrival in lab.hops[1].messages] == [""]


async def test_a_message_gets_more_recipients(tmp_path: Path) -> None:
    async with Lab([f"{NEVER}:127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as house:
        queue_id = await in_retry(house)
        await lab.hops[0].set_behaviour("accept")
        with refused(Code.INVALID, "recipients"):
            await house.ask("add_recipients", queue_id=queue_id, recipients=["nobody at all"])
        answer = await house.ask("add_recipients", queue_id=queue_id, recipients=["b@example.org", "c@example.org"])
        assert answer == {"changed": 1, "errors": {}}
        await house.until_empty()
        assert recipients_of(lab.messages) == ["a@example.org", "b@example.org", "c@example.org"]


async def test_recipients_added_while_the_others_are_delivered_are_not_lost(tmp_path: Path) -> None:
    async with Lab(["slow(1.5):127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as house:
        queue_id = await house.send("a@example.org")
        await house.until_in_flight()
        answer = await house.ask("add_recipients", queue_id=queue_id, recipients=["b@example.org"])
        assert answer["changed"] == 1
        assert "add_recipients waits" in await house.refusal("hold", queue_id)
        await house.until_empty()
        assert recipients_of(lab.messages) == ["a@example.org", "b@example.org"]


@pytest.mark.parametrize("killed", [False, True], ids=["running", "killed"])
async def test_orders_reach_a_message_whose_destination_is_suspended(tmp_path: Path, killed: bool) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as house:
        queue_id = await suspended(house, lab)
        assert await house.refusal("release", queue_id) == refusal("release", MessageState.ACTIVE)
        await house.order("hold", queue_id)
        if killed:
            await house.kill("manager")
        await house.until_in(queue_id, "hold")
        await house.ask("resume", destination=route_to(lab, 0))
        await asyncio.sleep(0.5)
        assert not lab.messages
        await house.order("release", queue_id)
        await house.until_empty()
        assert recipients_of(lab.messages) == ["a@example.org"]


@pytest.mark.parametrize("killed", [False, True], ids=["running", "killed"])
async def test_an_order_waits_for_what_is_in_flight(tmp_path: Path, killed: bool) -> None:
    """Seven recipients at a hop that takes two of them at a time: what is out is waited for, the others stay."""
    sections: Sections = {
        **LONG,
        "transports.smtp": {"destination_recipient_limit": 2, "destination_concurrency_limit": 1},
    }
    recipients = [f"r{number}@example.org" for number in range(7)]
    async with Lab(["slow(1):127.0.0.1:0"]) as lab, running(tmp_path, lab, sections) as house:
        queue_id = await house.send(*recipients)
        await house.until_in_flight()
        await house.order("hold", queue_id)
        await house.order("delete", queue_id)  # the last word counts
        assert "undelete it first" in await house.refusal("hold", queue_id)
        await house.order("undelete", queue_id)
        assert await house.refusal("hold", queue_id) == refusal(
            "hold", MessageState.HELD
        )  # as it was before the delete
        await house.order("release", queue_id)
        await house.order("hold", queue_id)
        if killed:
            await house.kill("manager")
        await house.until_in(queue_id, "hold")
        await asyncio.sleep(0.3)
        arrived = recipients_of(lab.messages)
        assert len(arrived) == 2 or (killed and not arrived)
        left = (await house.size())["recipients"]
        assert left == 5 or (killed and left == 7)  # its verdict may not have been on disk
        await lab.hops[0].set_behaviour("accept")
        await house.order("release", queue_id)
        await house.until_empty()
        got = recipients_of(lab.messages)
        assert sorted(set(got)) == recipients
        assert len(got) == len(arrived) + left


async def test_an_order_at_a_silent_hop_holds_after_a_kill(tmp_path: Path) -> None:
    async with Lab(["silent(rcpt):127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as house:
        queue_id = await house.send("a@example.org")
        await house.until_in_flight()
        await house.order("delete", queue_id)
        await house.kill("manager")
        await house.until_in(queue_id, "deleted", deleted=True)
        assert (await house.size())["messages"] == 0
        assert not lab.messages


async def test_all_that_match_are_changed_and_purged(tmp_path: Path) -> None:
    async with Lab([f"{NEVER}:127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as house:
        ids = [await in_retry(house, f"r{number}@example.org") for number in range(5)]
        await house.order("hold", ids[0])
        result = await house.ask("change_matching", change="delete", filter={"recipient": "*@example.org"})
        assert (result["changed"], result["failed"]) == (5, 0)
        await house.until_empty()
        result = await house.ask("change_matching", change="undelete", filter={"recipient": "r3@*"})
        assert result["changed"] == 1
        await house.until_in(ids[3], "retry.60")
        await lab.hops[0].set_behaviour("accept")
        await house.kill("manager")
        await house.order("retry", ids[3])
        await house.until_empty()
        assert recipients_of(lab.messages) == ["r3@example.org"]


async def test_what_is_gone_and_what_makes_no_sense_is_refused_in_words(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab) as house:
        queue_id = await house.send("a@example.org")
        await house.until_empty()
        for operation in ("delete", "hold", "retry", "bounce"):
            assert "no such message" in await house.refusal(operation, queue_id)
        with refused(Code.INVALID, "route"):
            await house.ask(
                "reroute", queue_ids=[queue_id], messages=[[queue_id, "retry.1", 64]], route="nowhere:[::1]"
            )
        answer = await house.ask("hold", messages=[[queue_id, "incoming.0", 64]])
        assert answer["errors"][queue_id]
        answer = await house.ask("hold", messages=[[queue_id, "no-such-lane", 64]])
        assert "no message at" in answer["errors"][queue_id]
        assert recipients_of(lab.messages) == ["a@example.org"]
