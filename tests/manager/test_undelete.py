"""Undelete brings back what was: who was held when it was deleted is held again, for the same reason; all else goes on."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from pathlib import Path
from typing import Any

from mailcore.change_rules import MessageState, refusal
from mailcore.control.client import ControlError
from mailcore.faults import Code, Fault
from mailcore.lab.lab import Lab
from tests.running.running_core import RunningCore, Sections, recipients_of, running

NEVER = "reject(1, 451)"
LONG: Sections = {
    "queue": {"retry_ladder_s": [60]},
    "scheduler": {"minimal_backoff_time": 60, "maximal_backoff_time": 60},
}
WHY = "a question of its author"


async def held(core: RunningCore, address: str, why: str = WHY) -> str:
    queue_id = await core.send(address)
    await core.until_in(queue_id, "retry.60")
    await core.order("hold", queue_id, why=why)
    await core.until_in(queue_id, "hold")
    return queue_id


async def balanced(core: RunningCore) -> Any:
    """Marks and counts are brought up by then."""

    async def even() -> Any:
        state = await core.ask("state")
        return state if all(each["difference"] == 0 for each in state["balance"].values()) else None

    return await core.eventually(even, "the balance to add up")


async def test_what_was_held_when_it_was_deleted_is_held_again_for_its_reason(tmp_path: Path) -> None:
    async with Lab([f"{NEVER}:127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as core:

        async def kill(killed: str) -> None:
            if killed == "manager":
                await core.kill("manager")
            elif killed == "all":
                await core.again()

        for killed in ("nobody", "manager", "all"):  # on the same core
            await lab.hops[0].set_behaviour(NEVER)
            lab.hops[0].reset()
            queue_id = await held(core, "held@example.org")
            unsaid = await held(core, "unsaid@example.org", "")
            other = await core.send("other@example.org")
            await core.until_in(other, "retry.60")
            await lab.hops[0].set_behaviour("accept")
            for each in (queue_id, unsaid, other):
                await core.order("delete", each, why="a spam wave")
            await kill(killed)
            item = await core.until_in(queue_id, "deleted", deleted=True)
            assert item["reason"] == "a spam wave"
            assert (await core.size())["messages"] == 0
            for each in (queue_id, unsaid, other):
                await core.order("undelete", each, why="it was none")
            await kill(killed)
            item = await core.until_in(queue_id, "hold")
            assert (item["state"], item["reason"]) == ("held", WHY)
            await core.until_in(unsaid, "hold")
            assert await core.refusal("undelete", queue_id) == Fault(
                Code.CONFLICT, refusal("undelete", MessageState.HELD)
            )
            await core.until_removed(other)
            await asyncio.sleep(0.3)
            assert set(recipients_of(lab.messages)) == {"other@example.org"}  # it was not held, and goes on
            assert (await core.size())["lanes"] == {"hold": {"messages": 2, "recipients": 2}}
            balance = (await balanced(core))["balance"]["recipients"]
            if killed == "nobody":  # who is killed counts from there on, and the journal begins there
                assert (balance["deleted"], balance["undeleted"], balance["queued"]) == (3, 3, 2)
                told = [
                    event["operation"] if event["event"] == "administrative" else event["lane"]
                    for event in (await core.ask("history", queue_id=queue_id))["events"]
                    if event["event"] in ("administrative", "replaced")
                ]
                assert told == ["hold", "hold", "delete", "deleted", "undelete", "hold"]
            await core.order("release", queue_id)
            await core.order("release", unsaid)
            await core.until_empty()
            arrived = Counter(recipients_of(lab.messages))
            again = arrived.pop("other@example.org")
            assert again == 1 or killed != "nobody"  # it may have been in flight at the kill
            assert arrived == {"held@example.org": 1, "unsaid@example.org": 1}


async def test_deleted_and_undeleted_again_and_again_it_stays_held_and_released_it_does_not(tmp_path: Path) -> None:
    async with Lab([f"{NEVER}:127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as core:
        queue_id = await held(core, "a@example.org")
        for _ in range(3):
            await core.order("delete", queue_id)
            await core.order("undelete", queue_id)
        assert (await core.until_in(queue_id, "hold"))["reason"] == WHY
        await core.order("release", queue_id)
        await core.until_in(queue_id, "retry.60")
        await lab.hops[0].set_behaviour("accept")
        await core.order("delete", queue_id)
        await core.order("undelete", queue_id)
        await core.until_empty()
        assert recipients_of(lab.messages) == ["a@example.org"]


async def test_a_hold_that_waited_for_what_is_in_flight_when_it_was_deleted_is_one(tmp_path: Path) -> None:
    sections: Sections = {
        **LONG,
        "transports.smtp": {"destination_recipient_limit": 2, "destination_concurrency_limit": 1},
    }
    recipients = [f"r{number}@example.org" for number in range(5)]
    async with Lab(["slow(1):127.0.0.1:0"]) as lab, running(tmp_path, lab, sections) as core:
        for killed in (False, True):  # without a kill and with one, on the same core
            await lab.hops[0].set_behaviour("slow(1)")
            lab.hops[0].reset()
            queue_id = await core.send(*recipients)
            await core.until_in_flight()
            await core.order("hold", queue_id, why=WHY)
            await core.order("delete", queue_id, why="a spam wave")
            await core.order("undelete", queue_id)
            assert await core.refusal("hold", queue_id) == Fault(Code.CONFLICT, refusal("hold", MessageState.HELD))
            await core.order("delete", queue_id, why="a spam wave")
            if killed:
                await core.kill("manager")
            assert (await core.until_in(queue_id, "deleted", deleted=True))["reason"] == "a spam wave"
            await core.order("undelete", queue_id)
            assert (await core.until_in(queue_id, "hold"))["reason"] == WHY
            arrived = recipients_of(lab.messages)
            assert len(arrived) == 2 or (killed and not arrived)
            await lab.hops[0].set_behaviour("accept")
            await core.order("release", queue_id)
            await core.until_empty()
            assert set(recipients_of(lab.messages)) == set(recipients)


async def test_killed_at_any_moment_of_deleting_and_undeleting_it_is_there_once_and_never_delivered(
    tmp_path: Path,
) -> None:
    async with Lab([f"{NEVER}:127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as core:
        ids = {await held(core, f"r{number}@example.org") for number in range(6)}
        await lab.hops[0].set_behaviour("accept")

        async def change(operation: str, filter_: dict[str, str]) -> None:
            """What was not answered may have been done, or not."""
            while True:
                with contextlib.suppress(ControlError):
                    await core.ask("change_matching", change=operation, filter=filter_)
                await asyncio.sleep(0.01)

        changing = asyncio.gather(change("delete", {"lane": "hold"}), change("undelete", {"lane": "deleted"}))
        for kill in range(5):
            await asyncio.sleep(0.3 + 0.17 * kill)
            with contextlib.suppress(KeyError, ProcessLookupError):
                await core.kill_now("manager")
        changing.cancel()
        await asyncio.wait([changing])
        await core.control.close()
        await core.ready()

        async def all_held() -> bool:
            await core.ask("change_matching", change="undelete", filter={"lane": "deleted"})
            there = [*await core.listed(), *await core.listed(lane="deleted")]
            return sorted((item["queue_id"], item["lane"], item["reason"]) for item in there) == [
                (queue_id, "hold", WHY) for queue_id in sorted(ids)
            ]

        await core.eventually(all_held, "each of them to be in hold, once")
        counts = Counter(line["operation"] for line in core.log() if line["event"] == "administered")
        assert min(counts["delete"], counts["undelete"]) >= len(ids)
        assert not lab.messages
        await balanced(core)
