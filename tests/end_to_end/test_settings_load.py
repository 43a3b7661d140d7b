"""Each kind of setting is changed while mail comes at a rate: no client is refused, no message is lost or sent twice.

There are 500 messages a second, if the machine gives them. The test prints the rate that was reached, and how long each change
took from the answer until it was in force and the manager answered. Neither is asserted.

law: managed-is-a-layer, law: reload-refuses-no-client.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mailcore.control.client import ControlError
from mailcore.lab.lab import Lab
from tests.end_to_end.appliance import free_port
from tests.end_to_end.test_kept import AUTHORITY, put
from tests.eventually import eventually
from tests.running.running_core import RunningCore, running
from tests.test_tidy import ROOT

RATE, CONNECTIONS = 500, 40  # messages a second
LOOK_S = 0.02
PAUSE_S = 0.5  # between two changes, so that mail flows with each
Change = tuple[tuple[str, ...], Any]


class Paced:
    """The load, a process of its own."""

    def __init__(self, rate: int, connections: int) -> None:
        command = [sys.executable, "-m", "tests.end_to_end.paced_load", str(rate), str(connections)]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.port = int(self.read())

    def read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


@asynccontextmanager
async def paced(rate: int, connections: int) -> AsyncIterator[Paced]:
    load = await asyncio.to_thread(Paced, rate, connections)
    try:
        yield load
    finally:
        load.end()


async def changed(core: RunningCore, *changes: Change, removed: tuple[tuple[str, ...], ...] = ()) -> float:
    """Makes a change; returns the seconds from the answer until it is in force and the manager answers."""
    given = [{"key": list(key), "value": value} for key, value in changes]
    given += [{"key": list(key), "removed": True} for key in removed]
    revision = (await core.insist(lambda: core.ask("settings")))["revision"]
    answer = await core.ask("settings_change", changes=given, revision=revision)
    assert answer["applied"], answer
    answered = time.monotonic()

    async def in_force() -> bool:
        try:
            state = await core.ask("settings")
            return bool(state["in_force"] and (await core.ask("ping"))["manager"])
        except (ControlError, OSError):  # the control process starts again, too
            await core.control.close()
            return False

    await eventually(in_force, f"{given} in force", look_every_s=LOOK_S)
    return time.monotonic() - answered


async def used(core: RunningCore, file: str, *place: str) -> list[Change]:
    found = await core.insist(lambda: core.ask("kept_use", file=file, place=list(place)))
    return [(tuple(each["key"]), each["value"]) for each in found["changes"]]


@pytest.mark.long
async def test_each_kind_is_changed_while_mail_comes(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, paced(RATE, CONNECTIONS) as load:
        hop = f"smtp:[127.0.0.1]:{load.port}"
        more = {"receiver": {"processes": 2}, "deliverer": {"processes": 2}}
        async with running(tmp_path, lab, more, routes={"*": hop, "gone.example": hop}) as core:
            certificate = await put(core, "mx", AUTHORITY.issue("mx.example.org"))
            key = await core.ask("kept_make", kind="dkim", domain="client.example", selector="s1", algorithm="ed25519")
            aliases = await core.ask("kept_put", kind="map", name="aliases", text="all@x.example kim@x.example\n")
            kinds: list[tuple[str, list[Change]]] = [
                ("domain", [(("relay", "domains"), ["mine.example"])]),
                ("route", [(("routes", "mine.example"), hop)]),
                ("transport", [(("transports", "provider", "process_limit"), 7)]),
                ("TLS policy", [(("tls_policy", "mine.example", "level"), "may")]),
                ("listener", [(("listener",), [{"address": f"127.0.0.1:{free_port()}"}])]),
                ("certificate", await used(core, certificate["file"], "receiver", "tls_certificate")),
                ("DKIM key", await used(core, key["file"], "dkim")),
                ("map", await used(core, aliases["file"], "rewriting", "virtual_alias_maps")),
                ("alerts", [(("alerts", "recipients"), ["a@example.org"])]),
                ("reports", [(("reports", "recipients"), ["a@example.org"])]),
            ]
            load.say(f"go {core.port}")
            await asyncio.sleep(2 * PAUSE_S)
            took = {}
            for kind, changes in kinds:
                took[kind] = await changed(core, *changes)
                await asyncio.sleep(PAUSE_S)
            took["removed route"] = await changed(core, removed=(("routes", "gone.example"),))
            load.say("stop")
            assert (await asyncio.to_thread(load.read)).strip() == "stopped"
            await core.control.close()
            await core.until_empty()
            load.say("tell")
            found = json.loads(await asyncio.to_thread(load.read))
    figures = ", ".join(f"{kind} {seconds:.2f} s" for kind, seconds in took.items())
    words = f"{found['acknowledged']} messages, {found['rate']:.0f} a second, {found['came_back']} times 421; {figures}"
    print(words)
    record_property("figures", words)
    assert found["wrong"] == [], "no client was refused"
    assert found["lost"] == [], "acknowledged and not delivered"
    assert found["twice"] == []
    assert found["acknowledged"] > RATE
