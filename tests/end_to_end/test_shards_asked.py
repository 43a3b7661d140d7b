"""One answer from several shards: lists in order, sums, changes with one count, and shards that do not answer."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from mailcore.config.known_shards import known_shards
from mailcore.control.client import ControlClient, ControlError, Refused
from mailcore.control.protocol.operation import Access
from mailcore.control.protocol.table import OPERATIONS, ArgumentError, check
from mailcore.faults import Code
from mailcore.lab.lab import Lab
from mailcore.lookup.browse import lane_order
from mailcore.queue.queue_id import shard_of
from tests.end_to_end.appliance import COMMAND, free_port
from tests.end_to_end.test_settings import changed, known
from tests.eventually import PATIENCE_S
from tests.running.running_core import recipients_of
from tests.running.running_shards import RunningShards, running_shards

REFUSING = ["reject(1.0, 450):127.0.0.1:0"]
SLOWLY: dict[str, dict[str, object]] = {
    "queue": {"retry_ladder_s": [600]},
    "scheduler": {"minimal_backoff_time": 600.0, "maximal_backoff_time": 600.0},
}
MESSAGES = 24


async def waiting(core: RunningShards, number: int = MESSAGES) -> list[str]:
    """So many messages that wait in a retry lane of both shards."""
    queue_ids = await core.send_many(number)
    assert len({shard_of(each) for each in queue_ids}) > 1
    await until_deferred(core, number)
    return queue_ids


async def waiting_as_they_came(core: RunningShards) -> list[str]:
    """The same, with each sent when the one before waits: the attempts of several at once may end in another order."""
    queue_ids = list[str]()
    for each in range(MESSAGES):
        queue_ids += await core.send_many(1, first=each)
        await until_deferred(core, len(queue_ids))
    assert len({shard_of(each) for each in queue_ids}) > 1
    return queue_ids


async def until_deferred(core: RunningShards, number: int) -> None:
    async def rest() -> bool:
        states = [each["state"] for each in await core.listed() if each["lane"] == "retry.600"]
        return states == ["deferred"] * number

    await core.eventually(rest, "all messages to wait for the next attempt")


def pages(core: RunningShards, limit: int, operation: str = "list", **filter_: Any) -> list[dict[str, Any]]:
    """All items over a blocking client, page by page; the size of each page, but the last, is as asked for."""
    found: list[dict[str, Any]] = []
    cursor: str | None = ""
    with ControlClient(core.run_directory / "control.sock", timeout_s=PATIENCE_S) as client:
        while cursor is not None:
            page = client.call(operation, {"cursor": cursor, "limit": limit, "filter": filter_})
            assert len(page["items"]) <= limit
            found += page["items"]
            cursor = page["cursor"]
    return found


async def test_a_list_has_the_mail_of_all_shards_in_one_order_whatever_the_size_of_its_pages(tmp_path: Path) -> None:
    async with Lab(REFUSING) as lab, running_shards(tmp_path, lab, SLOWLY, shards=3) as core:
        queue_ids = await waiting_as_they_came(core)
        whole = await asyncio.to_thread(pages, core, 1000)
        assert sorted(each["queue_id"] for each in whole) == sorted(queue_ids)
        keys = [(lane_order(each["lane"]), each["arrived_at"]) for each in whole]
        assert keys == sorted(keys)
        shards = [shard_of(each["queue_id"]) for each in whole]
        assert shards != sorted(shards)  # they are mixed, not one after the other
        for limit in (1, 5, 7):
            assert [each["queue_id"] for each in await asyncio.to_thread(pages, core, limit)] == [
                each["queue_id"] for each in whole
            ]
        one = await core.listed(recipient="m3@any.example")
        assert [each["recipients"] for each in one] == [["m3@any.example"]]
        # A message is found by its id, wherever it is; a lane that one shard alone has is a lane.
        for queue_id in queue_ids:
            assert (await core.ask("explain", queue_id=queue_id))["reasons"]
            (hit,) = (await core.ask("search", queue_id=queue_id))["items"]
            assert hit["queue_id"] == queue_id
        with pytest.raises(Refused, match="no lane") as refused:
            await core.ask("list", filter={"lane": "retry.7"})
        assert refused.value.argument == "filter.lane"
        found = list[str]()
        cursor: str | None = ""
        while cursor is not None:
            part = await core.ask("search", sender="author@sender.example", cursor=cursor, limit=7)
            found += [each["queue_id"] for each in part["items"]]
            cursor = part["cursor"]
        assert sorted(found) == sorted(queue_ids)


async def test_numbers_are_sums_and_an_absent_shard_is_named(tmp_path: Path) -> None:
    sections: dict[str, dict[str, object]] = {**SLOWLY}
    async with Lab(REFUSING) as lab, running_shards(tmp_path, lab, sections) as core:
        await waiting(core)
        size = await core.ask("size")
        assert (size["messages"], size["recipients"], size["unheard"]) == (MESSAGES, MESSAGES, [])
        assert size["lanes"] == {"retry.600": {"messages": MESSAGES, "recipients": MESSAGES}}
        state = await core.ask("state")
        assert state["counters"]["accepted"] == MESSAGES
        assert set(state["receivers"]) == {"incoming.0", "incoming.0@1"}
        assert [each["number"] for each in state["deliverers"]] == [0, 100]
        answer = await core.ask("destinations")
        (name,) = answer["queued"]
        assert answer["queued"] == {name: MESSAGES}
        outcomes = {**answer["destinations"], **answer["without_mail"]}[name]
        assert outcomes["deferred"] == MESSAGES
        ages = await core.ask("ages")
        assert (ages["total"], ages["by_state"]) == (
            MESSAGES,
            {"active": 0, "queued": 0, "deferred": MESSAGES, "held": 0},
        )
        assert sum(ages["counts"]) == MESSAGES
        positions = await core.ask("positions")
        assert {"retry.600", "retry.600@1"} <= {each["lane"] for each in positions["lanes"]}
        assert "Shard 1:" in positions["recovery"]["sentence"]
        processes = await core.ask("processes")
        assert processes["processes"] == core.processes()
        assert (processes["manager"], (await core.ask("ping"))["manager"]) == (True, True)

        supervisor = await core.stopped("supervisor@1")
        for process in ("control@1", "manager@1"):
            await core.kill_now(process)
        first = await core.ask_shard(0, "size")
        assert 0 < first["messages"] < MESSAGES
        size = await core.ask("size")
        assert (size["messages"], size["unheard"]) == (first["messages"], ["shard 1"])
        state = await core.ask("state")
        assert "shard 1 does not answer" in state["unanswered"]
        assert state["stalled"] == ""  # deliveries of the others go on
        assert not (await core.ask("ping"))["manager"]
        page = await core.ask("list", limit=3)
        assert page["manager_away"]
        assert "shard 1 does not answer, and its mail is not in this list" in page["note"]
        page = await core.ask("list", limit=3, cursor=page["cursor"])
        assert "shard 1 did not answer, and its mail is not in this list" in page["note"]
        assert len(await core.listed()) == first["messages"]
        assert "shard 1" in (await core.ask("ages"))["note"]
        assert "shard 1" in (await core.ask("search", sender="author@sender.example"))["note"]
        os.kill(supervisor, signal.SIGCONT)
        await core.ready()

        async def whole() -> bool:
            size = await core.ask("size")
            return (size["messages"], size["unheard"]) == (MESSAGES, [])

        await core.eventually(whole, "all to be counted again")


async def test_every_answer_of_several_shards_is_of_its_type(tmp_path: Path) -> None:
    """The portal reads answers as their types, and calls another answer that of another version."""
    sections: dict[str, dict[str, object]] = {
        **SLOWLY,
        "export": {"enabled": True},
        "metrics": {"listen": f"127.0.0.1:{free_port()}"},
    }
    async with Lab(REFUSING) as lab, running_shards(tmp_path, lab, sections) as core:
        queue_ids = await waiting(core)
        assert (await core._run("export", "--cut"))[0] == 0
        now = time.time()
        message = {"queue_id": queue_ids[0]}
        arguments: dict[str, dict[str, Any]] = {
            **dict.fromkeys(("show", "explain", "history", "headers", "data"), message),
            "working": {"queue_ids": queue_ids},
            "search": {"sender": "author@sender.example"},
            "size_at": {"time": now},
            "list_at": {"time": now},
            "resolve": {"address": "a@any.example"},
            "check_changes": {"changes": [{"scope": "", "parameter": "minimal_backoff_time", "value": 3}]},
            "change_matching": {"change": "hold", "filter": {}, "dry_run": True},
            "kept_text": {},
            "simulate": {"duration_s": 60.0},
            "settings_effects": {
                "changes": [{"key": ["routes", "any.example"], "value": "relay:[127.0.0.1]:1"}],
                "hops": 0,
            },
        }
        left_out = {"kept_text", "kept_use"}  # of files, which are not there
        reads = [each for each in OPERATIONS.values() if each.access is Access.READ and each.name not in left_out]
        asked = {
            "list",
            "state",
            "size",
            "destinations",
            "positions",
            "disks",
            "processes",
            "events",
            *arguments,
        } - left_out
        for operation in [*reads, *(OPERATIONS[name] for name in asked)]:
            given = arguments.get(operation.name, {})
            try:
                check(operation.name, given)
            except ArgumentError:
                continue  # it needs arguments, and is asked of the first shard
            async for part in core.control.ask_parts(operation.name, operation.result, given):
                assert isinstance(part, operation.result)
                asked.discard(operation.name)
        assert asked == set()
        past = await core.ask("size_at", time=now)
        assert (past["messages"], past["recipients"]) == (MESSAGES, MESSAGES)
        found = []
        cursor: str | None = ""
        while cursor is not None:
            page = await core.ask("list_at", time=now, cursor=cursor, limit=5)
            found += page["items"]
            cursor = page["cursor"]
        assert sorted(each["queue_id"] for each in found) == sorted(queue_ids)
        assert [each["arrived_at"] for each in found] == sorted(each["arrived_at"] for each in found)


async def test_a_change_of_all_that_match_has_one_count_over_all_shards(tmp_path: Path) -> None:
    async with Lab(REFUSING) as lab, running_shards(tmp_path, lab, SLOWLY) as core:
        queue_ids = await waiting(core)
        everything: dict[str, Any] = {"filter": {"lane": "retry.600"}}
        counted = await core.ask("change_matching", change="hold", dry_run=True, **everything)
        assert (counted["matched"], counted["changed"], counted["done"]) == (MESSAGES, 0, True)
        late = await core.send_to(1, "late@any.example")
        await core.until_in(late, "retry")
        # One shard away: nothing is changed anywhere.
        supervisor = await core.stopped("supervisor@1")
        await core.kill_now("manager@1")

        async def away_is_known() -> bool:
            return not (await core.ask_shard(1, "ping"))["manager"]

        await core.eventually(away_is_known, "control to hear that the manager is away")
        with pytest.raises(ControlError, match="nothing was changed in any shard") as away:
            await core.ask("change_matching", change="hold", cut=counted["cut"], **everything)
        assert away.value.code is Code.UNAVAILABLE
        assert "hold" not in (await core.ask_shard(0, "size"))["lanes"]
        os.kill(supervisor, signal.SIGCONT)
        await core.ready()
        held = await core.ask("change_matching", change="hold", cut=counted["cut"], **everything)
        assert (held["matched"], held["changed"], held["failed"], held["done"]) == (MESSAGES, MESSAGES, 0, True)
        for queue_id in queue_ids:
            await core.until_in(queue_id, "hold")
        assert (await core.item(late) or {})["lane"] == "retry.600"  # it came after the count
        with pytest.raises(ControlError, match="count again"):
            await core.ask("change_matching", change="hold", cut="retry.600:1", **everything)

        await lab.hops[0].set_behaviour("accept")
        # Chosen messages, of both shards, by id and by their place; one of a shard that is not here.
        elsewhere = "CRB9GPAA5FR" + "ZZ"
        assert shard_of(elsewhere) not in (0, 1)
        items = await core.listed(lane="hold")
        places = [[each["queue_id"], each["lane"], each["offset"]] for each in items[4:]]
        ids = [each["queue_id"] for each in items[:4]]
        result = await core.ask("release", queue_ids=[*ids, elsewhere], messages=places)
        assert result["changed"] == MESSAGES
        assert result["errors"].keys() == {elsewhere}
        assert result["errors"][elsewhere]["code"] == "not_found"
        with pytest.raises(ControlError, match="does not run on this node"):
            await core.ask("show", queue_id=elsewhere)
        await core.ask("change_matching", change="retry", filter={})
        await core.until_empty()
        assert set(recipients_of(lab.messages)) >= {f"m{each}@any.example" for each in range(MESSAGES)}


async def test_values_hold_in_all_shards_and_injected_mail_goes_to_open_ones(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running_shards(tmp_path, lab) as core:
        await core.ask("set", scope="smtp", parameter="destination_concurrency_limit", value=7)
        for number in (0, 1):
            scopes = (await core.ask_shard(number, "transports"))["scopes"]
            assert scopes["smtp"]["destination_concurrency_limit"]["value"] == 7
        queue_ids = [await core.inject(f"i{each}@any.example") for each in range(6)]
        assert {shard_of(each) for each in queue_ids} == {0, 1}
        await core.until_all_removed(queue_ids)
        core.stop()
        core.set_shards(1)
        await core.control.close()
        await core.start()
        assert [each.is_open for each in known_shards(core.run_directory)] == [True, False]
        assert {shard_of(await core.inject(f"j{each}@any.example")) for each in range(4)} == {0}
        with pytest.raises(Refused, match="drains"):
            await core.ask_shard(1, "inject_begin", sender="", recipients=["a@any.example"])


async def test_events_of_all_shards_come_once_over_one_cursor(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running_shards(tmp_path, lab, {"export": {"enabled": True}}) as core:
        queue_ids = await core.send_many(MESSAGES)
        await core.until_all_removed(queue_ids)
        found: list[dict[str, Any]] = []
        after = "oldest"

        async def all_there() -> bool:
            nonlocal after
            batch = await core.ask("events", after=after, limit=5)
            found.extend(batch["events"])
            assert batch["lost"] == []
            if batch["events"]:
                again = await core.ask("events", after=batch["start"], limit=5)
                assert again["events"] == batch["events"]
            after = batch["cursor"]
            return len(found) >= 2 * MESSAGES

        await core.eventually(all_there, "all events")
        kinds = [(each["queue_id"], each["kind"]) for each in found]
        assert len(kinds) == len(set(kinds)) == 2 * MESSAGES
        for queue_id in queue_ids:
            assert [kind for each, kind in kinds if each == queue_id] == ["accepted", "delivered"]
        waits = asyncio.create_task(core.ask("events", after=after, wait_s=20.0))
        queue_id = await core.send_to(1, "late@any.example")
        batch = await waits
        assert batch["events"], queue_id


async def test_the_command_line_shows_all_shards_or_says_that_it_does_not(tmp_path: Path) -> None:
    port = free_port()
    sections: dict[str, dict[str, object]] = {
        **SLOWLY,
        "export": {"enabled": True},
        "metrics": {"listen": f"127.0.0.1:{port}"},
    }
    async with Lab(REFUSING) as lab, running_shards(tmp_path, lab, sections) as core:
        queue_ids = await waiting(core)

        async def waypost(*arguments: str, status: int = 0) -> str:
            process = await asyncio.create_subprocess_exec(
                *(str(COMMAND), *arguments, "--config", str(core.config)),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            out, _ = await process.communicate()
            assert process.returncode == status, out.decode()
            return out.decode()

        listed = await waypost("queue", "list", "--limit", "1000")
        assert all(queue_id in listed for queue_id in queue_ids)
        assert str(MESSAGES) in await waypost("queue", "size")
        assert "manager@1" in await waypost("status")
        assert "incoming.0@1" in await waypost("export")
        assert json.loads(await waypost("export", "--now", "--json"))["rows"] >= 2 * MESSAGES
        assert json.loads(await waypost("export", "--json"))["behind_bytes"] == 0

        # The page of the metrics is one, and has the mail of all.
        page = await asyncio.to_thread(
            lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
        )
        for text in (page, await waypost("metrics")):
            assert f"waypost_queue_messages {MESSAGES}\n" in text
            assert "waypost_export_lag_bytes 0\n" in text

        # The doctor looks at each; its other findings depend on this machine.
        process = await asyncio.create_subprocess_exec(
            *(str(COMMAND), "doctor", "--json", "--config", str(core.config)), stdout=asyncio.subprocess.PIPE
        )
        findings = json.loads((await process.communicate())[0])["findings"]
        states = {(each["subject"], each["what"]): each["state"] for each in findings}
        assert {states["processes", f"shard {number}"] for number in (0, 1)} == {"good"}
        assert {states["identity", what] for what in ("queue", "queue of shard 1")} == {"good"}
        assert ("lag", "export of shard 1") in states

        await waypost("backup", "--queue", str(tmp_path / "with.tar.zst"))
        await waypost("backup", str(tmp_path / "without.tar.zst"))

        held = await waypost("queue", "hold", "--all", "--yes", "--why", "a test")
        assert f"{MESSAGES} messages" in held
        assert (await core.ask("size"))["lanes"]["hold"]["messages"] == MESSAGES


async def test_a_managed_setting_comes_into_force_in_all_shards(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running_shards(tmp_path, lab) as core:
        before = core.processes()
        await changed(core, "set", "bounce.bounce_size_limit", "40000")

        async def is_in_force() -> bool:
            found = await known(core)
            return bool(found["in_force"]) and not found["waiting"]

        await core.eventually(is_in_force, "the change to be in force")
        await core.ready()
        after = core.processes()
        assert {
            name: after[name] != before[name] for name in ("manager", "manager@1", "receiver.0", "supervisor@1")
        } == {
            "manager": True,
            "manager@1": True,
            "receiver.0": False,
            "supervisor@1": False,
        }
        for number in (0, 1):
            stored = json.loads((core.run_directory / "shards" / f"{number:02}" / "settings.json").read_text())
            assert stored["bounce"]["bounce_size_limit"] == 40000
        queue_ids = await core.send_many(6)
        await core.until_all_removed(queue_ids)
