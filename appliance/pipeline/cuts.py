"""Counts of the queue at one moment ("cuts"), made by reading the lanes. They are the only input of a report besides
events."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from pyspark.sql import Column
from pyspark.sql import functions as F

from appliance.pipeline.days import Day
from appliance.pipeline.shards import file_of, lane_of

__all__ = ["CountedLane", "Cut", "before", "between", "cuts_in", "ends", "nearest", "stretch", "words_from_to"]

FAR_S = 2 * 3_600  # a cut further from a day's end than this says nothing of the day
NEAR_S = 60  # midnight's own cut is some seconds late


@dataclass(frozen=True)
class CountedLane:
    """The counters of a lane's exported rows, from offset ``since`` up to ``at``, by name (``mailcore/events/schema.py``)."""

    since: int
    at: int
    counts: Mapping[str, int]


@dataclass(frozen=True)
class Cut:
    """A count of the queue at one moment, and how far each lane was exported then."""

    at: float  # wall clock, seconds
    messages: int  # queued
    recipients: int  # queued, those that are done not counted
    lanes: Mapping[str, int] = field(default_factory=dict)  # records before these positions are included
    checksum: int | None = None  # of what is queued, as ``mailcore/events/schema.py`` has it; None: an older version's
    exported: Mapping[str, int] | None = None  # files of events have these lanes up to there; None: an older version's
    counted: Mapping[str, CountedLane] | None = None  # sums of the exported rows by lane; None: an older version's
    ids: Path | None = None  # a JSON line for each queued message, on request
    more_ids: tuple[Path, ...] = ()  # of further shards
    shard: int = 0  # of the node
    closed: bool = False  # the shard was drained: nothing happens until it is started again


def cuts_in(events: Path, shard: int = 0, said: int | None = None) -> tuple[list[Cut], list[str]]:
    """Returns all cuts below ``events/cuts``, ordered by time, and the unreadable files with their errors. The lanes of
    a shard but the first have the names of the node. ``said``: the number that the files have, if that is not the shard's."""
    cuts, unreadable = [], []
    for path in sorted((events / "cuts").glob("*.json")):
        if path.name.startswith((".", "_")):
            continue
        try:
            cuts.append(_read(path, shard, said))
        except (OSError, ValueError, KeyError, TypeError) as error:
            unreadable.append(f"{file_of(f'cuts/{path.name}', shard)}: {type(error).__name__} {error}"[:300])
    return sorted(cuts, key=lambda cut: cut.at), unreadable


def _read(path: Path, shard: int, number: int | None) -> Cut:
    said = json.loads(path.read_text(encoding="utf-8"))
    if int(said.get("shard", 0)) != (shard if number is None else number):
        raise ValueError(f"it counts shard {said.get('shard', 0)}, and lies among those of shard {shard}")
    return Cut(
        at=float(said["at"]),
        messages=int(said["messages"]),
        recipients=int(said["recipients"]),
        lanes=_positions(said.get("lanes"), shard),
        exported=None if said.get("exported") is None else _positions(said["exported"], shard),
        counted=None if said.get("counted") is None else _counted(said["counted"], shard),
        checksum=None if said.get("checksum") is None else int(said["checksum"]),
        ids=path.parent / Path(said["ids"]).name if said.get("ids") else None,
        shard=shard,
        closed=said.get("closed") is True,
    )


def _positions(said: Mapping[str, int] | None, shard: int) -> dict[str, int]:
    return {lane_of(str(lane), shard): int(offset) for lane, offset in (said or {}).items()}


def _counted(said: Mapping[str, Any], shard: int) -> dict[str, CountedLane]:
    return {
        lane_of(str(lane), shard): CountedLane(int(each["since"]), int(each["at"]), _positions(each["counts"], 0))
        for lane, each in said.items()
    }


def nearest(cuts: Sequence[Cut], at: float) -> Cut | None:
    """Returns the cut nearest to a time, None if it is farther than ``FAR_S``."""
    near = min(cuts, key=lambda cut: abs(cut.at - at), default=None)
    return near if near is not None and abs(near.at - at) <= FAR_S else None


def ends(cuts: Sequence[Cut], day: Day) -> tuple[Cut | None, Cut | None]:
    """Returns the cuts between which the day balances: those nearest to its beginning and its end. If counting began
    within the day, the first is the first cut; if there is no cut since the day's end, or the day is not over, the last
    is the latest cut."""
    first, last = nearest(cuts, day.begin), nearest(cuts, day.end)
    inside = [cut for cut in cuts if day.begin < cut.at < day.end]
    if first is None and inside and cuts[0] is inside[0]:
        first = inside[0]
    if last is None and inside and cuts[-1] is inside[-1]:
        last = inside[-1]
    return first, last


def stretch(cuts: Sequence[Cut], day: Day, first: Cut, last: Cut) -> str:
    """Returns the beginning of a sentence that names the time between the cuts, "So far, from 00:00 to 14:35: "; "" if
    it is the whole day."""
    so_far = last is cuts[-1] and last.at < day.end
    if not so_far and abs(first.at - day.begin) <= NEAR_S and abs(last.at - day.end) <= NEAR_S:
        return ""
    return words_from_to(day, first.at, last.at, so_far)


def words_from_to(day: Day, first: float, last: float, so_far: bool) -> str:
    """Returns the beginning of a sentence that names a time of the day."""
    return f"{'So far, from' if so_far else 'From'} {_clock(day, first)} to {_clock(day, last)}: "


def _clock(day: Day, at: float) -> str:
    """Returns the local time; with the date if it is not the day's, and with the UTC offset if the day has not 24 hours."""
    there = datetime.fromtimestamp(at, ZoneInfo(day.zone))
    shift = " %z" if len(day.hours()) != 24 else ""
    return there.strftime(f"%H:%M{shift}" if there.date() == day.date else f"%Y-%m-%d %H:%M{shift}")


def between(first: Cut, last: Cut) -> Column:
    """Returns the condition that an event lies after the first cut and before the last: by position, or by time if the
    last names no positions."""
    if not last.lanes:
        at = F.unix_micros("at")
        return (at >= int(first.at * 1e6)) & (at < int(last.at * 1e6))
    inside = F.lit(False)
    for lane, end in sorted(last.lanes.items()):
        offset = F.col("offset")
        inside = inside | ((F.col("lane") == lane) & (offset >= first.lanes.get(lane, 0)) & (offset < end))
    return inside


def before(first: Cut, last: Cut) -> Column:
    """Returns the condition that an event lies before the first of two cuts: by position, or by time if the last names no
    positions."""
    if not last.lanes:
        return F.unix_micros("at") < int(first.at * 1e6)
    earlier = F.lit(False)
    for lane in sorted(last.lanes):
        earlier = earlier | ((F.col("lane") == lane) & (F.col("offset") < first.lanes.get(lane, 0)))
    return earlier
