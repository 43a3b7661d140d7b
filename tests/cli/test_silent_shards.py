"""A command that reads from several shards, while one does not answer: it names it, ends with status 1, and is not complete."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mailcore.cli.main import main
from mailcore.control.client import ControlClient
from tests.json_lines import read_list

SILENT = "shard 2 at b does not answer, and its mail is not here: away"
AGES = {
    "buckets_s": [300, None], "rows": [{"destination": "smtp:example.org", "total": 3, "counts": [3, 0]}], "total": 3,
    "by_state": {"deferred": 3}, "oldest": None, "as_of": 1e9, "took_s": 0.1, "examined": 3, "done": True,
}  # fmt: skip
JOURNAL = {
    "suffix": 0, "durable": 0, "end": 0, "suffix_bytes": 0, "bytes_on_disk": 0, "segments": [], "segments_left_out": 0,
    "garbage_prefix_bytes": 0,
}  # fmt: skip
POSITIONS = {
    "sequence": 7, "written_at": 1e9, "age_s": 1.0, "lanes": [], "journal": JOURNAL,
    "recovery": {"bytes": 0, "records_estimate": 0, "seconds_estimate": 0.1, "messages": 0, "sentence": "It is short."},
}  # fmt: skip
OUTCOMES = {
    "since": 1e9, "senders": [], "senders_left_out": 0, "others_ended": 0, "others_bounced": 0, "hosts": [],
    "hosts_left_out": 0, "examined": 3,
}  # fmt: skip
TIMES = {"destinations": {}, "since": 1e9, "examined": 3}
SIZE = {
    "messages": 3, "recipients": 3, "lanes": {"incoming.0": {"messages": 3, "recipients": 3}},
    "destinations": {"smtp:a.example": 3},
}  # fmt: skip
EVENTS = {"events": [], "start": "s", "cursor": "c", "more": False, "lost": []}


class Case(NamedTuple):
    """A command, the operation that it asks, its answer, and where in it the silent shards are."""

    typed: str
    operation: str
    answer: dict[str, Any]
    within: str = ""
    has_note: bool = True


CASES = [
    Case("queue ages", "ages", AGES),
    Case("queue positions", "positions", POSITIONS),
    Case("destination outcomes", "outcomes", OUTCOMES, "outcomes"),
    Case("destination service-times", "service_times", TIMES, "times"),
    Case("simulate --live --until 60s", "size", SIZE, has_note=False),
    Case("events", "events", EVENTS, has_note=False),
]


def names(case: Case) -> str:
    return case.typed


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "waypost.toml"
    path.write_text('home = "home"\n')
    return str(path)


def answers(monkeypatch: pytest.MonkeyPatch, case: Case, note: str, unanswered: str) -> None:
    """Lets the control socket give the answer of a case."""
    found = {**case.answer, **({"note": note} if case.has_note else {}), "unanswered": unanswered}
    part = {"done": True, case.within: found} if case.within else found

    def parts(self: ControlClient, name: str, arguments: Any = None, **more: Any) -> Generator[Any, None, None]:
        assert name == case.operation
        yield part

    monkeypatch.setattr(ControlClient, "parts", parts)


def document(case: Case, text: str) -> dict[str, Any]:
    return read_list(text)[1] if case.operation == "events" else json.loads(text)


@pytest.mark.parametrize("case", CASES, ids=names)
def test_a_silent_shard_is_named_and_the_status_is_1(
    case: Case, config: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """law: silent-is-unknown. Before, it was named, and the status was 0."""
    answers(monkeypatch, case, SILENT, SILENT)
    assert main([*case.typed.split(), "--config", config]) == 1
    error = capsys.readouterr().err
    assert "waypost: incomplete: " in error
    assert error.count(SILENT) == 1
    assert main([*case.typed.split(), "--json", "--config", config]) == 1
    found = document(case, capsys.readouterr().out)
    assert found["unanswered"] == SILENT
    assert not found.get("complete", False)


@pytest.mark.parametrize("case", CASES, ids=names)
def test_if_all_shards_answer_nothing_is_missing(
    case: Case, config: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    note = "the manager is not running" if case.has_note else ""
    answers(monkeypatch, case, note, "")
    assert main([*case.typed.split(), "--config", config]) == 0
    error = capsys.readouterr().err
    assert "incomplete" not in error
    assert note in error
    assert main([*case.typed.split(), "--json", "--config", config]) == 0
    assert document(case, capsys.readouterr().out)["unanswered"] == ""


def test_events_up_to_a_limit_are_all_that_were_asked_for(
    config: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    event = {
        "id": "e", "kind": "accepted", "at": 1e9, "queue_id": "1K0RDGV4BE900", "sender": "a@example.org",
        "recipient": "b@example.org",
        "number": 0, "recipient_domain": "example.org", "sender_domain": "example.org", "tag": "", "login": "", "size_bytes": 1,
    }  # fmt: skip
    case = Case("events -n 1", "events", {**EVENTS, "events": [event]}, has_note=False)
    answers(monkeypatch, case, "", SILENT)
    assert main([*case.typed.split(), "--json", "--config", config]) == 0
    assert document(case, capsys.readouterr().out)["complete"]
