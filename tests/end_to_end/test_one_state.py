"""A state is the same wherever it is shown: a real core is brought into each, and every surface is read as a person reads it.

The surfaces of a destination are ``destination list``, the list of destinations, its own page and the overview.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from django.test import override_settings

from appliance.common.door import async_door
from appliance.destinations.streams import live_destination, live_list
from appliance.live.fragments import LiveState
from appliance.live.hub import Hub
from appliance.status.overview_views import live_part
from mailcore.cli.main import main
from mailcore.lab.lab import Lab
from mailcore.manager_answers import Destinations
from tests.running.running_core import RunningCore, Sections, route_to, running

SLOW_RETRIES: Sections = {
    "queue": {"retry_ladder_s": [600], "checkpoint_interval_s": 0.1},
    "scheduler": {"minimal_backoff_time": 600.0, "maximal_backoff_time": 600.0},
    "transports.smtp": {"initial_destination_concurrency": 1},  # so that one failure is a cohort
}


def with_transport(**values: object) -> Sections:
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
