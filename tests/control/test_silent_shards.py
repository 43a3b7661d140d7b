"""What answers of several shards say while one does not answer: which is missing, apart from what else is to be noted."""

from __future__ import annotations

from typing import Any

import pytest

from mailcore.control.client import Refused
from mailcore.faults import Code
from mailcore.queue.queue_id import QueueIds
from tests.control.test_several import Nodes, Shards, silent


def silent_or(answer: dict[str, Any]) -> Any:
    """Shards of which that of node b is silent, and the others give an answer."""

    def of(shard: int, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        silent(shard, operation, arguments)
        return answer

    return of


AGES = {
    "buckets_s": [None], "rows": [], "total": 3, "counts": [3], "by_state": {}, "oldest": None, "as_of": 1.0, "took_s": 0.0,
    "examined": 3, "manager_away": False, "note": "", "done": True,
}  # fmt: skip
POSITIONS = {
    "sequence": 1, "written_at": 1.0, "age_s": 1.0, "note": "", "lanes": [], "journal": {"segments": []},
    "recovery": {"seconds_estimate": 1.0, "messages": 0, "sentence": "short"},
}  # fmt: skip
OUTCOMES = {
    "since": 1.0, "senders": [], "senders_left_out": 0, "others_ended": 0, "others_bounced": 0, "hosts": [],
    "hosts_left_out": 0, "examined": 0, "note": "",
}  # fmt: skip
TIMES = {"destinations": {}, "since": 1.0, "examined": 0, "destinations_left_out": 0, "note": "", "unread_files": 0}


@pytest.mark.parametrize(
    ("operation", "within", "answer"),
    [
        ("ages", "", AGES),
        ("positions", "", POSITIONS),
        ("outcomes", "outcomes", {"done": True, "outcomes": OUTCOMES}),
        ("service_times", "times", {"done": True, "times": TIMES}),
    ],
)
def test_numbers_say_apart_from_their_notes_which_shard_is_silent(
    operation: str, within: str, answer: dict[str, Any]
) -> None:
    """law: silent-is-unknown."""
    found = Nodes(silent_or(answer)).ask(operation)
    found = found[within] if within else found
    assert found["unanswered"].startswith("shard 2 at b does not answer, and its ")
    assert found["note"] == found["unanswered"]
    whole = Shards(lambda *_: answer, (0, 2)).ask(operation)
    assert (whole[within] if within else whole)["unanswered"] == ""


def test_events_of_a_silent_shard_come_later_and_the_last_answer_names_it() -> None:
    """law: silent-is-unknown."""
    empty = {"events": [], "start": "1", "cursor": "1", "more": False, "lost": []}
    nodes = Nodes(silent_or(empty))
    found = nodes.ask("events", after="oldest", limit=10)
    assert found["unanswered"].startswith("shard 2 at b does not answer, and its events come later: ")
    assert Shards(lambda *_: empty, (0, 2)).ask("events", after="oldest", limit=10)["unanswered"] == ""


@pytest.mark.parametrize("operation", ["history", "show", "explain", "headers"])
def test_a_message_that_no_shard_has_may_be_in_the_silent_one(operation: str) -> None:
    """law: silent-is-unknown. Its id has the number of no shard, so each is asked. Before, it was in a shard of no node."""
    of_9 = QueueIds(0, lambda: 1e9, shard=9).next()
    nothing: dict[str, Any] = {"items": [], "cursor": None, "examined": 0, "done": True, "note": ""}
    with pytest.raises(Refused, match="shard 2 at b does not answer, and may have the message: ") as refused:
        Nodes(silent_or(nothing)).ask(operation, queue_id=of_9)
    assert refused.value.code is Code.UNAVAILABLE
    with pytest.raises(Refused, match="does not answer, and may have the message: "):
        Nodes(silent_or(nothing)).ask("working", queue_ids=[of_9])
    changed = {"changed": 1, "recipients": 1, "in_flight": 0, "too_late": 0, "undecided": 0, "errors": {}, "dead": []}
    result = Nodes(silent_or(nothing | changed)).ask("hold", queue_ids=[QueueIds(0, lambda: 1e9, shard=0).next(), of_9])
    assert result["changed"] == 1
    assert result["errors"][of_9]["code"] == "unavailable"
    with pytest.raises(Refused, match="the message is in shard 9, which does not run on this node"):
        Shards(lambda *_: nothing, (0, 2)).ask(operation, queue_id=of_9)
