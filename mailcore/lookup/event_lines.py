"""Lines of the mail log before those of its files: from events, backwards, in the same form.

Stretches of time are read from the place backwards: each longer than the one before while little matches, shorter when there
is too much. A place is ``events:TIME:GIVEN``: in front of this time; of the lines of exactly this time, the last GIVEN were
given before.

Must not know: who asks.

Keeps law: log-continues-in-events (docs/laws.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from mailcore.lookup.archive import Archive, LogPart, Trouble, Window
from mailcore.lookup.log_files import PlaceError
from mailcore.lookup.log_selection import Selection
from mailcore.lookup.past_lines import Line
from mailcore.lookup.tracing import Steps

__all__ = ["EventPlace", "lines_before"]

FIRST_US = 600_000_000  # the first stretch
MOST_US = 86_400_000_000
SLACK_S = 0.000002  # a time as a float may be this much beside its microsecond
_PLACE = re.compile(r"events:(\d{1,18}):(\d{1,9})")


class EventPlace(NamedTuple):
    """A place in the events: in front of ``at_us``, wall clock in microseconds, and ``given`` lines of that time."""

    at_us: int
    given: int = 0

    @classmethod
    def of(cls, at: float) -> EventPlace:
        """Returns the place in front of a time, in seconds."""
        return cls(round(at * 1e6))

    @classmethod
    def read(cls, text: str) -> EventPlace | None:
        """Returns the place; None for a place in a file. Raises PlaceError."""
        if not text.startswith("events:"):
            return None
        found = _PLACE.fullmatch(text)
        if found is None:
            raise PlaceError(f"{text[:50]!r} is not a place in the log")
        return cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"events:{self.at_us}:{self.given}"


class EventLines(NamedTuple):
    """The lines, oldest first, and the place in front of which to continue; "" where events begin."""

    lines: list[Line]
    older: str


def lines_before(
    archive: Archive,
    selection: Callable[[], Selection],
    part: LogPart,
    limit: int,
    place: EventPlace,
    is_over: Callable[[], bool],
    trouble: Trouble,
) -> Steps[EventLines]:
    """Returns the last ``limit`` lines in front of a place that match. ``is_over``: whether the time for it is used up."""
    since = archive.since(trouble)
    if since is None:
        return EventLines([], "")
    since_us = round(since * 1e6)
    found: list[Line] = []
    length_us = FIRST_US
    while place.at_us >= since_us:
        earliest_us = max(place.at_us - length_us, 0)
        lines = yield from _stretch(archive, earliest_us, place, part, trouble)
        if lines is None and length_us > 1:
            length_us = max(length_us // 8, 1)
            continue
        chosen = selection()
        if lines is None:
            trouble.add("more lines of one microsecond than can be read")
        there = lines or []
        matching = [index for index, (_, line) in enumerate(there) if chosen.matches(line)]
        taken = matching[-(limit - len(found)) :]
        found = [*(Line(str(EventPlace(there[index][0])), there[index][1]) for index in taken), *found]
        if len(matching) > len(taken):
            at_us = there[taken[0]][0]
            given = sum(us == at_us for us, _ in there[taken[0] :])
            return EventLines(found, str(EventPlace(at_us, given + place.given * (at_us == place.at_us))))
        place = EventPlace(earliest_us)
        if len(found) >= limit or is_over():
            break
        length_us = min(length_us * 2 if len(there) < limit else length_us, MOST_US)
    return EventLines(found, str(place) if place.at_us > since_us else "")


def _stretch(
    archive: Archive, earliest_us: int, place: EventPlace, part: LogPart, trouble: Trouble
) -> Steps[list[tuple[int, dict[str, Any]]] | None]:
    """Returns (time, line) of a stretch in front of the place, in order; None if there are too many."""
    window = Window(earliest_us / 1e6 - SLACK_S, place.at_us / 1e6 + SLACK_S)
    lines = yield from archive.log_lines(window, part, trouble)
    if lines is None:
        return None
    timed = [(round(at * 1e6), line) for at, line in lines]
    inside = [each for each in timed if earliest_us <= each[0] < place.at_us]
    if place.given:
        inside += [each for each in timed if each[0] == place.at_us][: -place.given]
    return inside
