"""A state is the same wherever it is shown: a real core is brought into each, and every surface is read as a person reads it.

The surfaces of a destination are ``destination list``, the list of destinations, its own page and the overview. Those of a
message are ``queue list``, ``queue show``, ``queue explain`` and ``queue search``, the portal's list, page of the message,
search and CSV file, and its recipients on both pages.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
from django.template.loader import render_to_string
from django.test import override_settings

from appliance.common.door import async_door, door_of
from appliance.destinations.streams import live_destination, live_list
from appliance.live.fragments import LiveState
from appliance.live.hub import Hub
from appliance.queue.browsing import Place, read_on
from appliance.queue.export import COLUMNS, cells
from appliance.queue.filters import FilterForm
from appliance.queue.message import message_of
from appliance.status.overview_views import live_part
from mailcore.cli.main import main
from mailcore.control.protocol.messages import SearchPart
from mailcore.lab.lab import Lab
from mailcore.manager_answers import Destinations
from tests.running.running_core import RunningCore, Sections, route_to, running

SLOW_RETRIES: Sections = {
    "queue": {"retry_ladder_s": [600], "checkpoint_interval_s": 0.1},
    "scheduler": {"minimal_backoff_time": 600.0, "maximal_backoff_time": 600.0},
    "transports.smtp": {"initial_destination_concurrency": 1},  # so that one failure is a cohort
}


@pytest.fixture(autouse=True)
def no_alerts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The overview is rendered without the portal's database, which a page reads in a thread."""
    monkeypatch.setattr("appliance.status.overview_views.open_alerts", lambda: None)


def with_transport(**values: object) -> dict[str, Mapping[str, object]]:
    return {**SLOW_RETRIES, "transports.smtp": values}


# -- destinations


class OfDestination(NamedTuple):
    """How a destination gets into a state: what its next hop does, and what is done."""

    state: str
    behaviour: str
    prepare: Callable[[RunningCore, str], Awaitable[object]]
    in_trouble: bool
    sections: Sections = SLOW_RETRIES


async def send_one(core: RunningCore, name: str) -> None:
    await core.send("a@example.org")


async def deliver_one(core: RunningCore, name: str) -> None:
    await core.send("a@example.org")
    await core.until_empty()


async def fail_mostly(core: RunningCore, name: str) -> None:
    """One of 25 is delivered: 4 per cent."""
    for number in range(12):
        await core.send(f"a{number}@example.org", f"b{number}@example.org")
    await core.send("good@example.org")


async def suspend_what_waits(core: RunningCore, name: str) -> None:
    """The mail is in the retry lane: the scheduler does not know of its destination."""
    await core.until_in(await core.send("a@example.org"), "retry")
    await core.ask("suspend", destination=name, until=None)


async def deliver_one_of_two(core: RunningCore, name: str) -> None:
    await core.send("a@example.org")
    await core.send("b@example.org")


async def send_two(core: RunningCore, name: str) -> None:
    await core.send("a@example.org")
    await core.until_in_flight()
    await core.send("b@example.org")


DESTINATIONS = [
    OfDestination("dead", "close(connect):127.0.0.1:0", send_one, True),
    OfDestination("suspended", "reject(1, 450):127.0.0.1:0", suspend_what_waits, True),
    OfDestination("failing", "reject(?*[0-9]@*, 450):127.0.0.1:0", fail_mostly, True),
    OfDestination("delivering", "slow(100):127.0.0.1:0", send_one, False, with_transport()),
    OfDestination(
        "window full", "slow(100):127.0.0.1:0", send_two, False, with_transport(destination_concurrency_limit=1)
    ),
    OfDestination(
        "rate delay", "accept:127.0.0.1:0", deliver_one_of_two, False, with_transport(destination_rate_delay=600.0)
    ),
    OfDestination(
        "transport rate delay",
        "accept:127.0.0.1:0",
        deliver_one_of_two,
        False,
        with_transport(transport_rate_delay=600.0),
    ),
    OfDestination("ready", "accept:127.0.0.1:0", deliver_one, False),
]


@pytest.mark.parametrize("case", DESTINATIONS, ids=lambda case: case.state)
async def test_a_destination_has_one_state_on_every_surface(
    tmp_path: Path, case: OfDestination, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Lab([case.behaviour]) as lab, running(tmp_path, lab, case.sections) as core:
        name = route_to(lab, 0)
        await case.prepare(core, name)

        async def there() -> bool:
            words = await destination_words(core, name, capsys)
            return words["command line"].startswith(case.state)

        await core.eventually(there, f"the state {case.state!r} in `destination list`")
        words = await destination_words(core, name, capsys)  # all of them after it came about
        in_trouble = words.pop("overview")
        assert {surface: said.startswith(case.state) for surface, said in words.items()} == dict.fromkeys(
            words, True
        ), words
        assert in_trouble.startswith(case.state if case.in_trouble else "not in trouble"), in_trouble


async def destination_words(core: RunningCore, name: str, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Returns what each surface says of the destination."""
    with override_settings(CONTROL_SOCKET=core.home / "run" / "control.sock"):
        hub = Hub(lambda timeout_s: async_door("test", timeout_s))
        await hub.tick()
        await hub.close()
    capsys.readouterr()
    await asyncio.to_thread(main, ["destination", "list", "--config", str(core.config)])
    lines = [line.split(None, 4) for line in capsys.readouterr().out.splitlines()]
    state = LiveState(hub.snapshot, await core.control.ask("destinations", Destinations, {"limit": 100}))
    trouble = live_part(state).fragments["trouble"]
    _, found, row = trouble.partition(f'data-key="{name}"')
    return {
        "command line": next((line[4] for line in lines if line[0] == name and len(line) > 4), ""),
        "list of destinations": badges_in(live_list(state).fragments[f"states@{name}"]),
        "its page": badges_in(live_destination(state, name=name).fragments["destination-states"]),
        "overview": badges_in(row.partition("</tr>")[0]) if found else "not in trouble",
    }


def badges_in(html: str) -> str:
    badges = re.findall(r'class="badge[^>]*>(.*?)</span>', html, re.DOTALL)
    return ", ".join(" ".join(re.sub("<[^>]*>", "", badge).split()) for badge in badges)


# -- messages


class OfMessage(NamedTuple):
    """How a message gets into a state: what its next hop does, and what is done. ``others``: recipients in other states."""

    name: str
    state: str
    prepare: Callable[[RunningCore, str], Awaitable[str]]
    behaviour: str = "accept:127.0.0.1:0"
    others: str = ""
    sections: Sections = SLOW_RETRIES


async def wait_for_suspended(core: RunningCore, name: str) -> str:
    await core.ask("suspend", destination=name, until=None)
    return await core.send("a@example.org", "b@example.org")


async def wait_for_one_in_flight(core: RunningCore, name: str) -> str:
    await core.send("a@example.org")
    await core.until_in_flight()
    return await core.send("b@example.org")


async def wait_for_the_rate_delay(core: RunningCore, name: str) -> str:
    await core.until_removed(await core.send("a@example.org"))
    return await core.send("b@example.org")


async def be_delivered(core: RunningCore, name: str) -> str:
    queue_id = await core.send("a@example.org")
    await core.until_in_flight()
    return queue_id


async def be_deferred(core: RunningCore, name: str) -> str:
    queue_id = await core.send("a@example.org", "b@example.org")
    await core.until_in(queue_id, "retry")
    return queue_id


async def be_held(core: RunningCore, name: str) -> str:
    queue_id = await be_deferred(core, name)
    await core.order("hold", queue_id, why="a question")
    await core.until_in(queue_id, "hold")
    return queue_id


async def be_held_in_part(core: RunningCore, name: str) -> str:
    queue_id = await be_deferred(core, name)
    [held] = [part async for part in core.control.parts("change_matching", HOLD_B) if part["done"]]
    assert held["changed_recipients"] == 1
    await core.until_in(queue_id, "retry")
    return queue_id


async def be_delayed(core: RunningCore, name: str) -> str:
    queue_id = await be_deferred(core, name)
    await core.order("delay", queue_id, until=time.time() + HOUR_S)
    await core.until_in(queue_id, "retry")
    return queue_id


async def be_scheduled(core: RunningCore, name: str) -> str:
    queue_id = await core.inject("a@example.org", not_before=time.time() + HOUR_S)
    await core.until_in(queue_id, "retry")
    return queue_id


async def be_deleted(core: RunningCore, name: str) -> str:
    queue_id = await be_deferred(core, name)
    await core.order("delete", queue_id, why="spam")
    await core.until_in(queue_id, "deleted", deleted=True)
    return queue_id


HOUR_S = 3_600
HOLD_B = {"change": "hold", "filter": {"recipient": "b@example.org"}}
LATER = "reject(1, 450):127.0.0.1:0"
ONE_AT_ONCE = with_transport(destination_concurrency_limit=1)
MESSAGES = [
    OfMessage("scheduled by its sender", "delayed", be_scheduled),
    OfMessage("suspended destination", "suspended", wait_for_suspended),  # nothing is delivered after it
    OfMessage("being delivered", "delivering", be_delivered, "slow(100):127.0.0.1:0", sections=with_transport()),
    OfMessage(
        "throttled by the window", "window full", wait_for_one_in_flight, "slow(100):127.0.0.1:0", sections=ONE_AT_ONCE
    ),
    OfMessage(
        "waits for its turn",
        "active",
        wait_for_one_in_flight,
        "slow(100):127.0.0.1:0",
        sections=with_transport() | {"deliverer": {"processes": 1, "concurrency": 1}},
    ),
    OfMessage(
        "waits for the rate delay",
        "rate delay",
        wait_for_the_rate_delay,
        sections=with_transport(destination_rate_delay=600.0),
    ),
    OfMessage(
        "waits for the transport's rate delay",
        "transport rate delay",
        wait_for_the_rate_delay,
        sections=with_transport(transport_rate_delay=600.0),
    ),
    OfMessage("dead destination", "deferred", be_deferred, "close(connect):127.0.0.1:0"),
    OfMessage(
        "held in part", "deferred", be_held_in_part, LATER, "1 held"
    ),  # before others with the recipient that it holds
    OfMessage("deferred", "deferred", be_deferred, LATER),
    OfMessage("held", "held", be_held, LATER),
    OfMessage("delayed by an operator", "delayed", be_delayed, LATER),
    OfMessage("deleted, to be undeleted", "deleted", be_deleted, LATER),
]


def on_one_core() -> list[list[OfMessage]]:
    """Returns the cases in their order; those with the same settings and the same next hop share a core."""
    groups: list[list[OfMessage]] = []
    for case in MESSAGES:
        same = [
            group for group in groups if group[0].sections is case.sections and group[0].behaviour == case.behaviour
        ]
        same[0].append(case) if same else groups.append([case])
    return groups


@pytest.mark.parametrize("cases", on_one_core(), ids=lambda cases: ", ".join(case.name for case in cases))
async def test_a_message_has_one_state_on_every_surface(
    tmp_path: Path, cases: list[OfMessage], capsys: pytest.CaptureFixture[str]
) -> None:
    async with Lab([cases[0].behaviour]) as lab, running(tmp_path, lab, cases[0].sections) as core:
        for case in cases:
            queue_id = await case.prepare(core, route_to(lab, 0))
            await says_so_everywhere(core, queue_id, case, capsys)


async def says_so_everywhere(
    core: RunningCore, queue_id: str, case: OfMessage, capsys: pytest.CaptureFixture[str]
) -> None:
    async def active() -> bool:
        words = await message_words(core, queue_id, capsys)
        return not words["queue list"].startswith(("queued", "active")) or case.state == "active"

    await core.eventually(active, "the manager to take it up")
    words = await message_words(core, queue_id, capsys)
    recipients = {words.pop(surface) for surface in ("recipients of show", "recipients on its page")}
    expected = f"{case.state}; {case.others}" if case.others else case.state
    bare = {"queue search", "portal search", "CSV"}  # which have a column for one word
    assert words == {surface: case.state if surface in bare else expected for surface in words}, case.name
    of_each = [case.state, *case.others.split()[1:]]
    assert [set(each.split()) for each in recipients] == [set(" ".join(of_each).split())] * len(recipients), case.name


async def message_words(core: RunningCore, queue_id: str, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Returns what each surface says of the message."""

    async def lines(*arguments: str) -> list[str]:
        capsys.readouterr()
        await asyncio.to_thread(main, ["queue", *arguments, "--config", str(core.config)])
        return capsys.readouterr().out.splitlines()

    listed = await lines("list", "--lane", "*")
    at = next((index for index, line in enumerate(listed) if line.startswith(queue_id)), len(listed))
    entry = [line for line in listed[at : at + 4] if line.startswith((queue_id, "  "))]
    head = re.split(r"  +", entry[0])[1]
    apart = [match for line in entry[1:] for match in re.findall(r"(\d+) recipients? (\w+)", line)]
    shown = await lines("show", queue_id)
    explained = (await lines("explain", queue_id))[0]
    found = await lines("search", "--sender", "author@sender.example")
    with override_settings(CONTROL_SOCKET=core.home / "run" / "control.sock"):
        door = door_of("test")
        reading = await asyncio.to_thread(read_on, door, {"lane": "*"}, "", 100)
        (item,) = [each for each in reading.items if each.queue_id == queue_id]
        message = await asyncio.to_thread(message_of, door, queue_id)
        hits = await asyncio.to_thread(door.ask, "search", SearchPart, {"sender": "author@sender.example"})
    row = render_to_string("queue/rows.html", {"items": [item], "reading": reading, **NO_PAGER})
    page = render_to_string("queue/state_badge.html", {"state": message.state})
    page += render_to_string("queue/apart_piece.html", {"item": message.item})
    context = {"kind": "text", "typed": "", "cursor": None, "have": 1, "examined": 1}
    same = [each for each in hits.items if each.queue_id == queue_id]
    hit = render_to_string("queue/found_piece.html", {**context, "items": same})
    rows = render_to_string("queue/recipient_rows.html", {"recipients": message.recipients})
    csv = dict(zip(COLUMNS, cells(item), strict=True))
    ask = core.control.parts("show", {"queue_id": queue_id})
    recipients = [each["state"] for part in [part async for part in ask] for each in part.get("recipients") or ()]
    return {
        "queue list": "; ".join([head, *(f"{count} {state}" for count, state in apart)]),
        "queue show": _short(next(line for line in shown if line.startswith("state:")).removeprefix("state:")),
        "queue explain": _short(explained),
        "queue search": next(line.split("  ")[1].strip() for line in found if line.startswith(queue_id)),
        "portal list": badges_in(row).replace(", ", "; "),
        "portal page": badges_in(page).replace(", ", "; "),
        "portal search": badges_in(hit),
        "CSV": str(csv["state"]),
        "recipients of show": " ".join(recipients),
        "recipients on its page": badges_in(rows).replace(",", ""),
    }


NO_PAGER = {"have": 1, "examined": 1, "place": Place(), "asked": FilterForm.of({})}


def _short(text: str) -> str:
    return re.sub(r" recipients?", "", text.strip())
