"""The diagram of a lane: segments as boxes on a line, with marks for the browse position, the runner and the end.

Law: values only; offsets become places from 0 to ``WIDE``, for a lane of any length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
    known: Mapping[str, Any]
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
        return int(self.known.get("lag_bytes") or 0)


def lane_of(known: Mapping[str, Any], *, runner: bool = True) -> Lane:
    """Returns the diagram of a lane in the answer to ``positions``."""
    segments: Sequence[Mapping[str, Any]] = known.get("segments") or ()
    start = segments[0]["base"] if segments else int(known.get("browse") or 0)
    last = segments[-1] if segments else None
    end = max(int(known.get("end") or 0), start, last["base"] if last else 0)
    length = max(end - start, 1)

    def place(offset: float) -> float:
        return round(min(max((offset - start) / length, 0.0), 1.0) * WIDE, 2)

    boxes = []
    for number, segment in enumerate(segments):
        following = segments[number + 1]["base"] if number + 1 < len(segments) else end
        x = place(segment["base"])
        words = f"segment {segment['base']}: {segment['sentence']}"
        boxes.append(Box(x, max(place(following) - x, BOX_MIN), words))
    browse, at = int(known.get("browse") or 0), int(known.get("runner") or 0)
    base = next((each["base"] for each in reversed(segments) if each["base"] <= at), None) if runner else None
    groups = _groups(segments)
    shown = groups[:GROUPS_MAX]
    return Lane(
        name=str(known.get("lane", "")),
        known=known,
        boxes=boxes,
        behind=Box(place(browse), max(place(at) - place(browse), 0.0), "being worked on"),
        ahead=Box(place(at), max(place(end) - place(at), 0.0), "not read yet"),
        marks=[("browse", place(browse)), *([("runner", place(at))] if runner else []), ("end", place(end))],
        segment=base,
        offset=None if base is None else at - base,
        groups=shown,
        more=sum(each.count for each in groups[GROUPS_MAX:]) + int(known.get("segments_left_out") or 0),
        words=_words(known, len(segments) + int(known.get("segments_left_out") or 0), runner=runner),
    )


def journal_of(known: Mapping[str, Any]) -> Lane:
    """Returns the diagram of the journal. It has no runner; a start reads its working suffix."""
    suffix = int(known.get("suffix") or 0)
    return lane_of(
        {**known, "lane": "journal", "browse": suffix, "runner": suffix, "lag_bytes": known.get("suffix_bytes")},
        runner=False,
    )


def _groups(segments: Sequence[Mapping[str, Any]]) -> list[Group]:
    groups: list[Group] = []
    for each in segments:
        live, messages = each.get("live"), each.get("messages")
        one = Group(1, each["base"], each["bytes"], messages, live, each["kept_by"], each["sentence"])
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


def _words(known: Mapping[str, Any], segments: int, *, runner: bool) -> str:
    """Returns the diagram in words, for screen readers."""
    many = f"{segments} segment{'s' * (segments != 1)}"
    if not runner:
        return f"{many}; the working suffix begins at {known.get('browse')} and ends at {known.get('end')}"
    runner_at, end = known.get("runner"), known.get("end")
    return f"{many}; browsing begins at {known.get('browse')}, the runner is at {runner_at}, the end at {end}"
