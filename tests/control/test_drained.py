"""A shard counts as drained only when nothing of its mail is left: not held, not deleted, not unread, not unexported.

law: drained-before-forgotten.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mailcore.config.load import load
from mailcore.control import drained as drained_module
from mailcore.control.client import ControlClient
from mailcore.control.drained import is_drained
from mailcore.lab.lab import Lab
from tests.running.running_core import RunningCore, running


async def drained(core: RunningCore) -> bool:
    return await asyncio.to_thread(is_drained, load(core.config))


async def test_mail_that_is_held_or_deleted_or_waits_is_mail(tmp_path: Path) -> None:
    async with Lab(["reject(1.0, 450):127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:

        async def is_empty() -> bool:
            return await drained(core)

        await core.eventually(is_empty, "a new queue to be empty")
        queue_id = await core.send("a@any.example")
        assert not await drained(core)
        await core.until_in(queue_id, "retry")
        assert not await drained(core)
        await core.order("hold", queue_id)
        await core.until_in(queue_id, "hold")
        assert not await drained(core)
        await core.order("delete", queue_id)
        assert (await core.size())["messages"] == 0
        assert not await drained(core)  # it could be undeleted
        await core.order("undelete", queue_id)
        await lab.hops[0].set_behaviour("accept")
        await core.order("release", queue_id)
        await core.eventually(is_empty, "an empty queue")
        away = replace(load(core.config), run_directory=tmp_path)
        assert not await asyncio.to_thread(is_drained, away)  # no process answers: in doubt there is mail


@pytest.mark.parametrize("question", ["positions", "size", "list"])
async def test_mail_that_its_manager_reads_meanwhile_is_mail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, question: str
) -> None:
    async with Lab(["slow(60):127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        loop = asyncio.get_running_loop()
        comes: list[str] = []

        async def mail_comes() -> None:
            await core.send("a@any.example")
            await core.until_in_flight()

        class Slow(ControlClient):
            """Mail is read in front of one of its questions."""

            def ask(self, operation: str, *arguments: Any, **more: Any) -> Any:
                if comes and comes[0] == operation:
                    comes.pop()
                    asyncio.run_coroutine_threadsafe(mail_comes(), loop).result()
                return super().ask(operation, *arguments, **more)

        monkeypatch.setattr(drained_module, "ControlClient", Slow)

        async def is_empty() -> bool:
            return await drained(core)

        await core.eventually(is_empty, "a new queue to be empty")
        comes.append(question)
        assert not await drained(core)
        assert not comes


async def test_events_that_are_not_exported_keep_a_shard(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab, {"export": {"enabled": True}}) as core:
        await core.until_removed(await core.send("a@any.example"))
        await core.until_empty()
        assert not await drained(core)
        assert (await core._run("export", "--now"))[0] == 0  # or it is exported within [export] cut_interval_s

        async def is_empty() -> bool:
            return await drained(core)

        await core.eventually(is_empty, "all to be exported")
        last = max((core.home / "events" / "cuts").glob("*Z.json"))
        count = json.loads(last.read_text())
        assert (count["closed"], count["messages"], count["shard"]) == (True, 0, 0)  # reports know that it is closed
