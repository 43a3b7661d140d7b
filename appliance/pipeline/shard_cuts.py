"""The counts of the queues of several shards between which a day balances: a pair for each shard, and both joined.

The shards of a node are counted one after the other, so the counts at a day's end are not of one instant. Each shard has
lanes of its own, and its events are those between its own two counts, by position. So the sum over the shards balances if each
does (docs/decisions/0101-the-days-of-shards.md).

Law: what is not known of a shard makes the day unknown: never is a shard left out of it because it is silent. A shard is not
part of a day only if it had not begun, or was closed before (``closed``: drained, and counted as empty).

Keeps law: shards-balance-together, law: nodes-balance-together (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from appliance.pipeline.cuts import FAR_S, NEAR_S, Cut, ends, words_from_to
from appliance.pipeline.days import Day
from appliance.pipeline.events import WINDOWS, EventFile
from appliance.pipeline.shards import label_of, lane_of, own_lane, shard_column
from mailcore.events.schema import CHECKSUM_WRAPS

__all__ = ["Ends", "displaced", "ends_of_shard", "joined", "known_before", "stretch_of"]


SLACK_S = 600  # between the time of an event and that of the record that has it; the longest transaction of SMTP has 10 minutes


@dataclass(frozen=True)
class Ends:
    """The counts of a shard between which its day balances; ``why``: its balance is unknown."""

    shard: int
    first: Cut | None = None
    last: Cut | None = None
    why: str = ""
    begins: bool = False  # it was counted for the first time within the day
    name: str = ""  # in the database that keeps it

    @property
    def label(self) -> str:
        """Returns how words name the shard."""
        return label_of(self.shard, self.name)

    @property
    def closed(self) -> bool:
        """Returns whether the shard was empty and closed at the end."""
        return self.last is not None and self.last.closed


def known_before(said: Mapping[str, Any], *, also_closed: bool = False, named: bool = False) -> dict[int, str]:
    """Returns the shards that a report of a day (``report.json``) has, with their names; those that were closed only on
    request. ``named``: those that a database keeps, else those of one node: the numbers have nothing to do with each other."""
    told = said.get("balance")
    rows = told.get("shards") if isinstance(told, dict) else None
    found = {}
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict) and isinstance(row.get("shard"), int) and (also_closed or not row.get("closed")):
            name = str(row.get("name") or "")
            if bool(name) == named:
                found[row["shard"]] = name
    return found


def ends_of_shard(
    shard: int,
    cuts: Sequence[Cut],
    day: Day,
    files: Sequence[EventFile],
    *,
    so_far: bool,
    known: bool,
    name: str = "",
) -> Ends | None:
    """Returns the counts of one of several shards; None if it had no part in the day. ``files``: its events of the day;
    ``known``: the report of the day before has it."""
    lanes = [each for each in files if own_lane(each.lane) != WINDOWS]
    if not lanes and not known and (not cuts or cuts[0].at >= day.end):
        return None
    first, last = _ends_behind(cuts, day, so_far) if name else ends(cuts, day)
    earlier = [cut for cut in cuts if cut.at <= day.begin]
    if earlier and earlier[-1].closed:  # since then nothing has happened, or it was started again within the day
        first = replace(earlier[-1], at=day.begin)
    newest = cuts[-1] if cuts else None
    if newest is not None and newest.closed and newest.at < day.end:
        last = replace(newest, at=day.end)
        if newest.at <= day.begin and not lanes:
            return None
        if any((each.end or 0) > (newest.exported or {}).get(each.lane, 0) for each in lanes):
            return Ends(shard, name=name, why=f"{label_of(shard, name)} has events from after it was closed")
    began = bool(cuts) and first is cuts[0] and not known
    if first is not None and abs(first.at - day.begin) > FAR_S and not began:
        first = None  # it was there before, and the counts of then are not
    if last is not None and last.at < day.end - FAR_S and not so_far:
        last = None  # it has been silent since
    if first is None or last is None or first is last:
        which = "start and end" if (first is None) == (last is None) else "start" if first is None else "end"
        return Ends(shard, name=name, why=f"{label_of(shard, name)} was not counted at the {which} of the day")
    if not last.lanes:
        return Ends(shard, name=name, why=f"{label_of(shard, name)} was counted by an older version")
    return Ends(shard, first, last, begins=began, name=name)


def _ends_behind(cuts: Sequence[Cut], day: Day, so_far: bool) -> tuple[Cut | None, Cut | None]:
    """Returns the first counts behind the beginning and the end of the day: a count of before may lack events of the day,
    which another node exports when it has taken the shard over."""
    first, last = (next((cut for cut in cuts if at <= cut.at <= at + FAR_S), None) for at in (day.begin, day.end))
    inside = [cut for cut in cuts if day.begin < cut.at < day.end]
    if first is None and inside and cuts[0] is inside[0]:
        first = inside[0]
    if so_far and inside:
        last = inside[-1]
    return first, last


def joined(cuts: Sequence[Cut], at: float) -> Cut:
    """Returns the counts of several shards as one: sums, and the lanes of all."""

    def of_lanes(name: str) -> dict[str, Any] | None:
        told = [(cut, getattr(cut, name)) for cut in cuts]
        if any(lanes is None for _, lanes in told):
            return None
        return {lane_of(own_lane(lane), cut.shard): value for cut, lanes in told for lane, value in lanes.items()}

    checksums = [cut.checksum for cut in cuts if cut.checksum is not None]
    named = [cut.ids for cut in cuts if cut.ids is not None]
    return Cut(
        at=at,
        messages=sum(cut.messages for cut in cuts),
        recipients=sum(cut.recipients for cut in cuts),
        lanes=of_lanes("lanes") or {},
        checksum=sum(checksums) % CHECKSUM_WRAPS if len(checksums) == len(cuts) else None,
        exported=of_lanes("exported"),
        counted=of_lanes("counted"),
        ids=named[0] if len(named) == len(cuts) else None,
        more_ids=tuple(named[1:]) if len(named) == len(cuts) else (),
    )


def displaced(pairs: Sequence[Ends]) -> Column:
    """Returns the condition that an event happened long before the last count of its shard and lies behind it, or long after
    the first and lies before it: then a count was not taken when it says."""
    at, found = F.unix_micros("at"), F.lit(False)
    for pair in pairs:
        if pair.first is not None and pair.last is not None:
            before = (F.col("offset") < _reached(pair.first)) & (at > int((pair.first.at + SLACK_S) * 1e6))
            behind = (F.col("offset") >= _reached(pair.last)) & (at < int((pair.last.at - SLACK_S) * 1e6))
            found = found | ((shard_column() == pair.shard) & (before | behind))
    return found


def _reached(cut: Cut) -> Column:
    """Returns up to which position of its lane an event is covered by a count; 0: the lane was not there."""
    reached = F.lit(0)
    for lane, end in sorted(cut.lanes.items()):
        reached = F.when(F.col("lane") == lane, end).otherwise(reached)
    return reached


def stretch_of(pairs: Sequence[Ends], day: Day, so_far: bool) -> tuple[float, float, str]:
    """Returns from when to when the counts of all shards cover the day, and the beginning of a sentence about it.

    A shard that began within the day covers all of what it was there.
    """
    begins = [pair.first.at for pair in pairs if pair.first is not None and not pair.begins]
    first = max(begins or [pair.first.at for pair in pairs if pair.first is not None])
    last = min(pair.last.at for pair in pairs if pair.last is not None)
    if not so_far and abs(first - day.begin) <= NEAR_S and abs(last - day.end) <= NEAR_S:
        return first, last, ""
    return first, last, words_from_to(day, first, last, so_far)
