"""Several shards on one node: mail comes to all and leaves all, the end of one stops no other, and a drain loses nothing.

law: shards-stand-alone, law: drained-before-forgotten.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from mailcore.config.known_shards import DRAINED
from mailcore.config.tuned import read as read_tuned
from mailcore.lab.lab import Lab
from mailcore.queue.queue_id import shard_of
from tests.end_to_end.appliance import alive, free_port
from tests.end_to_end.test_reload import Clients, edit, reload, reloaded
from tests.eventually import eventually
from tests.running.running_core import recipients_of, route_to
from tests.running.running_shards import RunningShards, running_shards
from tests.shares.counting_sink import sinking

MESSAGES = 40  # each goes to any shard: that one of three gets none of them happens once in four million


def addresses(number: int) -> list[str]:
    return sorted(f"m{each}@any.example" for each in range(number))


@pytest.mark.parametrize("shards", [2, 3])
async def test_mail_comes_to_all_shards_and_each_message_leaves_once(shards: int, tmp_path: Path) -> None:
    async with (
        Lab(["accept:127.0.0.1:0"]) as lab,
        running_shards(tmp_path, lab, {"receiver": {"processes": 4}}, shards=shards) as core,
    ):
        processes = core.processes()
        assert len([name for name in processes if name.startswith("receiver")]) == 4
        assert len([name for name in processes if name.startswith("manager")]) == shards
        queue_ids = await core.send_many(MESSAGES)
        assert len(set(queue_ids)) == MESSAGES
        assert {shard_of(queue_id) for queue_id in queue_ids} == set(range(shards))
        await core.until_all_removed(queue_ids)
        assert recipients_of(lab.messages) == addresses(MESSAGES)
        for number in range(shards):
            assert (await core.ask_shard(number, "size"))["messages"] == 0
            state = await core.ask_shard(number, "state")
            assert state["counters"]["accepted"] == len([each for each in queue_ids if shard_of(each) == number])


async def test_law_shares_a_limit_holds_over_all_shards_also_when_managers_are_killed(tmp_path: Path) -> None:
    """law: shares-within-limit."""
    limit = {"transports.smtp": {"destination_concurrency_limit": 5}}
    async with (
        Lab(["accept:127.0.0.1:0"]) as lab,
        sinking(takes_s=0.1) as sink,
        running_shards(tmp_path, lab, limit, shards=3, route=f"smtp:[127.0.0.1]:{sink.port}") as core,
    ):

        def more_than(taken: int, sent: int) -> bool:
            return len(sink.messages) >= min(taken + 10, sent)

        queue_ids: list[str] = []
        for name in sorted(name for name in core.processes() if name.startswith("manager")):
            queue_ids += await core.send_many(
                50, first=len(queue_ids)
            )  # on a slow machine a round may outlast its mail
            await core.kill_now(name)
            await eventually(partial(more_than, len(sink.messages), len(queue_ids)), "more mail at the next hop")
        assert {shard_of(queue_id) for queue_id in queue_ids} == {0, 1, 2}
        await core.until_all_removed(queue_ids)
        assert {each for _, each in sink.messages} == set(addresses(150))
        assert 1 < sink.most <= 5


async def test_a_shard_without_a_manager_stops_no_other_and_loses_nothing(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running_shards(tmp_path, lab) as core:
        supervisor = await core.stopped("supervisor@1")  # or there would be another manager at once
        await core.kill_now("manager@1")
        queue_ids = await core.send_many(MESSAGES)
        of_first = [each for each in queue_ids if shard_of(each) == 0]
        assert 0 < len(of_first) < MESSAGES
        await core.until_all_removed(of_first)
        assert len(lab.messages) == len(of_first)
        os.kill(supervisor, signal.SIGCONT)
        await core.until_all_removed(queue_ids)
        assert recipients_of(lab.messages) == addresses(MESSAGES)


@pytest.mark.parametrize("victim", ["supervisor@0", "supervisor@1"])
async def test_the_supervisor_of_a_shard_starts_again_and_the_others_do_not_notice(victim: str, tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running_shards(tmp_path, lab) as core:
        before = core.processes()
        suffix = "@1" if victim == "supervisor@1" else ""
        with Clients(core.port) as clients:
            await core.kill_now(victim)
            await eventually(
                lambda: (
                    core.processes().get(f"manager{suffix}", before[f"manager{suffix}"]) != before[f"manager{suffix}"]
                ),
                "a new manager",
            )
            await core.ready()
            await eventually(lambda: len(clients.acknowledged) > 20, "mail taken meanwhile and since")
        after = core.processes()
        other = "" if suffix else "@1"
        same = [f"{name}{other}" for name in ("manager", "control", "receiver.0", "deliverer.0")]
        assert {name: after[name] for name in same} == {name: before[name] for name in same}
        assert not alive(before[f"receiver.0{suffix}"])
        await core.until_accepted_is_removed()
        arrived = Counter(arrival.id for arrival in lab.messages)
        assert set(clients.acknowledged) - set(arrived) == set()


async def test_all_end_with_the_process_of_the_node_and_nothing_is_lost(tmp_path: Path) -> None:
    async with Lab(["reject(1.0, 450):127.0.0.1:0"]) as lab, running_shards(tmp_path, lab) as core:
        queue_ids = await core.send_many(MESSAGES)
        before = core.processes()
        await core.kill("supervisor")  # it waits until none of the others is alive, and starts again
        assert not any(map(alive, before.values()))
        await lab.hops[0].set_behaviour("accept")
        await core.until_all_removed(queue_ids)
        assert recipients_of(lab.messages) == addresses(MESSAGES)


async def test_a_home_with_mail_gets_more_shards_and_then_fewer_and_all_mail_leaves_once(tmp_path: Path) -> None:
    """From one to two and back: nothing moves, and the second drains before it is not started any more."""
    async with Lab(["reject(1.0, 450):127.0.0.1:0"]) as lab, running_shards(tmp_path, lab, shards=1) as core:
        assert core.numbers() == []
        assert "supervisor@0" not in core.processes()
        await core.ask("suspend", destination="smtp:suspended.example")
        alone = await core.send("alone@any.example")
        await core.until_in(alone, "retry")
        core.stop()
        core.set_shards(2)
        await core.start()
        assert core.numbers() == [0, 1]
        assert (await core.ask_shard(0, "explain", queue_id=alone))["reasons"]
        # What was set live holds for the new shard as well.
        tuned = [read_tuned(core.home / place / "tuned.toml") for place in ("", "shards/01")]
        assert tuned[0] == tuned[1] != ({}, {})
        first, second = await core.send_to(0, "first@any.example"), await core.send_to(1, "second@any.example")
        await core.order_shard(1, "hold", await core.send_to(1, "held@any.example"))
        sent = len([line for line in core.log() if line["event"] == "accepted"])
        core.stop()
        core.set_shards(1)
        await core.start()
        assert core.numbers() == [0, 1]
        names = core.processes()
        assert "receiver.0@1" not in names
        assert {"manager@1", "control@1", "deliverer.0@1"} <= names.keys()
        answer = await core.ask_shard(1, "explain", queue_id=second)
        assert answer["reasons"]
        # All new mail goes to the shard that stays.
        assert {shard_of(each) for each in await core.send_many(10)} == {0}
        await lab.hops[0].set_behaviour("accept")
        await core.until_all_removed([alone, first, second])
        mark = core.home / "shards" / "01" / DRAINED
        await asyncio.sleep(7.0)  # longer than between two looks: what is held is mail, too
        assert not mark.exists()
        (held,) = (await core.ask_shard(1, "list"))["items"]
        await core.order_shard(1, "release", held["queue_id"])
        await eventually(mark.exists, "the mark of a drained shard")
        assert len(recipients_of(lab.messages)) == sent + 10
        await core.again()
        assert core.numbers() == []
        assert "manager@1" not in core.processes()
        # The shard is used again when it is wanted, and its mark is gone before it has mail.
        core.stop()
        core.set_shards(2)
        await core.start()
        assert not mark.exists()
        await core.until_all_removed([await core.send_to(1, "again@any.example")])


async def test_a_reload_is_checked_once_and_comes_into_force_in_all_shards(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0", "accept:127.0.0.1:0"]) as lab, running_shards(tmp_path, lab) as core:
        first, second = route_to(lab, 0), route_to(lab, 1)
        before = core.processes()
        with Clients(core.port) as clients:
            edit(core, (f'"*" = "{first}"', f'"*" = "{second}"'))
            result = (await reloaded(core))["result"]
            assert (result["refused"], result["killed"], result["not_begun"]) == ([], [], [])
            await asyncio.sleep(0.3)
        assert clients.wrong == []
        await core.until_accepted_is_removed()
        arrived = Counter(arrival.id for arrival in lab.messages)
        assert set(clients.acknowledged) - set(arrived) == set()
        queue_ids = await core.send_many(MESSAGES)
        await core.until_all_removed(queue_ids)
        old = {arrival.id for arrival in lab.hops[0].messages}
        assert not old & set(queue_ids)
        after = core.processes()
        assert after["manager"] != before["manager"]
        assert after["manager@1"] != before["manager@1"]
        assert after["receiver.0@1"] == before["receiver.0@1"]

        # Fresh addresses are looked at once: each shard listens there, and finds the other already there.
        port = free_port()
        edit(core, (f'listen = ["127.0.0.1:{core.port}"]', f'listen = ["127.0.0.1:{core.port}", "127.0.0.1:{port}"]'))
        result = (await reloaded(core))["result"]
        assert (result["refused"], result["killed"], result["not_begun"]) == ([], [], [])
        taken, core.port = core.port, port
        assert {shard_of(each) for each in await core.send_many(MESSAGES)} == {0, 1}
        core.port = taken

        # A fault, and a number of shards that needs a restart, change nothing.
        now = core.processes()
        for change in (("[receiver]\n", "[receiver]\nwrong = 1\n"), ("shards = 2", "shards = 3")):
            text = core.config.read_text()
            edit(core, change)
            done = await asyncio.to_thread(reload, core)
            assert done.returncode == 2, done.stdout + done.stderr
            core.config.write_text(text)
        assert core.processes() == now


async def test_a_hanging_shard_is_killed_and_starts_again(tmp_path: Path) -> None:
    async with (
        Lab(["accept:127.0.0.1:0"]) as lab,
        running_shards(tmp_path, lab, {"supervisor": {"silent_s": 5}}) as core,
    ):
        pid = await core.stopped("supervisor@1")
        await core.until_gone(pid)
        await core.ready()
        queue_ids = [await core.send_to(0, "a@any.example"), await core.send_to(1, "b@any.example")]
        await core.until_all_removed(queue_ids)


async def test_a_shard_whose_queue_is_gone_is_not_begun_anew_and_others_work(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running_shards(tmp_path, lab) as core:
        core.stop()
        (core.home / "shards/01/queue").rename(tmp_path / "away")
        core.launch()
        await core.until(lambda: core.processes().get("manager"), "a manager")
        await core.until(core._greets, "the greeting")
        queue_ids = await core.send_many(5)
        await core.until_all_removed(queue_ids)
        assert {shard_of(each) for each in queue_ids} == {0}
        assert "shard 1:" in core._tail()
        assert not (core.home / "shards/01/queue").exists()
        (tmp_path / "away").rename(core.home / "shards/01/queue")
        await core.until(lambda: core.processes().get("manager@1"), "the manager of the other shard")
        await core.until_all_removed([await core.send_to(1, "b@any.example")])


def is_there(core: RunningShards, name: str) -> bool:
    return name in core.processes()


async def test_what_was_acknowledged_survives_kills_in_all_shards(tmp_path: Path) -> None:
    async with (
        Lab(["slow(0.01)+reject(0.1, 450):127.0.0.1:0"]) as lab,
        running_shards(tmp_path, lab, {"deliverer": {"processes": 2}}) as core,
    ):
        with Clients(core.port) as clients:
            for victim in (
                "receiver.0@1", "manager", "deliverer.0@1", "control", "manager@1", "supervisor@1", "receiver.0",
                "deliverer.0", "supervisor@0", "control@1",
            ):  # fmt: skip
                await core.until(partial(is_there, core, victim), victim)
                await core.kill_now(victim)
                await asyncio.sleep(0.2)
            await eventually(lambda: len(clients.acknowledged) > 50, "mail taken between the kills and since")
        await core.ready()
        await core.control.close()
        await core.until_empty()
        arrived = Counter(arrival.id for arrival in lab.messages)
        assert set(clients.acknowledged) - set(arrived) == set(), "acknowledged and not delivered"
        # What is in flight when a manager or a deliverer is killed may come twice: one window each, of 20.
        twice = [name for name, times in arrived.items() if times > 1]
        assert len(twice) <= 6 * 20
