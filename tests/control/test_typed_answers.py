"""An answer has the type of its operation: control sends no other, and a client that gets another says so."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from mailcore.control.async_client import AsyncControlClient
from mailcore.control.client import ControlClient, ControlError, Refused
from mailcore.control.client import NotUnderstood as NotUnderstoodByClient
from mailcore.control.manager_link import NotUnderstood
from mailcore.control.protocol.changes import ChangeResult, MatchingProgress
from mailcore.control.protocol.injection import Injected
from mailcore.control.protocol.state import Disks, Ping
from mailcore.faults import Code
from tests.answers import Exactly
from tests.control.fake_manager import FakeManager
from tests.control.running_control import RunningControl, open_control
from tests.lookup.sample_messages import envelope

MATCHING = {"change": "delete", "filter": {}}


@pytest.fixture(autouse=True)
def answers_have_their_type() -> None:
    """Takes the place of the fixture that refuses an answer of another type before the client sees it."""


async def _disks(*_: object) -> AsyncGenerator[Any, None]:
    yield {"disks": []}


async def test_control_refuses_to_send_what_is_not_of_the_result_of_the_operation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with open_control() as running, running.client() as control:
        running.server.operations._answers["disks"] = _disks
        with pytest.raises(Refused, match="disks has a part that is a dict, not its result") as refused:
            await control.call("disks")
        assert refused.value.code is Code.INTERNAL
        assert (await control.ask("ping", Ping)).manager is True
    assert "Traceback" in capsys.readouterr().err  # for the log


async def test_parts_are_typed() -> None:
    async with open_control() as running, running.client() as control:
        running.write("incoming.0", envelope(), envelope())
        running.manager.answers["delete"] = lambda given: {
            "changed": len(given["messages"]), "errors": {}, "elsewhere": [],
        }  # fmt: skip

        def ask() -> list[MatchingProgress]:
            with ControlClient(running.socket) as blocking:
                return list(blocking.ask_parts("change_matching", MatchingProgress, MATCHING))

        for parts in (
            await asyncio.to_thread(ask),
            [part async for part in control.ask_parts("change_matching", MatchingProgress, MATCHING)],
        ):
            assert [(part.matched, part.changed, part.done) for part in parts] == [(2, 2, False), (2, 2, True)]


async def test_a_core_of_another_version_is_a_clear_error_for_both_clients() -> None:
    """It answers with fields that this version does not know, and lacks others."""
    async with open_control(manager=False) as running:
        other = await _another_version(running)
        other.answers["change_matching"] = lambda _: Exactly(count=3)
        other.answers["ping"] = lambda _: {"pid": 1, "manager": True}
        expected = "the answer to change_matching is not understood; client and server may be of two versions"

        def ask() -> None:
            with ControlClient(other.path) as blocking:
                with pytest.raises(ControlError, match=expected) as error:
                    list(blocking.ask_parts("change_matching", MatchingProgress, MATCHING))
                assert error.value.code is Code.INTERNAL
                assert blocking.ask("ping", Ping).pid == 1  # the connection is in order

        try:
            await asyncio.to_thread(ask)
            async with AsyncControlClient(other.path) as control:
                with pytest.raises(ControlError, match=expected) as error:
                    async with contextlib.aclosing(
                        control.ask_parts("change_matching", MatchingProgress, MATCHING)
                    ) as parts:
                        _ = [part async for part in parts]
                assert error.value.code is Code.INTERNAL
                assert (await control.ask("ping", Ping)).pid == 1
        finally:
            await other.stop()


async def _another_version(running: RunningControl) -> FakeManager:
    """Returns a control process of another version: any server of frames will do."""
    other = FakeManager(running.settings.run_directory / "other.sock")
    await other.start()
    return other


async def test_a_manager_of_another_version_is_a_clear_error() -> None:
    async with open_control() as running, running.client() as control:
        running.manager.answers["inject"] = lambda _: Exactly(id="1K0RDGV4BE900")
        with pytest.raises(NotUnderstood, match="the manager's answer to inject is not understood") as error:
            await running.server.link.ask("inject", Injected)
        assert error.value.code is Code.INTERNAL
        await control.ask("inject_begin", Injected, {"sender": "", "recipients": ["you@example.org"]})
        await control.call("inject_data", {"data": b"Hello.\n"})
        with pytest.raises(Refused, match=r"may be of two versions.*whether it was done is not known") as refused:
            await control.ask("inject_end", Injected)
        assert refused.value.code is Code.OUTCOME_UNKNOWN
        running.manager.answers["delete"] = lambda _: Exactly(count=1)
        with pytest.raises(Refused, match="the manager's answer to delete is not understood") as refused:
            await control.ask("delete", ChangeResult, {"messages": [["1K0RDGV4BE900", "retry.5", 4096]]})
        assert refused.value.code is Code.OUTCOME_UNKNOWN
        assert len(running.spool_files()) == 1  # it may be queued: only an orphan's file may be removed


async def test_a_type_that_is_not_the_one_of_the_operation_is_not_understood() -> None:
    async with open_control() as running, running.client() as control:
        with pytest.raises(NotUnderstoodByClient, match="the answer to disks is not understood"):
            await control.ask("disks", ChangeResult)
        assert {disk.what for disk in (await control.ask("disks", Disks)).disks} == {"queue", "spool", "log"}
