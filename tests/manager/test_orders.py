"""What operators do to messages: at rest in each kind of lane, being worked on, twice, too late, and with a kill behind it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from mailcore.change_rules import MessageState, refusal
from mailcore.faults import Code, Fault
from mailcore.lab.lab import Lab
from tests.faults import refused
from tests.running.running_core import RunningCore, Sections, recipients_of, route_to, running

NEVER = "reject(1, 451)"
LONG: Sections = {
    "queue": {"retry_ladder_s": [60]},
    "scheduler": {"minimal_backoff_time": 60, "maximal_backoff_time": 60},
}


async def in_retry(core: RunningCore, *recipients: str) -> str:
    """A message that rests in a retry lane for a minute."""
    queue_id = await core.send(*(recipients or ("a@example.org",)))
    await core.until_in(queue_id, "retry.60")
    return queue_id


async def suspended(core: RunningCore, lab: Lab) -> str:
    """A message in the scheduler, whose destination is suspended."""
    await core.ask("suspend", destination=route_to(lab, 0))
    queue_id = await core.send("a@example.org")

    async def waiting() -> bool:
        return queue_id in (await core.ask("working", queue_ids=[queue_id]))["messages"]

    await core.eventually(waiting, "the scheduler to have it")
    return queue_id


async def test_what_is_held_waits_until_it_is_released(tmp_path: Path) -> None:
    async with Lab([f"{NEVER}:127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as core:
        for killed in (False, True):  # without a kill and with one, on the same core
            await lab.hops[0].set_behaviour(NEVER)
            lab.hops[0].reset()
            queue_id = await in_retry(core)
            await lab.hops[0].set_behaviour("accept")
            await core.order("hold", queue_id, why="a question of its author")
            if killed:
                await core.kill("manager")
            item = await core.until_in(queue_id, "hold")
            assert (item["state"], item["reason"]) == ("held", "a question of its author")
            assert (await core.size())["lanes"] == {"hold": {"messages": 1, "recipients": 1}}
            assert await core.refusal("hold", queue_id) == Fault(Code.CONFLICT, refusal("hold", MessageState.HELD))
            assert await core.refusal("retry", queue_id) == Fault(Code.CONFLICT, refusal("retry", MessageState.HELD))
            await core.order("release", queue_id)
            await core.until_empty()
            assert recipients_of(lab.messages) == ["a@example.org"]
            assert (await core.refusal("release", queue_id)).code is Code.NOT_FOUND


async def test_what_is_deleted_can_be_had_back(tmp_path: Path) -> None:
    async with Lab([f"{NEVER}:127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as core:
        for killed in (False, True):  # without a kill and with one, on the same core
            await lab.hops[0].set_behaviour(NEVER)
            lab.hops[0].reset()
            queue_id = await in_retry(core)
            await lab.hops[0].set_behaviour("accept")
            await core.order("delete", queue_id)
            if killed:
                await core.kill("manager")
            assert (await core.size())["messages"] == 0
            item = await core.until_in(queue_id, "deleted", deleted=True)
            assert item["state"] == "deleted"
            assert await core.refusal("hold", queue_id) == Fault(Code.CONFLICT, refusal("hold", MessageState.DELETED))
            assert not lab.messages
            await core.order("undelete", queue_id)
            await core.until_empty()
            assert recipients_of(lab.messages) == ["a@example.org"]


async def test_a_release_and_an_undelete_hold_after_a_kill(tmp_path: Path) -> None:
    async with Lab([f"{NEVER}:127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as core:
        held, deleted = [await in_retry(core, f"{name}@example.org") for name in ("held", "deleted")]
        await lab.hops[0].set_behaviour("accept")
        await core.ask("suspend", destination=route_to(lab, 0))  # so that nothing is in flight at the kill
        await core.order("hold", held)
        await core.order("delete", deleted)
        await core.order("release", held)
        await core.order("undelete", deleted)
        await core.kill("manager")
        assert (await core.size())["messages"] == 2
        await core.ask("resume", destination=route_to(lab, 0))
        await core.until_empty()
        assert recipients_of(lab.messages) == ["deleted@example.org", "held@example.org"]


async def test_a_message_at_rest_is_tried_now_rerouted_and_delayed(tmp_path: Path) -> None:
    async with (
        Lab([f"{NEVER}:127.0.0.1:0", "accept:127.0.0.1:0"]) as lab,
        running(tmp_path, lab, {**LONG, "queue": {"retry_ladder_s": [1, 60]}}) as core,
    ):
        tried, rerouted, delayed = [await in_retry(core) for _ in range(3)]
        await core.order("retry", tried)

        async def tried_again() -> bool:
            return bool((await core.until_in(tried, "retry.60"))["attempts"] == 2)

        await core.eventually(tried_again, "a second attempt")
        await core.order("reroute", rerouted, route=route_to(lab, 1, "relay"))
        await lab.wait_for(1)
        until = time.time() + 3
        await core.order("delay", delayed, until=until)
        await lab.hops[0].set_behaviour("accept")
        await lab.wait_for(2)
        assert lab.hops[0].messages[0].at >= until - 1.1  # the last second is let go
        await core.order("retry", tried)
        await core.until_empty()
        assert [len(hop.messages) for hop in lab.hops] == [2, 1]


async def test_what_a_list_said_of_its_lane_is_not_held_against_a_message_that_has_moved(tmp_path: Path) -> None:
    async with Lab([f"{NEVER}:127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as core:
        queue_id = await in_retry(core)
        await core.order("hold", queue_id)
        item = await core.until_in(queue_id, "hold")
        await core.order("release", queue_id)
        await core.until_in(queue_id, "retry.")
        answer = await core.ask("hold", messages=[[queue_id, "hold", item["offset"]]])
        assert (answer["changed"], answer["errors"]) == (1, {})
        assert await core.until_in(queue_id, "hold")
        assert await core.refusal("hold", queue_id) == Fault(Code.CONFLICT, refusal("hold", MessageState.HELD))


async def test_a_message_that_was_deferred_this_instant_is_changed(tmp_path: Path) -> None:
    """Until the next checkpoint no reader finds where it came to rest."""
    sections: Sections = {**LONG, "queue": {**LONG["queue"], "checkpoint_interval_s": 60.0}}
    async with Lab([f"{NEVER}:127.0.0.1:0"]) as lab, running(tmp_path, lab, sections) as core:
        for number in range(5):
            queue_id = await core.send(f"r{number}@example.org")

            async def deferred(queue_id: str = queue_id) -> bool:
                return any(line["event"] == "delivery" and line["queue_id"] == queue_id for line in core.log())

            await core.eventually(deferred, "the deferral")
            await core.order("hold", queue_id)
            assert await core.until_in(queue_id, "hold")


async def test_a_message_is_returned_to_its_sender(tmp_path: Path) -> None:
    async with Lab([f"{NEVER}:127.0.0.1:0", "accept:127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as core:
        queue_id = await in_retry(core, "a@example.org", "b@example.org")
        await core.order("bounce", queue_id, why="unwanted")
        await core.until_empty()
        assert recipients_of(lab.hops[1].messages) == ["author@sender.example"]
        assert [arrival.sender for arrival in lab.hops[1].messages] == [""]


async def test_what_is_being_returned_to_its_sender_cannot_be_changed(tmp_path: Path) -> None:
    """The bounce waits for the delivery in flight; a change after it was answered as done, and nothing came of it."""
    async with Lab(["slow(2):127.0.0.1:0", f"{NEVER}:127.0.0.1:0", "accept:127.0.0.1:0"]) as lab:
        routes = {"one.example": route_to(lab, 0), "two.example": route_to(lab, 1), "*": route_to(lab, 2)}
        async with running(tmp_path, lab, LONG, routes=routes) as core:
            queue_id = await core.send("t@one.example", "u@two.example")

            async def deferred() -> bool:
                return any(line["event"] == "delivery" and line["queue_id"] == queue_id for line in core.log())

            await core.eventually(deferred, "the deferral of u")
            assert (await core.ask("bounce", queue_ids=[queue_id]))["changed"] == 1
            for operation in ("hold", "delete", "retry", "bounce"):
                code = (await core.refusal(operation, queue_id)).code
                assert code in (Code.CONFLICT, Code.NOT_FOUND), operation  # not found: t was delivered meanwhile
            await core.until_empty()
            assert recipients_of(lab.hops[0].messages) == ["t@one.example"]
            assert recipients_of(lab.hops[2].messages) == ["author@sender.example"]


async def test_a_message_gets_more_recipients(tmp_path: Path) -> None:
    async with Lab([f"{NEVER}:127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as core:
        queue_id = await in_retry(core)
        await lab.hops[0].set_behaviour("accept")
        with refused(Code.INVALID, "recipients"):
            await core.ask("add_recipients", queue_id=queue_id, recipients=["nobody at all"])
        answer = await core.ask("add_recipients", queue_id=queue_id, recipients=["b@example.org", "c@example.org"])
        assert (answer["changed"], answer["errors"]) == (1, {})
        await core.order("retry", queue_id)
        await core.until_empty()
        assert recipients_of(lab.messages) == ["a@example.org", "b@example.org", "c@example.org"]


async def test_a_recipient_that_is_left_is_not_added_a_second_time(tmp_path: Path) -> None:
    """At rest, and while the order that adds it waits for a delivery in flight."""
    async with Lab([f"{NEVER}:127.0.0.1:0", "slow(1.5):127.0.0.1:0"]) as lab:
        routes = {"slow.example": route_to(lab, 1), "*": route_to(lab, 0)}
        async with running(tmp_path, lab, LONG, routes=routes) as core:
            resting = await in_retry(core)
            flying = await core.send("s@slow.example")
            await core.until_in_flight()
            for queue_id in (resting, flying):
                answer = await core.ask(
                    "add_recipients", queue_id=queue_id, recipients=["b@example.org", "B@example.ORG"]
                )
                assert answer["changed"] == 1
                for again in (["b@example.org"], ["c@example.org", "B@Example.org"]):
                    answer = await core.ask("add_recipients", queue_id=queue_id, recipients=again)
                    assert (answer["changed"], answer["errors"][queue_id]["code"]) == (0, "conflict")
            await lab.hops[0].set_behaviour("accept")
            await core.order("retry", resting)
            await core.until_empty()
            assert recipients_of(lab.hops[0].messages) == ["a@example.org", "b@example.org", "b@example.org"]


async def test_a_delay_until_a_time_that_is_over_is_refused(tmp_path: Path) -> None:
    async with Lab([f"{NEVER}:127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as core:
        queue_id = await in_retry(core)
        with refused(Code.INVALID, "until"):
            await core.order("delay", queue_id, until=time.time() - 1)
        assert (await core.until_in(queue_id, "retry.60"))["states"] == {"deferred": 1}


async def test_recipients_added_while_the_others_are_delivered_are_not_lost(tmp_path: Path) -> None:
    async with Lab(["slow(1.5):127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as core:
        queue_id = await core.send("a@example.org")
        await core.until_in_flight()
        answer = await core.ask("add_recipients", queue_id=queue_id, recipients=["b@example.org"])
        assert answer["changed"] == 1
        await core.order("hold", queue_id)  # behind the first: it holds those that were added
        await core.until_in(queue_id, "hold")
        assert recipients_of(lab.messages) == ["a@example.org"]
        await core.order("release", queue_id)
        await core.until_empty()
        assert recipients_of(lab.messages) == ["a@example.org", "b@example.org"]


async def test_orders_reach_a_message_whose_destination_is_suspended(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as core:
        for killed in (False, True):  # without a kill and with one, on the same core
            lab.hops[0].reset()
            queue_id = await suspended(core, lab)
            assert await core.refusal("release", queue_id) == Fault(
                Code.CONFLICT, refusal("release", MessageState.ACTIVE)
            )
            await core.order("hold", queue_id)
            if killed:
                await core.kill("manager")
            await core.until_in(queue_id, "hold")
            await core.ask("resume", destination=route_to(lab, 0))
            await asyncio.sleep(0.5)
            assert not lab.messages
            await core.order("release", queue_id)
            await core.until_empty()
            assert recipients_of(lab.messages) == ["a@example.org"]


async def test_an_order_waits_for_what_is_in_flight(tmp_path: Path) -> None:
    """Seven recipients at a hop that takes two of them at a time: what is out is waited for, the others stay."""
    sections: Sections = {
        **LONG,
        "transports.smtp": {"destination_recipient_limit": 2, "destination_concurrency_limit": 1},
    }
    recipients = [f"r{number}@example.org" for number in range(7)]
    async with Lab(["slow(1):127.0.0.1:0"]) as lab, running(tmp_path, lab, sections) as core:
        for killed in (False, True):  # without a kill and with one, on the same core
            await lab.hops[0].set_behaviour("slow(1)")
            lab.hops[0].reset()
            queue_id = await core.send(*recipients)
            await core.until_in_flight()
            await core.order("hold", queue_id)
            await core.order("delete", queue_id)  # the last word counts
            assert await core.refusal("hold", queue_id) == Fault(Code.CONFLICT, refusal("hold", MessageState.DELETED))
            await core.order("undelete", queue_id)
            # It is held, as it was before the delete.
            assert await core.refusal("hold", queue_id) == Fault(Code.CONFLICT, refusal("hold", MessageState.HELD))
            await core.order("release", queue_id)
            await core.order("hold", queue_id)
            if killed:
                await core.kill("manager")
            await core.until_in(queue_id, "hold")
            await asyncio.sleep(0.3)
            arrived = recipients_of(lab.messages)
            assert len(arrived) == 2 or (killed and not arrived)
            left = (await core.size())["recipients"]
            assert left == 5 or (killed and left == 7)  # its verdict may not have been on disk
            await lab.hops[0].set_behaviour("accept")
            await core.order("release", queue_id)
            await core.until_empty()
            got = recipients_of(lab.messages)
            assert sorted(set(got)) == recipients
            assert len(got) == len(arrived) + left


async def test_an_order_at_a_silent_hop_holds_after_a_kill(tmp_path: Path) -> None:
    async with Lab(["silent(rcpt):127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as core:
        queue_id = await core.send("a@example.org")
        await core.until_in_flight()
        await core.order("delete", queue_id)
        await core.kill("manager")
        await core.until_in(queue_id, "deleted", deleted=True)
        assert (await core.size())["messages"] == 0
        assert not lab.messages


async def test_all_that_match_are_changed_and_purged(tmp_path: Path) -> None:
    async with Lab([f"{NEVER}:127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as core:
        ids = [await in_retry(core, f"r{number}@example.org") for number in range(5)]
        await core.order("hold", ids[0])
        result = await core.ask("change_matching", change="delete", filter={"recipient": "*@example.org"})
        assert (result["changed"], result["failed"]) == (5, 0)
        await core.until_empty()
        result = await core.ask("change_matching", change="undelete", filter={"recipient": "r3@*"})
        assert result["changed"] == 1
        await core.until_in(ids[3], "retry.60")
        await lab.hops[0].set_behaviour("accept")
        await core.kill("manager")
        await core.order("retry", ids[3])
        await core.until_empty()
        assert recipients_of(lab.messages) == ["r3@example.org"]


async def test_what_is_gone_and_what_makes_no_sense_is_refused_in_words(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        queue_id = await core.send("a@example.org")
        await core.until_empty()
        for operation in ("delete", "hold", "retry", "bounce"):
            assert (await core.refusal(operation, queue_id)).code is Code.NOT_FOUND
        with refused(Code.INVALID, "route"):
            await core.ask("reroute", queue_ids=[queue_id], messages=[[queue_id, "retry.1", 64]], route="nowhere:[::1]")
        answer = await core.ask("hold", messages=[[queue_id, "incoming.0", 64]])
        assert answer["errors"][queue_id]["code"] == Code.NOT_FOUND
        answer = await core.ask("hold", messages=[[queue_id, "no-such-lane", 64]])
        assert answer["errors"][queue_id]["code"] == Code.NOT_FOUND
        assert recipients_of(lab.messages) == ["a@example.org"]
