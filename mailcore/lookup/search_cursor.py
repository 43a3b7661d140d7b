"""Where a search goes on: its place, and what of which lanes it has been through.

A segment may go between two pages, and what was in it is kept elsewhere then. So that nothing is told twice, nor left out, a
cursor says which offsets were looked at while they were there.

As text: the place, then ``;LANE:START-END`` for each stretch, END left out where it was the end of the lane. The place is
``LANE:OFFSET``, or ``>`` and the place of whoever keeps things longer; "" is the beginning.

Keeps law: cursor-tells-once (docs/laws.md).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from mailcore.lookup.browse import WITHOUT_END, CursorError

__all__ = ["SearchCursor"]

_STRETCH = re.compile(r"([^:;]+):(\d{1,19})-(\d{0,19})", re.ASCII)
_IN_LANE = re.compile(r"([^:;]+):(\d{1,19})", re.ASCII)
STRETCHES_MAX = 3  # of a lane; more segments never went under one search


@dataclass
class SearchCursor:
    """``lane`` and ``offset``: where to go on in the lanes. ``older``: the place elsewhere, once the lanes are done."""

    lane: str = ""
    offset: int = 0
    older: str | None = None
    stretches: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    @classmethod
    def read(cls, cursor: str) -> SearchCursor:
        """Raises CursorError."""
        place, *stretches = cursor.split(";")
        seen = cls()
        if place.startswith(">"):
            seen.older = place[1:]
        elif place:
            lane = _IN_LANE.fullmatch(place) or _raise(cursor)
            seen.lane, seen.offset = lane[1], int(lane[2])
        for text in stretches:
            found = _STRETCH.fullmatch(text) or _raise(cursor)
            end = int(found[3]) if found[3] else WITHOUT_END
            seen.stretches.setdefault(found[1], []).append((int(found[2]), end))
        return seen

    def been(self, lane: str, start: int, end: int) -> None:
        """It was looked at from ``start`` to ``end``."""
        if end <= start:
            return
        stretches = self.stretches.setdefault(lane, [])
        if stretches and stretches[-1][0] <= start <= stretches[-1][1]:
            stretches[-1] = stretches[-1][0], max(end, stretches[-1][1])
        else:
            stretches.append((start, end))
        if len(stretches) > STRETCHES_MAX:  # rather left out once than told twice
            stretches[-2:] = [(stretches[-2][0], stretches[-1][1])]

    def has(self, lane: str, offset: int) -> bool:
        return any(start <= offset < end for start, end in self.stretches.get(lane, ()))

    def in_lane(self, lane: str, offset: int) -> str:
        """The cursor that goes on there."""
        return f"{lane}:{offset}{self._text()}"

    def elsewhere(self, place: str) -> str:
        return f">{place}{self._text()}"

    def _text(self) -> str:
        return "".join(
            f";{lane}:{start}-{end if end < WITHOUT_END else ''}"
            for lane, stretches in self.stretches.items()
            for start, end in stretches
        )


def _raise(cursor: str) -> re.Match[str]:
    raise CursorError(f"{cursor!r} is not a cursor; allowed: the cursor that a search returned")
