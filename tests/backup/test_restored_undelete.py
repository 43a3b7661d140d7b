"""What is deleted in a restored queue, by the backup or since, is held when it is undeleted, and not delivered."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from mailcore.lab.lab import Lab
from tests.backup.place import REASON, backed_up, command, destroyed_and_restored
from tests.backup.test_queue_comes_back import LONG, NEVER, everything_held, everything_in, in_lane, release_all
from tests.running.running_core import RunningCore, recipients_of, running


async def undelete_all(core: RunningCore) -> int:
    answer = await command(core, "queue", "undelete", "--all-matching", "--lane", "deleted", "--yes")
    return int(answer["changed"])


async def nothing_deleted(core: RunningCore) -> None:
    async def none() -> bool:
        return not await core.listed(lane="deleted")

    await core.eventually(none, "nothing to be listed as deleted")


async def reasons(core: RunningCore) -> dict[str, str]:
    await nothing_deleted(core)
    items = await core.listed()
    assert {item["lane"] for item in items} == {"hold"}
    return {item["recipients"][0].partition("@")[0]: item["reason"] for item in items}


@pytest.mark.parametrize(
    "rounds",
    [
        pytest.param(("nobody", "all"), id="short"),
        pytest.param(("nobody", "nobody"), id="nobody is killed", marks=pytest.mark.long),
        pytest.param(("all", "all"), id="all are killed", marks=pytest.mark.long),
    ],
)
async def test_undeleted_it_is_held_whenever_it_was_deleted_and_released_it_is_delivered_once(
    tmp_path: Path, rounds: tuple[str, str]
) -> None:
    async with Lab([f"{NEVER}:127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as core:
        await in_lane(core, "retry.600", "since@example.org")
        before = await in_lane(core, "retry.600", "before@example.org")
        both = await in_lane(core, "retry.600", "both@example.org")
        await core.order("hold", both, why="a question of its author")
        for queue_id in (before, both):
            await core.order("delete", queue_id, why="unwanted")
            await core.until_in(queue_id, "deleted", deleted=True)
        path = await backed_up(core, "--queue")
        await lab.hops[0].set_behaviour("accept")
        await destroyed_and_restored(core, path)
        await core.start()
        await everything_held(core, 1)
        answer = await command(core, "queue", "delete", "--all-matching", "--reason", REASON, "--yes")
        assert answer["changed"] == 1
        for killed in rounds:  # and once more, from where a restored queue's marker says nothing of it
            if killed == "all":
                await core.again()
            assert await undelete_all(core) == 3
            if killed == "all":
                await core.again()
            await everything_in(core, "hold", 3)
            said = await reasons(core)
            assert said.pop("both") == "a question of its author"
            assert set(said) == {"since", "before"}
            assert all(REASON in why and "may have been delivered since" in why for why in said.values())
            await asyncio.sleep(0.3)
            assert not lab.messages
            answer = await command(core, "queue", "delete", "--all-matching", "--lane", "hold", "--yes")
            assert answer["changed"] == 3
        assert await undelete_all(core) == 3
        await everything_in(core, "hold", 3)
        await nothing_deleted(core)
        assert await release_all(core) == 2
        await core.order("release", both)
        await core.until_empty()
        assert sorted(recipients_of(lab.messages)) == [f"{name}@example.org" for name in ("before", "both", "since")]
        state = await core.ask("state")
        assert all(each["difference"] == 0 for each in state["balance"].values())


async def test_what_was_being_deleted_in_the_backup_is_held_when_it_is_undeleted(tmp_path: Path) -> None:
    """Its delete waits for a hop that says nothing; so does one that was taken back there."""
    async with Lab(["silent(rcpt):127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as core:
        deleted = await core.send("deleted@example.org")
        undeleted = await core.send("undeleted@example.org")
        await core.until_in_flight(2)
        await core.order("delete", deleted, why="unwanted")
        await core.order("delete", undeleted, why="unwanted")
        await core.order("undelete", undeleted)
        path = await backed_up(core, "--queue")
        await lab.hops[0].set_behaviour("accept")
        await destroyed_and_restored(core, path)
        await core.start()
        await everything_held(core, 1)
        assert set(await reasons_of_held(core)) == {"undeleted"}
        await core.until_in(deleted, "deleted", deleted=True)
        await core.again()
        await core.order("undelete", deleted)
        await everything_in(core, "hold", 2)
        assert all(REASON in why for why in (await reasons(core)).values())
        assert not lab.messages
        assert await release_all(core) == 2
        await core.until_empty()
        assert sorted(recipients_of(lab.messages)) == ["deleted@example.org", "undeleted@example.org"]


async def reasons_of_held(core: RunningCore) -> dict[str, str]:
    return {item["recipients"][0].partition("@")[0]: item["reason"] for item in await core.listed(lane="hold")}


@pytest.mark.long
async def test_what_was_released_of_it_is_mail_as_any_other(tmp_path: Path) -> None:
    async with Lab([f"{NEVER}:127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as core:
        queue_id = await in_lane(core, "retry.600", "a@example.org")
        path = await backed_up(core, "--queue")
        await destroyed_and_restored(core, path)
        await core.start()
        await everything_held(core, 1)
        assert await release_all(core) == 1
        await core.until_in(queue_id, "retry.600")
        await lab.hops[0].set_behaviour("accept")
        await core.order("delete", queue_id)
        assert await undelete_all(core) == 1
        await core.until_empty()
        assert recipients_of(lab.messages) == ["a@example.org"]


async def test_killed_in_the_middle_of_undeleting_nothing_is_delivered_and_nothing_is_lost(tmp_path: Path) -> None:
    async with Lab([f"{NEVER}:127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as core:
        for number in range(40):
            await asyncio.to_thread(core._send, (f"r{number}@example.org",), "author@sender.example", b"x\r\n")
        await everything_in(core, "retry.600", 40)
        answer = await command(core, "queue", "purge", "--all", "--yes")
        assert answer["changed"] == 40
        path = await backed_up(core, "--queue")
        await lab.hops[0].set_behaviour("accept")
        await destroyed_and_restored(core, path)
        await core.start()
        for kill in range(4):
            changing = asyncio.create_task(core.ask("change_matching", change="undelete", filter={"lane": "deleted"}))
            await asyncio.sleep(0.02 * kill)
            with contextlib.suppress(KeyError, ProcessLookupError):
                await core.kill_now("manager")
            await asyncio.wait([changing])
            changing.cancelled() or changing.exception()
            await core.ready()
        await undelete_all(core)
        await everything_held(core, 40)
        await nothing_deleted(core)
        assert all(REASON in item["reason"] for item in await core.listed())
        assert not lab.messages
        assert await release_all(core) == 40
        await core.until_empty()
        assert sorted(recipients_of(lab.messages)) == sorted(f"r{number}@example.org" for number in range(40))
