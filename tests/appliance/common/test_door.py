"""The door: answers as their types, also in parts and of a change."""

from __future__ import annotations

import pytest

from appliance.common.door import door_of
from mailcore.control.client import ControlError, TimedOut
from mailcore.control.protocol.changes import ChangeResult, MatchingProgress
from mailcore.control.protocol.state import Disks
from mailcore.faults import Code
from tests.answers import Exactly
from tests.appliance.fake_core import FakeCore, Parts, Refusal

PROGRESS = {
    "matched": 2,
    "matched_recipients": 3,
    "changed": 0,
    "failed": 0,
    "errors": {},
    "done": False,
    "manager_away": False,
    "note": "",
}


def test_answers_parts_and_changes_are_typed() -> None:
    parts = Parts([PROGRESS, PROGRESS | {"changed": 2, "done": True}])
    hold = {"changed": 1, "errors": {}}
    with FakeCore({"disks": {"disks": []}, "change_matching": parts, "hold": hold}) as core:
        door = door_of("alice")
        assert door.ask("disks", Disks).disks == []
        asked = door.ask_parts("change_matching", MatchingProgress, {"change": "delete"}, why="they asked")
        assert [(part.changed, part.done) for part in asked] == [(0, False), (2, True)]
        assert door.ask_change("hold", ChangeResult, {"queue_ids": []}, why="suspicious").changed == 1
    assert [(request.who, request.why) for request in core.requests] == [
        ("alice", ""), ("alice", "they asked"), ("alice", "suspicious"),
    ]  # fmt: skip


def test_an_answer_of_another_version_is_an_error_that_says_so() -> None:
    with FakeCore({"change_matching": Parts([PROGRESS, Exactly(count=2)]), "hold": Exactly(count=1)}):
        parts = door_of("alice").ask_parts("change_matching", MatchingProgress)
        assert next(parts).matched == 2
        with pytest.raises(ControlError, match="may be of two versions") as error:
            next(parts)
        assert error.value.code is Code.INTERNAL
        with pytest.raises(ControlError, match="may be of two versions"):
            door_of("alice").ask_change("hold", ChangeResult, {}, why="")


def test_a_change_with_an_unknown_outcome_is_no_refusal() -> None:
    with (
        FakeCore({"hold": Refusal("the manager ended", Code.OUTCOME_UNKNOWN)}),
        pytest.raises(TimedOut, match="the manager ended"),
    ):
        door_of("alice").ask_change("hold", ChangeResult, {}, why="")
