"""Finds ranges of lanes that no event file holds: their events are missing in every table, even if the day balances.

A cut names how far each lane was exported; the exporter writes a file for each range, also when nothing happened in it, and
each file names the days on which its range has others. So a lost file between two cuts is detected, even one with only
deferrals or refusals.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow

from appliance.pipeline.events import EventFile, read_footer
from appliance.pipeline.shards import Sources, own_lane, shard_number

__all__ = ["Gap", "missing"]

_BEGIN = re.compile(r"\.(\d+)\.parquet$")


@dataclass(frozen=True)
class Gap:
    """A stretch of a lane that no file holds; ``day``: that its file of this UTC day is not there."""

    lane: str
    begin: int
    end: int
    day: str = ""


def missing(
    sources: Sources,
    files: Sequence[EventFile],
    begin: Mapping[str, int],
    end: Mapping[str, int],
    said: int | None = None,
) -> list[Gap]:
    """Returns the gaps in the events between these positions. ``files``: of the days in question; events missing from
    them are looked for in the files of other days; ``sources``: the events of all shards; ``said``: the number that their
    files have, if that is not the shard's."""
    found = _between(files, begin, end)
    if found:
        files = [*files, *_elsewhere(sources, found, {each.dt for each in files}, said)]
        found = _between(files, begin, end)
    good = {(each.shard, each.dt, each.path.name) for each in files}
    looked_at = {each.dt for each in files}
    inside = [each for each in files if each.lane in end and _crosses(each, begin.get(each.lane, 0), end[each.lane])]
    for each in inside:
        for day in each.days:
            if (each.shard, day, each.path.name) in good:
                continue
            there = sources[each.shard] / f"dt={day}" / each.path.name
            if day in looked_at or _read(there, day, each.shard, said) is None:
                found.append(Gap(each.lane, each.begin, each.end or each.begin, day))
    return sorted(set(found), key=lambda gap: (gap.lane, gap.begin, gap.day))


def _between(files: Sequence[EventFile], begin: Mapping[str, int], end: Mapping[str, int]) -> list[Gap]:
    found = []
    for lane, stop in end.items():
        stretches = sorted((each.begin, each.end) for each in files if each.lane == lane and each.end is not None)
        reached = begin.get(lane, 0)  # a lane that is new begins at 0
        for first, behind in stretches:
            if first > reached and reached < stop:
                found.append(Gap(lane, reached, min(first, stop)))
            reached = max(reached, behind)
        if reached < stop:
            found.append(Gap(lane, reached, stop))
    return found


def _elsewhere(sources: Sources, gaps: Sequence[Gap], looked_at: set[str], said: int | None) -> list[EventFile]:
    """Returns files of other days that begin in a gap: a range without events is filed under the day on which its
    segment was last written."""
    found = []
    for lane in {gap.lane for gap in gaps}:
        shard = shard_number(lane)
        for path in sources[shard].glob(f"dt=*/{own_lane(lane)}.*.parquet") if shard in sources else ():
            dt, number = path.parent.name.removeprefix("dt="), _BEGIN.search(path.name)
            if number is None or dt in looked_at:
                continue
            if any(gap.lane == lane and gap.begin <= int(number[1]) < gap.end for gap in gaps):
                found.append(_read(path, dt, shard, said))
    return [each for each in found if each is not None]


def _read(path: Path, dt: str, shard: int, said: int | None) -> EventFile | None:
    """Returns what a file's footer says; None if it is missing, damaged, or of another day."""
    try:
        return read_footer(path, dt, path.stat(), shard, said)
    except (OSError, ValueError, pyarrow.ArrowException):
        return None


def _crosses(file: EventFile, begin: int, end: int) -> bool:
    return file.end is not None and file.begin < end and file.end > begin
