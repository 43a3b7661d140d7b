"""The diagram of a lane: segments as boxes on a line, with marks for the browse position, the runner and the end.

Law: values only; offsets become places from 0 to ``WIDE``, for a lane of any length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mailcore.control.protocol.state import JournalPositions, LanePositions, Segment

__all__ = ["WIDE", "Box", "Group", "Lane", "journal_of", "lane_of"]

WIDE = 1000.0
BOX_MIN = 1.5  # so that the box of a small segment can be seen
GROUPS_MAX = 12  # lines of a lane's table; one more line has the sum of the rest


@dataclass(frozen=True)
class Box:
    """Holds one rectangle of the diagram, in its units."""

    x: float
    width: float
    words: str


@dataclass(frozen=True)
class Group:
    """Holds neighbouring segments that are kept for the same reason."""

    count: int
    first: int
    bytes: int
    messages: int | None
    live: int | None
    kept_by: str  # a Keeper
    sentence: str  # its meaning, for the page


@dataclass(frozen=True)
class Lane:
    """Holds the diagram of one lane, and the groups of its segments."""

    name: str
    known: LanePositions | JournalPositions
    boxes: list[Box]
    behind: Box  # from browse to runner: here are the messages in progress
    ahead: Box  # from runner to end: not read yet
    marks: list[tuple[str, float]]
    segment: int | None
    offset: int | None
    groups: list[Group]
    more: int  # segments not in ``groups``
    words: str

    @property
    def lag(self) -> int:
        """Returns how many bytes the runner is behind the end of the lane."""
        return self.known.lag_bytes if isinstance(self.known, LanePositions) else self.known.suffix_bytes


def lane_of(known: LanePositions) -> Lane:
    """Returns the diagram of a lane."""
    diagram = _diagram(known, known.lane, known.browse, known.runner)
    base = next((each.base for each in reversed(known.segments) if each.base <= known.runner), None)
    runner = ("runner", diagram.ahead.x)
    words = (
        f"{_many(known)}; browsing begins at {known.browse}, the runner is at {known.runner}, the end at {known.end}"
    )
    return replace(
        diagram,
        marks=[diagram.marks[0], runner, *diagram.marks[1:]],
        segment=base,
        offset=None if base is None else known.runner - base,
        words=words,
    )


def journal_of(known: JournalPositions) -> Lane:
    """Returns the diagram of the journal, which has no runner: its working suffix is what a start reads."""
    words = f"{_many(known)}; the working suffix begins at {known.suffix} and ends at {known.end}"
    return replace(_diagram(known, "journal", known.suffix, known.suffix), words=words)


def _many(known: LanePositions | JournalPositions) -> str:
    count = len(known.segments) + known.segments_left_out
    return f"{count} segment{'s' * (count != 1)}"


def _diagram(known: LanePositions | JournalPositions, name: str, browse: int, at: int) -> Lane:
    segments = known.segments
    start = segments[0].base if segments else browse
    end = max(known.end, start, segments[-1].base if segments else 0)
    length = max(end - start, 1)

    def place(offset: float) -> float:
        return round(min(max((offset - start) / length, 0.0), 1.0) * WIDE, 2)

    boxes = []
    for number, segment in enumerate(segments):
        following = segments[number + 1].base if number + 1 < len(segments) else end
        x = place(segment.base)
        words = f"segment {segment.base}: {segment.sentence}"
        boxes.append(Box(x, max(place(following) - x, BOX_MIN), words))
    groups = _groups(segments)
    return Lane(
        name=name,
        known=known,
        boxes=boxes,
        behind=Box(place(browse), max(place(at) - place(browse), 0.0), "being worked on"),
        ahead=Box(place(at), max(place(end) - place(at), 0.0), "not read yet"),
        marks=[("browse", place(browse)), ("end", place(end))],
        segment=None,
        offset=None,
        groups=groups[:GROUPS_MAX],
        more=sum(each.count for each in groups[GROUPS_MAX:]) + known.segments_left_out,
        words="",
    )


def _groups(segments: Sequence[Segment]) -> list[Group]:
    groups: list[Group] = []
    for each in segments:
        one = Group(1, each.base, each.bytes, each.messages, each.live, each.kept_by, each.sentence)
        if groups and groups[-1].kept_by == one.kept_by:
            groups[-1] = _joined(groups[-1], one)
        else:
            groups.append(one)
    return groups


def _joined(one: Group, other: Group) -> Group:
    return Group(
        one.count + 1,
        one.first,
        one.bytes + other.bytes,
        _sum(one.messages, other.messages),
        _sum(one.live, other.live),
        one.kept_by,
        one.sentence,
    )


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other
