"""Lists as JSON lines: whatever happens, the last line says how the list ended, and where it goes on."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from mailcore.cli import pages
from mailcore.cli.main import main
from mailcore.faults import Code
from mailcore.lab.lab import Lab
from mailcore.terminal.output import JsonLines
from tests.cli.running_control import Waypost
from tests.control.running_control import RunningControl
from tests.faults import other_words
from tests.json_lines import read_list
from tests.lookup.sample_messages import envelope
from tests.running.running_core import RunningCore
from tests.running.running_core import running as running_core

MESSAGES = 60
PAGE = 5


def config_without_a_core(tmp_path: Path) -> str:
    config = tmp_path / "waypost.toml"
    config.write_text('home = "home"\n')
    return str(config)


@pytest.mark.parametrize("command", [("queue", "list"), ("queue", "search", "--sender", "*")])
def test_a_list_that_cannot_begin_says_so_in_its_last_line(
    command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--json", "--config", config_without_a_core(tmp_path)]) == 3
    out, err = capsys.readouterr()
    items, end = read_list(out)
    fault = {"code": "unavailable", "message": other_words(Code.UNAVAILABLE), "argument": ""}
    assert (items, end["complete"], end["error"]) == ([], False, fault)
    assert json.loads(err) == {"error": fault}


async def test_a_list_with_damage_is_not_complete(running: RunningControl, waypost: Waypost) -> None:
    *_, (place, kept) = [(running.write("incoming.0", each)[0], each) for each in [envelope() for _ in range(3)]]
    (segment,) = (running.settings.queue_directory / "incoming.0").glob("*.seg")
    data = bytearray(segment.read_bytes())
    data[place - 40] ^= 1  # in the record before
    segment.write_bytes(data)
    told = await waypost("queue", "list", "--json")
    assert told.items[-1]["queue_id"] == kept.queue_id
    assert len(told.items) == 2
    assert (told.status, told.end["complete"], len(told.end["damage"])) == (1, False, 1)
    assert (await waypost("queue", "list")).status == 1


async def test_when_control_does_not_come_back_the_list_says_where_it_goes_on(
    running: RunningControl, waypost: Waypost, monkeypatch: pytest.MonkeyPatch
) -> None:
    envelopes = [envelope() for _ in range(10)]
    running.write("incoming.0", *envelopes)
    monkeypatch.setattr("mailcore.cli.queue.command.PAGE_MAX", 4)
    monkeypatch.setattr(pages, "RECONNECT_S", 0.3)
    item = JsonLines.item

    def lose(self: JsonLines, value: Any) -> None:
        item(self, value)
        if self.count == 6:
            running.socket.unlink()
            for client in list(running.server.clients):
                client._transport.get_extra_info("socket").shutdown(2)

    with monkeypatch.context() as losing:
        losing.setattr(JsonLines, "item", lose)
        said = await waypost("queue", "list", "--all", "--json")
    assert said.status == 3
    assert (len(said.items), said.end["complete"], said.end["error"]["code"]) == (8, False, "unavailable")
    assert (said.end["more"], said.end["reconnected"]) == (True, 1)
    assert said.errors[0]["code"] == "unavailable"


async def test_an_interrupted_list_says_where_it_goes_on(
    running: RunningControl, waypost: Waypost, monkeypatch: pytest.MonkeyPatch
) -> None:
    running.write("incoming.0", *(envelope() for _ in range(10)))
    monkeypatch.setattr("mailcore.cli.queue.command.PAGE_MAX", 4)
    item = JsonLines.item

    def interrupt(self: JsonLines, value: Any) -> None:
        item(self, value)
        if self.count == 6:
            raise KeyboardInterrupt

    with monkeypatch.context() as interrupting:
        interrupting.setattr(JsonLines, "item", interrupt)
        said = await waypost("queue", "list", "--all", "--json")
    assert (said.status, said.end["complete"], said.end["interrupted"]) == (130, False, True)
    rest = await waypost("queue", "list", "--all", "--json", "--cursor", said.end["cursor"])
    assert len(rest.items) == 6, "from the page on that was not printed whole"


# -- a real core, whose control process is killed


async def held(core: RunningCore) -> set[str]:
    queue_ids = set()
    for number in range(MESSAGES):
        await core.ask(
            "inject_begin", sender=f"{number}@sender.example", recipients=["a@example.org"], held_because="x"
        )
        await core.ask("inject_data", data=b"Subject: x\r\n\r\n")
        queue_ids.add(str((await core.ask("inject_end"))["queue_id"]))

    async def all_rest() -> bool:
        return [item["lane"] for item in await core.listed()] == ["hold"] * MESSAGES

    await core.eventually(all_rest, "all messages in hold")  # one that moves between two pages may be listed twice
    return queue_ids


class Killer:
    """Kills the control process after a number of printed items; it can wait until the process has ended."""

    def __init__(self, core: RunningCore, at: dict[int, bool]) -> None:
        self._core = core
        self._at = at
        self.killed: list[int] = []
        self._item = JsonLines.item

    def __call__(self, lines: JsonLines, value: Any) -> None:
        self._item(lines, value)
        if lines.count in self._at:
            while (pid := self._core.processes().get("control", 0)) in (0, *self.killed):
                time.sleep(0.01)  # the file that says so is written a little after the process was started again
            os.kill(pid, signal.SIGKILL)
            self.killed.append(pid)
            if self._at[lines.count]:
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    while " Z " not in Path(f"/proc/{pid}/stat").read_text():
                        pass


@pytest.mark.parametrize(
    ("command", "page"),
    [
        (("queue", "list", "--all"), "mailcore.cli.queue.command.PAGE_MAX"),
        (
            ("queue", "search", "--sender", "*@sender.example", "--limit", "1000"),
            "mailcore.cli.queue.history.SEARCH_MAX",
        ),
    ],
)
async def test_a_reader_whose_control_process_is_killed_goes_on_at_the_cursor(
    command: tuple[str, ...],
    page: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running_core(tmp_path, lab) as core:
        queue_ids = await held(core)
        monkeypatch.setattr(page, PAGE)
        killer = Killer(core, {7: True, 15: True, 33: False})
        monkeypatch.setattr(JsonLines, "item", functools.partialmethod(killer))
        status = await asyncio.to_thread(main, [*command, "--json", "--config", str(core.config)])
        out, err = capsys.readouterr()
        items, end = read_list(out)
        assert (status, err, len(set(killer.killed))) == (0, "", 3)
        assert sorted(item["queue_id"] for item in items) == sorted(queue_ids), "a duplicate or a gap"
        assert (end["complete"], end["cursor"], end["error"]) == (True, None, None)
        assert 2 <= end["reconnected"] <= 3
