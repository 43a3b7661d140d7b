"""What the manager remembers of recipients who were being delivered when they were changed."""

from __future__ import annotations

import pytest

from mailcore.envelope import Status
from mailcore.manager import overtaken
from mailcore.manager.overtaken import Overtaking
from mailcore.manager_answers import Overtaken


def test_a_final_reply_is_too_late_and_anything_else_is_not() -> None:
    overtaking = Overtaking()
    overtaking.watch("A", [0, 1, 2, 3])
    overtaking.ended("A", [0, 1, 2], {0: Status.DELIVERED, 1: Status.BOUNCED, 2: Status.DEFERRED})
    assert overtaking.became({"A": [0, 1, 2, 3]}) == Overtaken(too_late=2, undecided=1)
    overtaking.ended("A", [3], {})  # its deliverer was lost
    assert overtaking.became({"A": [0, 1, 2, 3]}) == Overtaken(too_late=2, undecided=0)


def test_who_is_not_watched_is_undecided_and_takes_no_memory() -> None:
    overtaking = Overtaking()
    overtaking.ended("A", [0], {0: Status.DELIVERED})
    assert overtaking.became({"A": [0]}) == Overtaken(too_late=0, undecided=1)


def test_a_second_change_watches_again() -> None:
    overtaking = Overtaking()
    overtaking.watch("A", [0])
    overtaking.ended("A", [0], {0: Status.DEFERRED})
    overtaking.watch("A", [0])
    assert overtaking.became({"A": [0]}).undecided == 1


def test_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overtaken, "KEPT", 2)
    overtaking = Overtaking()
    overtaking.watch("A", [0, 1, 2])
    overtaking.ended("A", [0, 1, 2], {})
    assert overtaking.became({"A": [0, 1, 2]}) == Overtaken(too_late=0, undecided=1)
