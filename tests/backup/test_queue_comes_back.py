"""A queue out of a backup is held: nothing of it is delivered before it is released, whatever it was and whoever is killed."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from mailcore.lab.lab import Lab
from tests.backup.place import REASON, backed_up, command, destroyed_and_restored
from tests.running.running_core import DATA, RunningCore, Sections, recipients_of, route_to, running

NEVER = "reject(1, 451)"
LONG: Sections = {
    "queue": {"retry_ladder_s": [600], "segment_bytes": 64 << 10, "inline_limit": 8 << 10},
    "scheduler": {"minimal_backoff_time": 600, "maximal_backoff_time": 600},
}
BIG = DATA + b"x" * 70 + b"\r\n" * 20_000


async def in_lane(core: RunningCore, lane: str, address: str, data: bytes = DATA) -> str:
    queue_id = await core.send(address, data=data)
    await core.until_in(queue_id, lane)
    return queue_id


async def everything_in(core: RunningCore, lane: str, messages: int) -> None:
    async def there() -> bool:
        return bool((await core.size())["lanes"].get(lane, {}).get("messages") == messages)

    await core.eventually(there, f"{messages} messages in {lane}")


async def everything_held(core: RunningCore, messages: int) -> None:
    await everything_in(core, "hold", messages)

    async def listed_there() -> bool:  # where they came from lists them, too, until their marks are written
        return {item["lane"] for item in await core.listed()} == {"hold"}

    await core.eventually(listed_there, "nothing to be listed but in hold")


async def release_all(core: RunningCore) -> int:
    """By the filter that the documents name."""
    answer = await command(core, "queue", "release", "--all-matching", "--reason", REASON, "--yes")
    return int(answer["changed"])


@pytest.mark.parametrize("runs", [True, False], ids=["of a running core", "of a stopped one"])
async def test_whatever_a_message_was_it_comes_back_held_and_is_delivered_when_released(
    tmp_path: Path, runs: bool
) -> None:
    async with Lab([f"{NEVER}:127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as core:
        await in_lane(core, "retry.600", "deferred@example.org")
        await in_lane(core, "retry.600", "big@example.org", BIG)
        held = await in_lane(core, "retry.600", "held@example.org")
        await core.order("hold", held, why="a question of its author")
        released = await in_lane(core, "retry.600", "released@example.org")
        await core.order("hold", released)
        deleted = await in_lane(core, "retry.600", "deleted@example.org")
        await core.order("delete", deleted)
        await core.until_in(deleted, "deleted", deleted=True)
        await core.ask("suspend", destination=route_to(lab, 0))
        await core.order("release", released)  # it waits in the scheduler then, as those that come now
        await core.send("waiting@example.org", "other@example.org")
        await core.inject("scheduled@example.org", not_before=4_000_000_000.0)
        if not runs:
            core.stop()
        path = await backed_up(core, "--queue")
        await lab.hops[0].set_behaviour("accept")
        done = await destroyed_and_restored(core, path)
        assert done["parts"] == ["configuration", "keys", "portal", "queue"]
        await core.start()
        await core.ask("resume", destination=route_to(lab, 0))
        await everything_held(core, 6)
        items = {item["recipients"][0]: item for item in await core.listed()}
        assert {item["lane"] for item in items.values()} == {"hold"}
        assert items.pop("held@example.org")["reason"] == "a question of its author"
        assert all(
            REASON in item["reason"] and "may have been delivered since" in item["reason"] for item in items.values()
        )
        assert REASON in (await core.ask("state"))["restored"]
        await core.send("new@example.org")
        await core.eventually(lambda: asyncio.sleep(0, bool(lab.messages)), "new mail to be delivered")
        assert recipients_of(lab.messages) == ["new@example.org"]

        assert await release_all(core) == 5
        expected = ["big", "deferred", "new", "other", "released", "waiting"]

        async def arrived() -> bool:
            return len(recipients_of(lab.messages)) >= len(expected)

        await core.eventually(arrived, "what was released to arrive")
        assert sorted(recipients_of(lab.messages)) == [f"{name}@example.org" for name in expected]

        async def left() -> bool:
            found = {item["recipients"][0] for item in await core.listed()}
            return found == {"held@example.org", "scheduled@example.org"}  # its time has not come

        await core.eventually(left, "all that was released to be gone")
        await core.order("release", held)
        await core.eventually(lambda: asyncio.sleep(0, len(lab.messages) == 6), "the last one to arrive")


@pytest.mark.long
async def test_killed_in_the_middle_of_the_holding_nothing_is_delivered_and_nothing_is_lost(tmp_path: Path) -> None:
    async with Lab([f"{NEVER}:127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as core:
        everybody = {f"r{number}@example.org" for number in range(100)}
        for address in sorted(everybody):
            await asyncio.to_thread(core._send, (address,), "author@sender.example", DATA)
        await everything_in(core, "retry.600", 100)
        path = await backed_up(core, "--queue")
        await lab.hops[0].set_behaviour("accept")
        await destroyed_and_restored(core, path)
        core.launch()
        kills = 0
        while kills < 4:
            with contextlib.suppress(KeyError, ProcessLookupError):
                await core.kill_now("manager")
                kills += 1
            await asyncio.sleep(0.15 * kills)
        await core.ready()
        await everything_held(core, 100)
        assert not lab.messages
        await release_all(core)
        await core.until_empty()
        assert Counter(recipients_of(lab.messages)) == Counter(everybody)


async def test_an_owed_bounce_is_held_as_its_message_is(tmp_path: Path) -> None:
    """One recipient is refused, the other waits: the bounce of the pass that restores is nobody's business yet."""
    behaviours = ["reject(1, 550):127.0.0.1:0", "accept:127.0.0.1:0", "accept:127.0.0.1:0"]
    async with AsyncExitStack() as stack:
        lab = await stack.enter_async_context(Lab(behaviours))
        routes = {"slow.example": route_to(lab, 1)}
        core = await stack.enter_async_context(running(tmp_path, lab, LONG, routes=routes))
        await core.ask("suspend", destination=route_to(lab, 1))
        queue_id = await core.send("a@refused.example", "b@slow.example")

        async def refused() -> bool:
            found = (await core.ask("working", queue_ids=[queue_id]))["messages"]
            return bool(queue_id in found and found[queue_id]["remaining"] == 1)

        await core.eventually(refused, "one recipient to be refused")
        path = await backed_up(core, "--queue")
        await destroyed_and_restored(core, path)
        await core.start()
        await everything_held(core, 2)
        assert not lab.messages
        assert await release_all(core) == 2
        await core.ask("resume", destination=route_to(lab, 1))
        await core.until_empty()
        assert sorted(recipients_of(lab.messages)) == ["author@sender.example", "b@slow.example"]
