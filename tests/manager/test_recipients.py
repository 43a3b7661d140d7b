"""A change applies to the recipients that match and are not finished; the others of the message keep their way and time."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from mailcore.envelope import Status
from mailcore.faults import Code
from mailcore.frames import Request
from mailcore.lab.lab import Lab
from tests.manager.manager_in_process import INCOMING, Deliverers, Home, turns
from tests.running.running_core import RunningCore, Sections, recipients_of, route_to, running

NEVER = "reject(1, 451)"
LONG: Sections = {
    "queue": {"retry_ladder_s": [60]},
    "scheduler": {"minimal_backoff_time": 60, "maximal_backoff_time": 60},
}
X, Y, Z = "x@one.example", "y@two.example", "z@two.example"


async def changed(core: RunningCore, change: str, messages: int, recipients: int, **given: Any) -> None:
    """One change to all that match: counted first, then made, with the same numbers."""
    counted = await core.ask("change_matching", change=change, dry_run=True, **given)
    assert (counted["matched"], counted["matched_recipients"]) == (messages, recipients)
    made = await core.ask("change_matching", change=change, **given)
    assert (made["changed"], made["changed_recipients"], made["errors"]) == (messages, recipients, {})


async def states(core: RunningCore, queue_id: str) -> dict[str, str]:
    """The state of each recipient by address, as a page shows it."""
    parts = [part async for part in core.control.parts("show", {"queue_id": queue_id})]
    return {each["address"]: each["state"] for part in parts for each in part.get("recipients") or ()}


async def deferred(core: RunningCore, *recipients: str) -> str:
    queue_id = await core.send(*recipients)
    await core.until_in(queue_id, "retry.60")
    return queue_id


async def test_who_is_held_waits_while_the_others_are_delivered(tmp_path: Path) -> None:
    async with Lab([f"{NEVER}:127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as core:
        for killed in (False, True):  # without a kill and with one, on the same core
            await lab.hops[0].set_behaviour(NEVER)
            lab.hops[0].reset()
            queue_id = await deferred(core, X, Y, Z)
            await lab.hops[0].set_behaviour("accept")
            await changed(core, "hold", 1, 1, filter={"recipient": X})
            if killed:
                await core.kill("manager")
            item = await core.until_in(queue_id, "retry.")
            assert item["states"] == {"held": 1, "deferred": 2}
            assert item["due_at"] > time.time() + 20, "the others keep their time"
            assert await states(core, queue_id) == {X: "held", Y: "deferred", Z: "deferred"}
            await core.ask("change_matching", change="retry", filter={"recipient": "*@two.example"})
            await core.until_in(queue_id, "hold")
            assert recipients_of(lab.messages) == [Y, Z]
            assert (await core.size())["recipients"] == 1
            await core.order("release", queue_id)
            await core.until_empty()
            assert recipients_of(lab.messages) == [X, Y, Z]


async def test_who_is_deleted_is_not_queued_and_can_be_had_back(tmp_path: Path) -> None:
    async with Lab([f"{NEVER}:127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as core:
        for killed in (False, True):  # without a kill and with one, on the same core
            await lab.hops[0].set_behaviour(NEVER)
            lab.hops[0].reset()
            queue_id = await deferred(core, X, Y)
            await lab.hops[0].set_behaviour("accept")
            await changed(core, "delete", 1, 1, filter={"recipient": X})
            assert (await core.size())["recipients"] == 1
            if killed:
                await core.kill("manager")
            assert (await core.size())["recipients"] == 1
            assert await states(core, queue_id) == {X: "deleted", Y: "deferred"}
            await core.ask("change_matching", change="retry", filter={"recipient": Y})
            await core.until_in(queue_id, "deleted", deleted=True)
            assert recipients_of(lab.messages) == [Y]
            await changed(core, "undelete", 1, 1, filter={"recipient": X})
            await core.until_empty()
            assert recipients_of(lab.messages) == [X, Y]
            balance = (await core.ask("state"))["balance"]
            assert balance["recipients"]["difference"] == balance["messages"]["difference"] == 0


async def test_who_is_deleted_goes_for_good_after_the_undo_time_and_the_others_stay(tmp_path: Path) -> None:
    home = Home(tmp_path)
    manager = home.start()
    try:
        queue = manager.context.queue
        queue.undo_time_s = 0
        deliverers = Deliverers(manager)
        checkpoints = asyncio.create_task(manager.checkpoints())
        queue_id = home.accept(2)
        await turns(manager, lambda: deliverers.waiting)
        arguments = {"messages": [[queue_id, INCOMING, 0, [[0, 0]]]]}
        change = asyncio.create_task(manager.orders.change(Request(1, "delete", arguments, "ann", "spam")))
        await turns(manager, lambda: queue.active[queue_id].orders)
        deliverers.answer(lambda number: Status.DEFERRED)
        answer = await change
        assert (answer.changed, answer.recipients, answer.in_flight) == (1, 1, {queue_id: [0]})
        await turns(manager, lambda: queue.sizes.resting.get("retry.300") == [1, 1])
        assert not queue.active
        balance = manager.context.balance
        assert (balance.deleted, balance.undeleted, balance.by_status[Status.DELETED]) == ([0, 1], [0, 0], 0)
        terms = balance.terms(1, queue.sizes.summary().recipients)
        assert terms.recipients["difference"] == terms.messages["difference"] == 0
        checkpoints.cancel()
    finally:
        home.kill()


async def test_a_delete_by_a_recipient_who_was_delivered_long_ago_deletes_nobody(tmp_path: Path) -> None:
    behaviour = "reject(y*, 451)"
    async with Lab([f"{behaviour}:127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as core:
        queue_id = await deferred(core, X, Y)
        assert recipients_of(lab.messages) == [X]
        await changed(core, "delete", 0, 0, filter={"recipient": X})
        assert await states(core, queue_id) == {Y: "deferred"}


async def test_a_delete_by_a_recipient_who_was_delivered_in_this_pass_deletes_nobody(tmp_path: Path) -> None:
    """The envelope still has him; only the manager knows."""
    async with Lab(["accept:127.0.0.1:0", "accept:127.0.0.1:0"]) as lab:
        routes = {"one.example": route_to(lab, 0), "two.example": route_to(lab, 1)}
        async with running(tmp_path, lab, LONG, routes=routes) as core:
            await core.ask("suspend", destination=route_to(lab, 1))
            queue_id = await core.send(X, Y)

            async def delivered() -> bool:
                return recipients_of(lab.messages) == [X]

            await core.eventually(delivered, "X to be delivered")
            await core.eventually(lambda: _done(core, queue_id), "the verdict")
            assert [item["queue_id"] for item in (await core.ask("list", filter={"recipient": X}))["items"]] == []
            assert [item["recipients"] for item in (await core.ask("list", filter={"recipient": Y}))["items"]] == [[Y]]
            assert [item["recipients"] for item in (await core.ask("list"))["items"]] == [[Y]]
            await changed(core, "delete", 0, 0, filter={"recipient": X})
            await changed(core, "hold", 1, 1, filter={"recipient": Y})
            await core.until_in(queue_id, "hold")


@pytest.mark.parametrize("delayed", [pytest.param(False, marks=pytest.mark.long), True])
async def test_a_suspended_destination_does_not_stop_the_messages_other_recipients(
    tmp_path: Path, delayed: bool
) -> None:
    """The pass would not end before an operator resumes it, and who was deferred or delayed would not be tried."""
    soon: Sections = {
        "queue": {"retry_ladder_s": [1]},
        "scheduler": {"minimal_backoff_time": 1, "maximal_backoff_time": 1},
    }
    async with Lab([f"{NEVER}:127.0.0.1:0", "accept:127.0.0.1:0"]) as lab:
        routes = {"one.example": route_to(lab, 0), "two.example": route_to(lab, 1)}
        async with running(tmp_path, lab, soon, routes=routes) as core:
            await core.ask("suspend", destination=route_to(lab, 1))
            queue_id = await core.send(X, Y)

            async def tried() -> bool:
                return lab.hops[0].counters.connections > 1

            await core.eventually(tried, "X to be tried again")
            await lab.hops[0].set_behaviour("accept")
            if delayed:
                await core.ask("change_matching", change="delay", filter={"recipient": X}, until=time.time() + 3)

            async def delivered() -> bool:
                return recipients_of(lab.messages) == [X]

            await core.eventually(delivered, "X to be delivered")

            async def waits() -> bool:
                return (await states(core, queue_id))[Y] == "suspended"

            await core.eventually(waits, "Y to wait for its destination again")
            await core.ask("resume", destination=route_to(lab, 1))
            await core.until_empty()
            assert recipients_of(lab.messages) == [X, Y]


async def _done(core: RunningCore, queue_id: str) -> bool:
    messages = (await core.ask("working", queue_ids=[queue_id]))["messages"]
    return bool(messages) and messages[queue_id]["remaining"] == 1


async def test_a_reroute_by_destination_takes_no_other_recipient_along(tmp_path: Path) -> None:
    async with Lab([f"{NEVER}:127.0.0.1:0", f"{NEVER}:127.0.0.1:0", "accept:127.0.0.1:0"]) as lab:
        routes = {"one.example": route_to(lab, 0), "two.example": route_to(lab, 1)}
        async with running(tmp_path, lab, LONG, routes=routes) as core:
            queue_id = await deferred(core, X, Y)
            await changed(core, "reroute", 1, 1, filter={"destination": route_to(lab, 0)}, route=route_to(lab, 2))

            async def delivered() -> bool:
                return recipients_of(lab.hops[2].messages) == [X]

            await core.eventually(delivered, "the rerouted recipient")
            item = await core.until_in(queue_id, "retry.60")
            assert item["recipient_count"] == 1
            assert await states(core, queue_id) == {Y: "deferred"}


async def test_counts_by_destination_equal_a_browse_after_a_reroute(tmp_path: Path) -> None:
    async with Lab([f"{NEVER}:127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as core:
        ids = [await deferred(core, X, Y) for _ in range(3)]
        elsewhere = "smtp:[127.0.0.1]:1"
        await core.ask("change_matching", change="hold", filter={})
        for queue_id in ids:
            await core.until_in(queue_id, "hold")
        await changed(core, "reroute", 3, 3, filter={"recipient": X}, route=elsewhere)
        assert (await core.size())["destinations"] == {elsewhere: 3, route_to(lab, 0): 3}
        assert len(await core.listed(destination=elsewhere)) == 3


async def test_a_bounce_by_recipient_returns_that_one_alone(tmp_path: Path) -> None:
    async with Lab([f"{NEVER}:127.0.0.1:0", "accept:127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as core:
        queue_id = await deferred(core, X, Y)
        await changed(core, "bounce", 1, 1, filter={"recipient": X})

        async def returned() -> bool:
            return len(lab.hops[1].messages) == 1

        await core.eventually(returned, "the bounce")
        await core.until_in(queue_id, "retry.60")
        assert await states(core, queue_id) == {Y: "deferred"}


async def test_who_is_delayed_goes_later_and_the_others_at_their_time(tmp_path: Path) -> None:
    sections: Sections = {
        "queue": {"retry_ladder_s": [1, 3]},
        "scheduler": {"minimal_backoff_time": 1, "maximal_backoff_time": 1},
    }
    async with Lab([f"{NEVER}:127.0.0.1:0"]) as lab, running(tmp_path, lab, sections) as core:
        queue_id = await core.send(X, Y)
        await core.until_in(queue_id, "retry.")
        until = time.time() + 8
        await core.ask("change_matching", change="delay", filter={"recipient": X}, until=until)
        await lab.hops[0].set_behaviour("accept")

        async def delivered() -> bool:
            return recipients_of(lab.messages) == [Y]

        await core.eventually(delivered, "the other recipient")

        async def delayed() -> bool:
            return await states(core, queue_id) == {X: "delayed"}

        await core.eventually(delayed, "the state of what is left")
        await core.until_empty()
        assert time.time() >= until - 1.5
        assert recipients_of(lab.messages) == [X, Y]


@pytest.mark.parametrize(
    ("change", "given", "left"),
    [
        pytest.param("hold", {}, {X: "held"}, marks=pytest.mark.long),
        ("delete", {}, {X: "deleted"}),
        pytest.param("delay", {"until": 4e9}, {X: "delayed"}, marks=pytest.mark.long),
    ],
)
async def test_a_change_of_one_recipient_in_flight_counts_unless_it_is_delivered(
    tmp_path: Path, change: str, given: dict[str, Any], left: dict[str, str]
) -> None:
    behaviour = "slow(1.5)+reject(x*, 451)"
    async with Lab([f"{behaviour}:127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as core:
        queue_id = await core.send(X, "w@one.example")
        await core.until_in_flight()
        given = {**given, "filter": {"recipient": "*@one.example"}, "wait_s": 60}
        made = await core.ask("change_matching", change=change, **given)
        assert (made["changed_recipients"], made["in_flight"]) == (2, 2)
        assert (made["too_late"], made["undecided"]) == (1, 0), "w was delivered; x was not, and is changed"

        async def over() -> bool:
            return await states(core, queue_id) == left

        await core.eventually(over, "the result of the deliveries")
        assert recipients_of(lab.messages) == ["w@one.example"], "the final reply of the next hop counts"


async def test_many_recipients_and_some_of_them(tmp_path: Path) -> None:
    """More than one record of recipients; every other one is held, and only the others arrive."""
    async with Lab([f"{NEVER}:127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as core:
        everybody = [f"{'odd' if number % 2 else 'even'}{number}@one.example" for number in range(2500)]
        queue_id = await core.inject(*everybody[:1000], not_before=time.time() + 3600)
        for at in (1000, 2000):
            await core.ask("add_recipients", queue_id=queue_id, recipients=everybody[at : at + 1000])
        await core.order("retry", queue_id)
        await core.until_in(queue_id, "retry.60")
        await changed(core, "hold", 1, 1250, filter={"recipient": "odd*"})
        await core.kill("manager")
        await lab.hops[0].set_behaviour("accept")
        await core.until_in(queue_id, "retry.")
        await changed(core, "retry", 1, 1250, filter={"recipient": "even*"})
        await core.until_in(queue_id, "hold")
        assert sorted(recipients_of(lab.messages)) == sorted(each for each in everybody if each.startswith("even"))
        assert (await core.size())["recipients"] == 1250


async def test_a_release_of_what_is_not_held_is_refused(tmp_path: Path) -> None:
    async with Lab([f"{NEVER}:127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as core:
        queue_id = await deferred(core, X)
        item = await core.until_in(queue_id, "retry.60")
        made = await core.ask("release", messages=[[queue_id, item["lane"], item["offset"]]])
        assert made["errors"][queue_id]["code"] == Code.CONFLICT


async def test_a_retry_of_all_leaves_scheduled_mail_alone_unless_it_is_asked_for(tmp_path: Path) -> None:
    async with Lab([f"{NEVER}:127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as core:
        waiting = await deferred(core, X)
        scheduled = await core.inject(Y, not_before=time.time() + 3600)
        mixed = await deferred(core, X, Z)
        await core.ask("change_matching", change="delay", filter={"recipient": Z}, until=time.time() + 3600)
        await lab.hops[0].set_behaviour("accept")
        await changed(core, "retry", 2, 2, filter={})
        await core.until_removed(waiting)

        async def left() -> bool:
            return await states(core, mixed) == {Z: "delayed"}

        await core.eventually(left, "the others of the mixed message")
        assert recipients_of(lab.messages) == [X, X]
        assert await states(core, scheduled) == {Y: "delayed"}
        await changed(core, "retry", 2, 2, filter={}, scheduled=True)
        await core.until_empty()


async def test_a_retry_tries_a_destination_that_is_dead(tmp_path: Path) -> None:
    """It would be deferred again without an attempt, for a longer time, although its next hop is back."""
    async with Lab(["dead_for(86400):127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as core:
        await core.ask("suspend", destination=route_to(lab, 0))
        ids = [await core.send(f"r{number}@one.example") for number in range(20)]
        await core.ask("resume", destination=route_to(lab, 0))
        for queue_id in ids:
            await core.until_in(queue_id, "retry.60")
        await lab.hops[0].set_behaviour("accept")
        assert await dead(core, route_to(lab, 0))
        made = await core.ask("hold", queue_ids=[ids[5]])
        assert (made["changed"], made["dead"]) == (1, [])
        assert await dead(core, route_to(lab, 0)), "another change does not revive it"
        made = await core.ask("change_matching", change="retry", filter={"recipient": "r3@one.example"})
        assert (made["changed"], made["dead"]) == (1, [])
        await core.until_removed(ids[3])
        await core.order("release", ids[5])
        await core.ask("change_matching", change="retry", filter={})
        await core.until_empty()


async def test_a_retry_tries_all_destinations_of_a_message(tmp_path: Path) -> None:
    async with (
        Lab(["reject(1, 451):127.0.0.1:0", "dead_for(86400):127.0.0.1:0"]) as lab,
        running(tmp_path, lab, LONG, routes={"two.example": route_to(lab, 1)}) as core,
    ):
        await core.ask("suspend", destination=route_to(lab, 1))
        ids = [await core.send(f"r{number}@two.example") for number in range(20)]
        ids.append(await core.send(*(f"a{number}@one.example" for number in range(60)), "last@two.example"))
        await core.ask("resume", destination=route_to(lab, 1))
        for queue_id in ids:
            await core.until_in(queue_id, "retry.60")
        assert await dead(core, route_to(lab, 1))
        for hop in lab.hops:
            await hop.set_behaviour("accept")
        await core.order("retry", ids[-1])
        await core.until_removed(ids[-1])
        assert "last@two.example" in recipients_of(lab.messages)


async def dead(core: RunningCore, destination: str) -> bool:
    states = (await core.ask("destinations"))["states"]
    return any(state == "dead" for state, _ in states.get(destination, ()))
