"""``waypost events`` over more events than one answer has (tests/browser/test_remote.py follows real ones)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from mailcore.cli import events
from mailcore.cli.main import main
from mailcore.control.protocol.events import EVENTS_MAX, Event, EventBatch
from tests.answers import complete
from tests.json_lines import read_list


def event(number: int) -> Event:
    return msgspec.convert(complete(Event, {"queue_id": f"Q{number}"}), Event)


class Answers:
    """A control process that has ``count`` events."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.asked: list[dict[str, Any]] = []

    def ask(self, operation: str, kind: type[EventBatch], arguments: dict[str, Any], timeout_s: float) -> EventBatch:
        limit = arguments["limit"]
        assert 1 <= limit <= EVENTS_MAX
        self.asked.append(arguments)
        at = int(arguments["after"]) if arguments["after"].isdecimal() else 0
        end = min(at + limit, self.count)
        told = [event(number) for number in range(at, end)]
        return EventBatch(events=told, start=str(at), cursor=str(end), more=end < self.count, lost=[])


@pytest.mark.parametrize("given", [0, 1, EVENTS_MAX - 1, EVENTS_MAX, EVENTS_MAX + 1, 3 * EVENTS_MAX])
@pytest.mark.parametrize("limit", [None, 1, EVENTS_MAX, 2 * EVENTS_MAX + 7])
def test_all_events_are_read_or_as_many_as_are_asked_for(
    given: int, limit: int | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = Answers(given)

    @contextmanager
    def control(_: object) -> Iterator[Answers]:
        yield answers

    monkeypatch.setattr(events, "control_client", control)
    assert main(["events", "--json", *(() if limit is None else ("--limit", str(limit)))]) == 0
    told, end = read_list(capsys.readouterr().out)
    assert len(told) == (given if limit is None else min(given, limit))
    assert end["cursor"] == str(len(told))
