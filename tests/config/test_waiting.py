"""What the shard of a home waits for, as those who ask read it: only while its processes live, and its owner step runs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from mailcore.config.waiting import Waiting, read_words, waits_in, write_waiting

WORDS = "shard north belongs to mx1; this node is its spare"


def written(place: Path, pid: int, *names: str, is_in_order: bool = True) -> None:
    place.mkdir(parents=True, exist_ok=True)
    children = {"supervisor": {"pid": pid}} | {name: {"pid": None} for name in names}
    (place / "children.json").write_text(json.dumps(children))
    write_waiting(place, WORDS, is_in_order=is_in_order)


@pytest.mark.parametrize("below", [".", "shards/00"])
def test_it_says_what_it_waits_for_while_the_owner_step_runs(tmp_path: Path, below: str) -> None:
    assert waits_in(tmp_path) is None
    for is_in_order in (True, False):
        written(tmp_path / below, os.getpid(), "owner", is_in_order=is_in_order)
        assert waits_in(tmp_path) == Waiting(WORDS, is_in_order)
        assert read_words(tmp_path / below) == WORDS
    written(tmp_path / below, os.getpid(), "manager", "control")
    assert waits_in(tmp_path) is None, "the shard is here"


def test_a_sentence_has_one_full_stop() -> None:
    for words in ("it is held", "it is held."):
        assert Waiting(words, is_in_order=False).sentence == "This node waits: it is held."


def test_a_waypost_that_was_killed_waits_for_nothing(tmp_path: Path) -> None:
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
    written(tmp_path, pid, "owner")
    assert waits_in(tmp_path) is None


def test_what_cannot_be_read_is_nothing(tmp_path: Path) -> None:
    written(tmp_path, os.getpid(), "owner")
    (tmp_path / "children.json").write_text('{"owner": 1, "supervisor": []}')
    assert waits_in(tmp_path) is None
