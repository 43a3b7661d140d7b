"""Lines out of events, page by page backwards: each once and in order, also those of the same time."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from mailcore.lookup.archive import LogPart, Trouble, Window
from mailcore.lookup.event_lines import EventPlace, lines_before
from mailcore.lookup.log_files import PlaceError
from mailcore.lookup.log_selection import Selection
from mailcore.lookup.tracing import Steps, Walk

NOW = 1_795_219_200.0


class Archive:
    """Has some lines, and refuses to read more than a few at once."""

    def __init__(self, lines: list[tuple[float, dict[str, Any]]], most: int) -> None:
        self.lines, self.most = sorted(lines, key=lambda each: each[0]), most

    def since(self, trouble: Trouble) -> float | None:
        return self.lines[0][0] if self.lines else None

    def log_lines(
        self, window: Window, part: LogPart, trouble: Trouble
    ) -> Steps[list[tuple[float, dict[str, Any]]] | None]:
        yield
        found = [each for each in self.lines if window.earliest <= each[0] < window.latest]
        return None if len(found) > self.most else found


def walked(archive: Archive, selection: Callable[[], Selection], limit: int, over: bool = False) -> list[int]:
    found: list[int] = []
    place: EventPlace | None = EventPlace.of(NOW)
    for _ in range(5_000):
        walk = Walk(lines_before(archive, selection, LogPart(), limit, place, lambda: over, Trouble()))  # type: ignore[arg-type]
        assert walk.go(60.0, lambda: 0.0)
        assert walk.result is not None
        assert len(walk.result.lines) <= limit
        found = [*(int(line.values["number"]) for line in walk.result.lines), *found]
        if not walk.result.older:
            return found
        place = EventPlace.read(walk.result.older)
        assert place is not None
    raise AssertionError("it does not end")


@pytest.mark.parametrize("limit", [1, 2, 7, 100])
@pytest.mark.parametrize("over", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_each_line_comes_once_and_in_order(limit: int, over: bool, seed: int) -> None:
    chance = random.Random(seed)
    at = NOW - 1_000_000.0
    lines: list[tuple[float, dict[str, Any]]] = []
    for number in range(60):
        at += chance.choice([0.0, 0.0, 0.0000005, 0.0000013, 0.003, 4.0, 900.0, 20_000.0])
        lines.append((at, {"event": "delivery", "number": number, "queue_id": f"Q{number % 3}"}))
    archive = Archive(lines, 30)
    assert walked(archive, Selection, limit, over) == list(range(60))
    assert walked(archive, lambda: Selection(queue_id="Q1"), limit, over) == list(range(1, 60, 3))


def test_a_place_is_read_as_it_was_written() -> None:
    place = EventPlace(1_795_219_200_123_456, 3)
    assert EventPlace.read(str(place)) == place
    assert EventPlace.read("17:4") is None
    for text in ("events:", "events:1", "events:1.5:0", "events:x:0"):
        with pytest.raises(PlaceError):
            EventPlace.read(text)
