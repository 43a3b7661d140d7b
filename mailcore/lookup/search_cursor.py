"""The cursor of a search: the place where it continues, and the parts of lanes that it has read.

A segment may be deleted between two pages; its messages are then in the archive only. The cursor says which offsets were read
while they were in the log, so that no message is returned twice or left out.

As text: the place, then ``;LANE:START-END`` for each stretch, with END left out for the end of the lane. The place is
``LANE:OFFSET``, or ``>`` and a place in the archive; "" is the beginning.

Keeps law: cursor-tells-once (docs/laws.md).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from mailcore.lookup.browse import WITHOUT_END, CursorError

__all__ = ["SearchCursor"]

_STRETCH = re.compile(r"([^:;]+):(\d{1,19})-(\d{0,19})", re.ASCII)
_IN_LANE = re.compile(r"([^:;]+):(\d{1,19})", re.ASCII)
STRETCHES_MAX = 3  # of a lane; rarely are more segments deleted during one search


@dataclass
class SearchCursor:
    """Holds a cursor: ``lane`` and ``offset`` in the lanes, or, after the lanes, ``older``, the place in the archive."""

    lane: str = ""
    offset: int = 0
    older: str | None = None
    stretches: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    @classmethod
    def read(cls, cursor: str) -> SearchCursor:
        """Parses the text form. Raises CursorError."""
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
        """Records that the lane was read from ``start`` to ``end``."""
        if end <= start:
            return
        stretches = self.stretches.setdefault(lane, [])
        if stretches and stretches[-1][0] <= start <= stretches[-1][1]:
            stretches[-1] = stretches[-1][0], max(end, stretches[-1][1])
        else:
            stretches.append((start, end))
        if len(stretches) > STRETCHES_MAX:  # leaving a message out is better than returning it twice
            stretches[-2:] = [(stretches[-2][0], stretches[-1][1])]

    def has(self, lane: str, offset: int) -> bool:
        """Returns True if the offset was read."""
        return any(start <= offset < end for start, end in self.stretches.get(lane, ()))

    def in_lane(self, lane: str, offset: int) -> str:
        """Returns the text of a cursor that continues at this offset of a lane."""
        return f"{lane}:{offset}{self._text()}"

    def elsewhere(self, place: str) -> str:
        """Returns the text of a cursor that continues at this place of the archive."""
        return f">{place}{self._text()}"

    def _text(self) -> str:
        return "".join(
            f";{lane}:{start}-{end if end < WITHOUT_END else ''}"
            for lane, stretches in self.stretches.items()
            for start, end in stretches
        )


def _raise(cursor: str) -> re.Match[str]:
    raise CursorError(f"{cursor!r} is not a cursor; allowed: the cursor that a search returned")
