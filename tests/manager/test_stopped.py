"""A manager that is stopped, as by a debugger or a disk that hangs: it is connected, and does not answer.

No time is measured: every answer here comes while the manager is stopped, so that none of them waits for it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from mailcore.control import manager_link
from mailcore.control.client import ControlError
from mailcore.faults import Code
from mailcore.lab.lab import Lab
from tests.running.running_core import RunningCore, Sections, running

SILENT = "the manager runs but does not answer"
LONG: Sections = {"queue": {"retry_ladder_s": [600]}}


async def refusal(core: RunningCore, operation: str, **arguments: object) -> ControlError:
    with pytest.raises(ControlError) as caught:
        await core.control.call(operation, arguments)
    return caught.value


async def test_a_stopped_manager_is_told_with_what_is_known_without_it(tmp_path: Path) -> None:
    async with Lab(["reject(1, 451):127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as core:
        queue_id = await core.send("r@example.org")
        await core.until_in(queue_id, "retry.")
        manager = core.processes()["manager"]
        os.kill(manager, signal.SIGSTOP)
        try:
            error = await refusal(core, "size")  # the first question is what finds it out
            assert (error.fault.code, error.fault.message[: len(SILENT)]) == (Code.UNAVAILABLE, SILENT)
            page = await core.ask("list")
            assert [item["queue_id"] for item in page["items"]] == [queue_id]
            assert page["manager_away"]
            assert page["note"].startswith(f"{SILENT}; as of ")
            shown = [part async for part in core.control.parts("show", {"queue_id": queue_id})]
            assert shown[0]["message"]["state"] == "deferred"
            assert shown[0]["manager_away"]
            assert (await core.ask("positions"))["note"].startswith(SILENT)
            assert not (await core.ask("processes"))["manager"]
            for name, given in (
                ("hold", {"queue_ids": [queue_id]}),
                ("change_matching", {"change": "hold", "filter": {}}),
                ("set", {"parameter": "process_limit", "scope": "smtp", "value": 7}),
            ):
                error = await refusal(core, name, **given)
                # Nothing was sent: the answer does not say that it may have been done.
                assert (error.fault.code, error.fault.message[: len(SILENT)]) == (Code.UNAVAILABLE, SILENT), name
        finally:
            os.kill(manager, signal.SIGCONT)

        async def answers_again() -> bool:
            return not (await core.ask("list"))["manager_away"]

        await core.eventually(answers_again, "a manager that goes on")
        assert [item["state"] for item in await core.listed()] == ["deferred"]  # no change was made meanwhile
        held = await core.ask("hold", queue_ids=[queue_id])
        assert held["changed"] == 1


def test_a_question_is_given_up_before_a_person_has_waited_two_seconds() -> None:
    assert manager_link.QUESTION_S_MAX < 2
