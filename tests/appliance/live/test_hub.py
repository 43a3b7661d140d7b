"""The hub: what it tells of a core that runs, is killed, stopped or slow, and to how many."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.conf import settings

from appliance.common.door import async_door
from appliance.live.fragments import LivePage, Part
from appliance.live.hub import Hub, TooManyReaders
from mailcore.config.known_shards import KnownShard, forget_known, write_known
from mailcore.control.async_client import AsyncControlClient
from mailcore.faults import Code
from mailcore.lab.lab import Lab
from mailcore.manager_answers import Destinations, Size, State
from tests.answers import sample
from tests.appliance.fake_core import FakeCore, Refusal, Silence
from tests.appliance.live.answers import ages, answers, row, state
from tests.config.test_waiting import written
from tests.eventually import PATIENCE_S
from tests.running.running_core import running

Snapshot = dict[str, Any]
PAGE = LivePage(
    "all", lambda state: Part({"number": str(state.snapshot["number"])}, state.snapshot)
)  # shows everything


@contextlib.asynccontextmanager
async def listening(hub: Hub) -> AsyncIterator[Hub]:
    task = asyncio.create_task(hub.run())
    try:
        yield hub
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@contextlib.asynccontextmanager
async def ticking(hub: Hub) -> AsyncIterator[Hub]:
    """Asks only when the test says so."""
    try:
        yield hub
    finally:
        await hub.close()


def quick(**named: Any) -> Hub:
    return Hub(
        lambda timeout_s: async_door("test", timeout_s, skips_silent=True),
        **{"tick_s": 0.02, "patience_s": 0.2} | named,
    )


def patient(**named: Any) -> Hub:
    """For tests whose core always answers, however busy the machine."""
    return quick(**{"patience_s": 30.0} | named)


def decoded(event: bytes) -> Snapshot:
    kind, data = event.decode().rstrip("\n").split("\n")
    assert kind == "event: live"
    snapshot: Snapshot = json.loads(data.removeprefix("data: "))
    return snapshot


async def until(hub: Hub, true: Callable[[Snapshot], bool]) -> Snapshot:
    """The first snapshot of a new reader for which this holds."""
    async with asyncio.timeout(PATIENCE_S), contextlib.aclosing(hub.stream(PAGE)) as events:
        async for event in events:
            if not event.startswith(b":") and true(decoded(event)):
                return decoded(event)
    raise AssertionError("the stream ended")


# -- what is told


async def test_a_reader_gets_the_state_of_the_core() -> None:
    with FakeCore(answers()):
        async with listening(quick()) as hub:
            snapshot = await until(hub, lambda told: bool(told["core"]["running"]))
    assert snapshot["queue"]["messages"] == 3
    assert list(snapshot["queue"]["lanes"]) == ["incoming.0", "retry.60", "retry.300"]
    assert snapshot["queue"]["lanes"]["retry.300"] == {"messages": 3, "recipients": 7, "interval_s": 300}
    assert snapshot["processes"] == [{"name": "manager", "pid": 10, "since": 1_000_000.0, "restarts": 2}]
    assert snapshot["core"]["words"] == "running"


async def test_disks_and_the_oldest_message_are_told_when_they_are_known() -> None:
    oldest = {"queue_id": "abc", "arrived_at": 5.0, "sender": "a\u202eb@x.example", "destination": "smtp:x.example"}
    with FakeCore(answers(ages=ages(oldest, as_of=6.0))):
        async with listening(quick()) as hub:
            snapshot = await until(hub, lambda told: bool(told["oldest"]))
    assert snapshot["disks"][0]["free_bytes"] == 40
    assert snapshot["oldest"]["sender"] == "a\\u202eb@x.example"
    assert snapshot["oldest"]["url"] == "/queue/search/?q=abc"
    assert snapshot["oldest_as_of"] == 6.0


async def test_rates_are_what_was_counted_in_between_over_a_restart_of_the_manager_too() -> None:
    now = [5_000.0]
    with FakeCore(answers()) as core:
        async with ticking(patient(wall=lambda: now[0])) as hub:
            core.answers["state"] = state(accepted=1_000)  # before we were there: nobody's rate
            await hub.tick()
            assert hub.snapshot["rates"]["accepted"] == 0
            now[0] += 30
            core.answers["state"] = state(accepted=1_030, delivered=10)
            await hub.tick()
            assert hub.snapshot["rates"]["accepted"] == 60
            now[0] += 30
            core.answers["state"] = state(started_at=2_000_000.0, accepted=6)  # another manager counts from nothing
            await hub.tick()
    assert hub.snapshot["rates"]["accepted"] == 36
    assert hub.snapshot["pace"]["accepted"] == 12
    assert hub.lines()["t"] == [5_000.0, 5_030.0, 5_060.0]
    assert hub.lines()["accepted"] == [None, 60.0, 12.0]
    assert hub.lines()["delivered"] == [None, 20.0, 0.0]


async def test_a_clock_that_jumps_back_makes_no_line_that_does() -> None:
    now = [5_000.0]
    with FakeCore(answers()):
        async with ticking(patient(wall=lambda: now[0])) as hub:
            for at in (5_000.0, 5_001.0, 100.0, 101.0):
                now[0] = at
                await hub.tick()
    assert hub.lines()["t"] == [100.0, 101.0]


async def test_destinations_have_lines_of_their_own_and_there_are_only_so_many() -> None:
    many = {f"smtp:d{number}.example": row(window=number % 7, success=0.5) for number in range(500)}
    queued = {name: number for number, name in enumerate(many)}
    with FakeCore(answers(destinations={"destinations": many, "without_mail": {}, "queued": queued, "suspended": {}})):
        async with ticking(patient()) as hub:
            for _ in range(3):
                await hub.tick()
                await asyncio.sleep(0.002)
    assert len(hub.snapshot["destinations"]) == 100
    assert next(iter(hub.snapshot["destinations"])) == "smtp:d499.example"  # the one with the most mail
    assert hub.destination_lines("smtp:d499.example")["window"] == [499 % 7] * 3
    assert hub.destination_lines("smtp:d0.example")["t"] == []
    assert hub.destination_lines("smtp:d499.example")["success"] == [0.5] * 3


async def test_destinations_in_trouble_come_with_the_reason_in_the_remotes_own_words() -> None:
    reply = {"at": 3.0, "reply": "451 <b>no\x1b[31m", "status": "deferred", "dsn": "4.0.0", "relay": "", "times": 2}
    told: dict[str, dict[str, Any]] = {
        "destinations": {
            "smtp:good.example": row(),
            "smtp:bad.example": row(delivered=2, deferred=18, recent_share=0.1, last_replies=[reply]),
            "smtp:dead.example": row(reason="connection refused"),
        },
        "without_mail": {},
        "queued": {"smtp:good.example": 40, "smtp:bad.example": 4},
        "suspended": {"smtp:held.example": None},
        "states": {
            "smtp:good.example": [["delivering", None]],
            "smtp:bad.example": [["failing", None], ["window full", None]],
            "smtp:dead.example": [["dead", 9_000.0]],
        },
    }
    told["queued"]["smtp:held.example"] = 1
    told["states"]["smtp:held.example"] = [["suspended", None]]
    with FakeCore(answers(destinations=told)):
        async with ticking(patient()) as hub:
            await hub.tick()
    trouble = {each["name"]: each for each in hub.snapshot["trouble"]}
    assert {name: [badge["words"] for badge in each["badges"]] for name, each in trouble.items()} == {
        "smtp:dead.example": ["dead"],
        "smtp:held.example": ["suspended"],
        "smtp:bad.example": ["failing", "window full"],
    }
    assert list(trouble) == ["smtp:dead.example", "smtp:held.example", "smtp:bad.example"]
    assert trouble["smtp:dead.example"]["badges"][0]["until"] == 9_000.0
    assert trouble["smtp:dead.example"]["reason"] == "connection refused"
    assert trouble["smtp:bad.example"]["reason"] == "451 <b>no\\x1b[31m"
    assert trouble["smtp:bad.example"]["success_share"] == 0.1
    assert trouble["smtp:bad.example"]["url"] == "/destinations/smtp:bad.example/"


# -- a core that does not answer


async def test_a_core_that_never_was_there_is_told_as_such() -> None:
    async with listening(quick()) as hub:
        snapshot = await until(hub, lambda told: told["core"]["words"] == "not running")
    assert not snapshot["core"]["running"]
    assert snapshot["core"]["as_of"] is None
    assert snapshot["queue"] is None


async def test_a_spare_says_that_it_waits_and_where_its_shard_is() -> None:
    run = Path(settings.CONTROL_SOCKET).parent
    written(run, os.getpid(), "owner")
    try:
        async with listening(quick()) as hub:
            snapshot = await until(hub, lambda told: told["core"]["words"] == "spare")
            written(run, os.getpid(), "owner", is_in_order=False)
            await until(hub, lambda told: told["core"]["words"] == "waits")
    finally:
        (run / "children.json").unlink()
    assert snapshot["core"]["notice"] == "This node waits: shard north belongs to mx1; this node is its spare."
    assert snapshot["processes"] == []


async def test_a_node_that_waits_and_is_no_spare_says_so_though_another_shard_answers() -> None:
    run = Path(settings.CONTROL_SOCKET).parent
    try:
        with FakeCore(answers()):
            async with listening(quick()) as hub:
                await until(hub, lambda told: told["core"]["running"] and not told["core"]["waits"])
                written(run / "shards" / "00", os.getpid(), "owner", is_in_order=False)
                snapshot = await until(hub, lambda told: bool(told["core"]["waits"]))
                assert snapshot["core"]["running"]
                written(run / "shards" / "00", os.getpid(), "owner", is_in_order=True)
                await until(hub, lambda told: not told["core"]["waits"])
    finally:
        (run / "shards" / "00" / "children.json").unlink()


async def test_a_manager_that_is_away_is_told_and_what_was_known_stays_with_its_age() -> None:
    with FakeCore(answers()) as core:
        async with listening(quick()) as hub:
            known = await until(hub, lambda told: bool(told["core"]["running"]))
            core.answers["state"] = Refusal("the manager is away; its place is <taken>")
            snapshot = await until(hub, lambda told: told["core"]["words"] == "manager away")
            later = await until(hub, lambda told: told["core"]["age_s"] > snapshot["core"]["age_s"])
    assert "its place is <taken>" in snapshot["core"]["notice"]
    assert snapshot["queue"] == known["queue"]
    assert known["core"]["as_of"] <= snapshot["core"]["as_of"] == later["core"]["as_of"]


async def test_a_core_that_is_not_understood_ends_nothing() -> None:
    given = answers()
    with FakeCore(given) as core:
        async with listening(quick()) as hub:
            as_of = (await until(hub, lambda snapshot: snapshot["core"]["running"]))["core"]["as_of"]
            core.answers |= {"state": {"counters": {}}, "disks": [], "ages": {}}
            puzzled = await until(hub, lambda snapshot: snapshot["core"]["words"] == "not understood")
            assert "same version" in puzzled["core"]["notice"]
            assert puzzled["core"]["as_of"] >= as_of
            assert puzzled["queue"] is not None, "what was known stays"
            core.answers |= given
            await until(hub, lambda snapshot: snapshot["core"]["running"])


async def test_a_core_that_does_not_answer_is_given_up_after_its_time_and_not_asked_twice_at_once() -> None:
    with FakeCore(answers(size=Silence())) as core:
        async with listening(quick()) as hub:
            await until(hub, lambda told: told["core"]["words"] == "no answer")
            assert len(core.asked("size")) <= 2
            core.answers["size"] = answers()["size"]
            await until(hub, lambda told: bool(told["core"]["running"]))


async def test_slow_answers_about_ages_hold_up_nothing() -> None:
    with FakeCore(answers(ages=Silence())):
        async with listening(quick()) as hub:
            first = await until(hub, lambda told: bool(told["disks"]))
            await until(hub, lambda told: told["core"]["running"] and told["number"] > first["number"] + 5)


@pytest.mark.parametrize("name", ["manager", "control"])
async def test_a_real_core_stopped_killed_and_back(tmp_path: Path, name: str) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        socket = core.home / "run" / "control.sock"
        hub = Hub(lambda timeout_s: AsyncControlClient(socket, timeout_s=timeout_s), tick_s=0.05, patience_s=0.5)
        async with listening(hub):
            await core.send("a@example.org")
            await until(hub, lambda told: told["core"]["running"] and told["totals"]["delivered"] == 1)
            pid = core.processes()[name]
            os.kill(pid, signal.SIGSTOP)
            try:
                snapshot = await until(hub, lambda told: told["core"]["words"] == "no answer")
                assert snapshot["totals"]["delivered"] == 1
            finally:
                os.kill(pid, signal.SIGCONT)
            await until(hub, lambda told: bool(told["core"]["running"]))
            core.stop()
            snapshot = await until(hub, lambda told: told["core"]["words"] == "not running")
            assert {each["pid"] for each in snapshot["processes"]} == {None}
            await core.start()
            snapshot = await until(hub, lambda told: bool(told["core"]["running"]))
            assert snapshot["totals"]["delivered"] == 1, "the counts continue over a restart"


# -- several shards


@contextlib.contextmanager
def shards(*each: dict[str, Any]) -> Iterator[list[FakeCore]]:
    """Some shards of this node, each with its answers."""
    run = Path(settings.CONTROL_SOCKET).parent
    run.mkdir(parents=True, exist_ok=True)
    known = [KnownShard(number, run / "shards" / f"{number:02}", True) for number in range(len(each))]
    with contextlib.ExitStack() as stack:
        cores = []
        for shard, given in zip(known, each, strict=True):
            (shard.run_directory / "control.sock").unlink(missing_ok=True)
            cores.append(stack.enter_context(FakeCore(given, shard.run_directory / "control.sock")))
        stack.callback(forget_known, run)
        write_known(run, known)
        yield cores


def whole() -> dict[str, Any]:
    """What the control process of a shard answers, with the fields that have a default."""
    told = answers(ping={"pid": 1, "manager": True})
    found = {
        "state": sample(State, told["state"]),
        "size": sample(Size, told["size"]),
        "destinations": sample(Destinations, told["destinations"]),
    }
    return told | {name: msgspec.to_builtins(answer) for name, answer in found.items()}


async def test_a_shard_that_hangs_is_waited_for_once_and_the_others_stay_fresh() -> None:
    """law: silent-is-unknown. Before, each question of a round waited for it, and all of the page was said to be unknown."""
    with shards(whole(), whole(), whole()) as (one, hanging, other):
        async with listening(quick(patience_s=1.0)) as hub:
            await until(hub, lambda told: told["core"]["running"] and not told["core"]["unanswered"])
            hanging.answers |= dict.fromkeys(("state", "size", "destinations"), Silence())
            begun = await until(hub, lambda told: told["core"]["running"] and bool(told["core"]["unanswered"]))
            asked_before = len(hanging.requests)
            for core in (one, other):
                core.answers["size"] = whole()["size"] | {"messages": 5}
            later = await until(
                hub, lambda told: told["number"] >= begun["number"] + 20 and told["queue"]["messages"] == 10
            )
            assert later["core"]["running"], "no round was given up"
            assert "shard 1 does not answer" in later["core"]["unanswered"]
            assert [row["messages"] for row in later["shards"]] == [5, None, 5]
            mail = [each for each in hanging.requests[asked_before:] if each.operation not in ("ping", "disks", "ages")]
            assert len(mail) <= 2, "in twenty rounds the probe alone asks it"


async def test_counts_of_a_shard_that_falls_silent_or_is_back_are_no_rate_and_its_mail_is_a_gap() -> None:
    """law: silent-is-unknown."""
    now, one, other = [5_000.0], whole(), whole()
    one["state"]["totals"]["recipients_delivered"], other["state"]["totals"]["recipients_delivered"] = 100, 9_000
    queue = {"smtp:a.example": 3}
    for each in (one, other):
        each["destinations"]["queued"] = queue
    with shards(one, other) as (_, second):
        async with ticking(quick(patience_s=1.0, wall=lambda: now[0])) as hub:
            await hub.tick()
            for silent, delivered in ((False, 110), (True, 120), (True, 130), (False, 140)):
                now[0] += 10
                one["state"]["totals"]["recipients_delivered"] = delivered
                away = Refusal("the manager is away", Code.UNAVAILABLE)
                second.answers |= dict.fromkeys(("size", "destinations"), away) if silent else other
                second.answers["state"] = away if silent else other["state"]
                await hub.tick()
                assert bool(hub.snapshot["core"]["unanswered"]) is silent
            second.answers["destinations"] = Refusal("busy", Code.BUSY)
            now[0] += 10
            await hub.tick()
            assert "shard 1 does not answer" in hub.snapshot["core"]["unanswered"]
    lines = hub.lines()
    assert lines["delivered"] == [None, 60.0, 0.0, 60.0, 0.0, 0.0], "none of the 9000 of the other one"
    assert lines["messages"] == [6.0, 6.0, None, None, 6.0, None]
    assert hub.destination_lines("smtp:a.example")["queued"] == [6.0, 6.0, None, None, 6.0, None]


async def test_a_shard_that_hung_is_asked_again_as_soon_as_it_answers() -> None:
    wakes, hung = threading.Event(), whole()

    def late(_: dict[str, Any]) -> Any:
        wakes.wait(PATIENCE_S)
        return whole()["state"]

    hung["state"] = late
    with shards(whole(), hung) as _:
        async with listening(quick()) as hub:
            await until(hub, lambda told: told["core"]["running"] and bool(told["core"]["unanswered"]))
            wakes.set()
            told = await until(hub, lambda told: told["core"]["running"] and not told["core"]["unanswered"])
            assert [row["messages"] for row in told["shards"]] == [3, 3]


# -- readers


async def test_two_readers_cost_the_core_as_much_as_one_and_none_next_to_nothing() -> None:
    with FakeCore(answers()) as core:
        async with listening(quick()) as hub:
            first, second = await asyncio.gather(
                until(hub, lambda told: told["number"] >= 10), until(hub, lambda told: told["number"] >= 10)
            )
            assert first == second
            assert len(core.asked("state")) <= hub.snapshot["number"]
            await asyncio.sleep(0.1)  # nobody reads: the tick under way may end, then it rests ten times as long
            before = hub.snapshot["number"]
            await asyncio.sleep(0.1)
            assert hub.snapshot["number"] <= before + 1
            await until(hub, lambda told: told["number"] > before + 1)  # and it is awake at once


async def test_a_reader_that_goes_away_is_forgotten() -> None:
    with FakeCore(answers()):
        async with listening(quick()) as hub:
            events = hub.stream(PAGE)
            await anext(events)
            assert hub.readers == 1
            await events.aclose()
            assert hub.readers == 0
            assert not hub._channels  # a page without readers is not rendered


async def test_a_slow_reader_misses_snapshots_and_holds_up_nobody() -> None:
    with FakeCore(answers()):
        async with listening(quick()) as hub:
            events = hub.stream(PAGE)
            first = decoded(await anext(events))
            await until(hub, lambda told: told["number"] >= first["number"] + 5)
            assert decoded(await anext(events))["number"] >= first["number"] + 5
            await events.aclose()


async def test_there_are_only_so_many_readers() -> None:
    with FakeCore(answers()):
        async with listening(quick(readers_max=1)) as hub:
            events = hub.stream(PAGE)
            await anext(events)
            with pytest.raises(TooManyReaders):
                await anext(hub.stream(PAGE))
            await events.aclose()
            await until(hub, lambda told: True)


async def test_streams_end_when_the_server_does() -> None:
    with FakeCore(answers()):
        async with listening(quick()) as hub:
            async with asyncio.timeout(PATIENCE_S):
                async for _ in hub.stream(PAGE):
                    hub.end()


# -- what is kept


class Kept:
    def __init__(self, known: Snapshot | None = None, fails: bool = False) -> None:
        self.known = known
        self.fails = fails
        self.snapshots: list[Snapshot] = []

    def load(self) -> Snapshot | None:
        return self.known

    def keep(self, snapshot: Snapshot) -> None:
        self.snapshots.append(snapshot)
        if self.fails:
            raise OSError("the database is away")


async def test_a_minute_is_kept_once_and_a_database_that_is_away_ends_nothing() -> None:
    now = [6_000.0]
    kept = Kept(fails=True)
    with FakeCore(answers()):
        async with ticking(quick(wall=lambda: now[0], keeper=kept)) as hub:
            for now[0] in (6_000.0, 6_030.0, 6_059.0, 6_061.0, 6_119.0):
                await hub.tick()
    assert [snapshot["core"]["as_of"] for snapshot in kept.snapshots] == [6_000.0, 6_061.0]


async def test_what_was_known_last_is_shown_after_a_restart_while_the_core_is_away() -> None:
    with FakeCore(answers()):
        async with ticking(quick()) as first:
            await first.tick()
    async with listening(quick(keeper=Kept(json.loads(json.dumps(first.snapshot))))) as hub:
        snapshot = await until(hub, lambda told: told["core"]["words"] == "not running")
    assert snapshot["queue"] == first.snapshot["queue"]
    assert snapshot["core"]["as_of"] == first.snapshot["core"]["as_of"]
