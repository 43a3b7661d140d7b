"""Two operators change the same recipients at once, in contrary ways, and the manager is killed meanwhile.

Both answers add up, each recipient ends in the state that one of them ordered, and no other recipient changes."""

from __future__ import annotations

import asyncio
import smtplib
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mailcore.control.async_client import AsyncControlClient
from mailcore.control.client import ControlError
from mailcore.faults import Code
from mailcore.lab.lab import Lab
from tests.eventually import PATIENCE_S
from tests.running.running_core import DATA, RunningCore, Sections, recipients_of, running

MESSAGES = 300
TIMES = 6
NEVER = "reject(1, 451)"
LONG: Sections = {
    "queue": {"retry_ladder_s": [600]},
    "scheduler": {"minimal_backoff_time": 600, "maximal_backoff_time": 600},
}


def x(number: int) -> str:
    return f"x{number}@one.example"


def y(number: int) -> str:
    return f"y{number}@two.example"


def send_all(port: int) -> None:
    with smtplib.SMTP("127.0.0.1", port, timeout=PATIENCE_S) as client:
        for number in range(MESSAGES):
            assert not client.sendmail("author@sender.example", [x(number), y(number)], DATA)


async def until_at_rest(core: RunningCore) -> None:
    """Waits until no message moves: a released recipient is tried again, and then waits again."""

    async def resting() -> bool:
        items = [*await core.listed(), *await core.listed(lane="deleted")]
        return len(items) == MESSAGES and all(item["state"] != "active" for item in items)

    await core.eventually(resting, "all messages to rest")


async def states(core: RunningCore) -> dict[str, str]:
    """The state of each queued recipient by address: "held", "deleted", or "" of the others."""
    found: dict[str, str] = {}
    for item in [*await core.listed(), *await core.listed(lane="deleted")]:
        parts = [part async for part in core.control.parts("show", {"queue_id": item["queue_id"]})]
        for each in (each for part in parts for each in part.get("recipients") or ()):
            assert each["address"] not in found, f"{each['address']} is there twice"
            found[each["address"]] = each["state"] if each["state"] in ("held", "deleted") else ""
    return found


async def operator(core: RunningCore, change: str) -> list[dict[str, Any]]:
    """One change to all that match, made until it changed something twice, also when the manager goes away under it."""
    client = AsyncControlClient(core.home / "run" / "control.sock", who=change, timeout_s=PATIENCE_S)
    answers: list[dict[str, Any]] = []
    try:
        while len(answers) < TIMES and sum(made["changed"] > 0 for made in answers) < 2:
            try:
                given = {"change": change, "filter": {"recipient": "x*"}}
                made: dict[str, Any] = await client.call("change_matching", given, why=f"{change} it")
            except ControlError:
                await core.ready()
                continue
            assert made["changed"] + made["failed"] == made["matched"] <= MESSAGES, made
            assert made["changed_recipients"] <= made["matched_recipients"] == made["matched"], made
            answers.append(made)
    finally:
        await client.close()
    return answers


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("hold", "delete"),
        pytest.param("hold", "release", marks=pytest.mark.long),
        pytest.param("delete", "undelete", marks=pytest.mark.long),
    ],
)
async def test_each_recipient_ends_as_one_of_two_operators_said(tmp_path: Path, first: str, second: str) -> None:
    async with Lab([f"{NEVER}:127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as core:
        await asyncio.to_thread(send_all, core.port)

        async def resting() -> bool:
            lanes = (await core.ask("size"))["lanes"]
            return bool(list(lanes) == ["retry.600"] and lanes["retry.600"]["messages"] == MESSAGES)

        await core.eventually(resting, "all messages in the retry lane")
        both = [asyncio.create_task(operator(core, change)) for change in (first, second)]

        async def begun() -> bool:
            return bool(sum(line["event"] == "administered" for line in core.log()) > MESSAGES // 2)

        await core.eventually(begun, "half of the first change")
        await core.kill("manager")
        answers = await asyncio.gather(*both)
        told = [(made["matched"], made["changed"], made["failed"]) for some in answers for made in some]
        await until_at_rest(core)
        found = await states(core)
        assert found.keys() == {of(number) for number in range(MESSAGES) for of in (x, y)}
        assert {found[y(number)] for number in range(MESSAGES)} == {""}
        ends = {"hold": "held", "delete": "deleted"}
        assert {found[x(number)] for number in range(MESSAGES)} <= {ends.get(first, ""), ends.get(second, "")}
        await lab.hops[0].set_behaviour("accept")
        await core.ask("change_matching", change="retry", filter={"recipient": "y*"})
        await core.ask(
            "change_matching", change="retry", filter={"recipient": "x*"}
        )  # those who wait in a message that is due
        free = [address for address, state in found.items() if not state]

        async def delivered() -> bool:
            return len(recipients_of(lab.messages)) >= len(free)

        await core.eventually(delivered, f"{len(free)} deliveries after {told}")
        assert recipients_of(lab.messages) == sorted(free)
        held = sum(state == "held" for state in found.values())

        async def counted() -> bool:
            return int((await core.size())["recipients"]) == held

        await core.eventually(counted, f"{held} recipients held and nothing else")
        balance = (await core.ask("state"))["balance"]
        assert balance["recipients"]["difference"] == balance["messages"]["difference"] == 0


# -- the whole of a large queue

MANY = 50_000
ROUNDS = 10
PAIRS = (("hold", "delete"), ("hold", "release"), ("delete", "undelete"), ("hold", "undelete"), ("delete", "release"))
ENDS = {"hold": "hold", "delete": "deleted"}  # a change -> the lane that it moves to; otherwise a retry lane


def send_many(port: int, begin: int, end: int) -> None:
    with smtplib.SMTP("127.0.0.1", port, timeout=PATIENCE_S) as client:
        for number in range(begin, end):
            assert not client.sendmail("author@sender.example", [x(number)], DATA)


async def lanes(core: RunningCore) -> Counter[str]:
    """The number of messages by lane, once none moves: then each is in one list, and only once."""
    state = await core.ask("state")
    items = [] if state["active_messages"] else [*await core.listed(), *await core.listed(lane="deleted")]
    if len(items) != MANY or len({item["queue_id"] for item in items}) != MANY:
        return Counter()
    return Counter("retry" if item["lane"].startswith("retry.") else item["lane"] for item in items)


def changed_in(core: RunningCore) -> int:
    """The number of changes of messages so far."""
    return (core.home / "log" / "mail.jsonl").read_bytes().count(b'"event":"administered"')


async def more_than(core: RunningCore, changes: int) -> bool:
    return changed_in(core) > changes


async def to_all(core: RunningCore, change: str) -> dict[str, Any]:
    """One change to all that match, once; its answer counts each message once, whatever happened to the manager."""
    client = AsyncControlClient(core.home / "run" / "control.sock", who=change, timeout_s=PATIENCE_S)
    try:
        given = {"change": change, "filter": {"sender": "author@*"}}
        made: dict[str, Any] = await client.call("change_matching", given, why=f"{change} all")
    finally:
        await client.close()
    assert made["changed"] + made["failed"] == made["matched"] <= MANY, made
    assert sum(made["failures"].values()) == made["failed"], made
    return made


@pytest.mark.long
@pytest.mark.timeout(3_600)
async def test_two_contrary_changes_of_a_large_queue_ten_times(tmp_path: Path) -> None:
    """Every message ends in the state of one of the two, and both answers add up; each second time the manager is killed."""
    async with Lab([f"{NEVER}:127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as core:
        await asyncio.gather(
            *(asyncio.to_thread(send_many, core.port, at, at + MANY // 10) for at in range(0, MANY, MANY // 10))
        )

        async def resting() -> bool:
            size = await core.ask("size")
            return bool(size["lanes"].get("retry.600", {}).get("messages") == MANY)

        await core.eventually(resting, "all messages in the retry lane")
        for number in range(ROUNDS):
            first, second = PAIRS[number % len(PAIRS)]
            before = changed_in(core)
            both = [asyncio.create_task(to_all(core, first))]
            await core.eventually(partial(more_than, core, before + MANY // 4), "a quarter of the first change")
            both.append(asyncio.create_task(to_all(core, second)))
            if number % 2:
                await core.eventually(partial(more_than, core, before + MANY // 2), "a half of it")
                await core.kill("manager")
            told = [(made["matched"], made["changed"], made["failures"]) for made in await asyncio.gather(*both)]
            print(number, first, second, told, flush=True)

            found = await core.eventually(partial(lanes, core), "all messages to rest")
            print(number, dict(found), flush=True)
            away = {Code.UNAVAILABLE, Code.OUTCOME_UNKNOWN, Code.BUSY}
            unreached = {"retry"} if any(away & failures.keys() for _, _, failures in told) else set()
            assert found.keys() <= {ENDS.get(first, "retry"), ENDS.get(second, "retry")} | unreached
            for change in ("undelete", "release"):  # as at the beginning
                made = await to_all(core, change)
                assert not made["failed"], (change, made["failures"], list(made["errors"].values())[:3])
            found = await core.eventually(partial(lanes, core), "all messages to rest again")
            assert found == {"retry": MANY}
