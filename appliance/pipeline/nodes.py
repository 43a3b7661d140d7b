"""The copy of the events of all shards of several nodes, as the core fetched it from the database
(``mailcore/nodes/gathering.py``): where it is, and whether a day of it is whole.

Law: a shard whose events this copy lacks makes the day unknown. So does a copy that was made before the day was over, or of
other days: it does not know which shards and events came since.

Keeps law: nodes-balance-together (docs/laws.md).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from appliance.pipeline.cuts import Cut
from appliance.pipeline.days import Day
from appliance.pipeline.events import EventFile
from appliance.pipeline.shards import label_of
from mailcore.counted import counted

__all__ = ["NO_NUMBER", "NodesEvents", "NodesShard", "NotGathered", "read_nodes"]

NO_NUMBER = 0  # files of a shard that a database keeps do not have its number
KEPT_S = 3 * 86_400.0  # the least [export] keep_days; each node deletes by its own
CLOSED, HELD = "closed", "held"  # states: it is over; it is made of files, and runs nowhere yet


class NotGathered(Exception):
    """Raised if there is no copy, or it cannot be understood; the message says so."""


@dataclass(frozen=True)
class NodesShard:
    """A shard, and what the copy lacks of it."""

    number: int
    name: str
    events: Path
    state: str = "open"
    absent_at: float = 0.0  # then the database did not have it yet; 0.0: not known
    missing: int = 0  # files
    named: tuple[str, ...] = ()  # some of them

    @property
    def label(self) -> str:
        """Returns how words name it."""
        return label_of(self.number, self.name)


@dataclass(frozen=True)
class NodesEvents:
    """The copy, and of what time and which UTC days it is."""

    at: float
    since: str
    until: str
    shards: Mapping[int, NodesShard] = field(default_factory=dict)
    fault: str = ""  # why the database could not be asked for this run

    def why_unknown(self, shard: NodesShard, day: Day, *, now: float) -> str:
        """Returns why the events of a shard on this day may be incomplete; "" if all that the database had is here."""
        if self.at < day.end and (self.fault or now >= day.end):
            asked = datetime.fromtimestamp(self.at, ZoneInfo(day.zone)).strftime("%Y-%m-%d %H:%M")
            why = f": {self.fault}" if self.fault else ""
            return f"events of {shard.label} may be missing, because the database was asked last at {asked}{why}"
        if shard.missing:
            them, named = counted(shard.missing, "event file"), ", ".join(shard.named)
            return f"{them} of {shard.label} could not be fetched from the database ({named})"
        dts = day.partitions()
        if not self.since <= dts[0] <= dts[-1] <= self.until:
            return f"the events of {shard.label} were not fetched from the database"
        return ""

    def why_silent(
        self, shard: NodesShard, cuts: Sequence[Cut], files: Sequence[EventFile], day: Day, *, now: float
    ) -> str:
        """Returns why a shard without events of the day makes it unknown; "" if it began later, or has ended."""
        if files or shard.absent_at >= day.end or shard.state in (CLOSED, HELD):
            return ""
        if not cuts:
            return f"{shard.label} was never counted, and has no events"
        if cuts[0].at >= day.end and day.begin < now - KEPT_S:
            return f"{shard.label} may have begun before, because its first counts may be deleted"
        return ""

    def is_over(self, shard: NodesShard, cuts: Sequence[Cut], files: Sequence[EventFile], day: Day) -> bool:
        """Returns whether a shard was closed before the day: it had drained, and has no row of its own any more."""
        return shard.state == CLOSED and not files and not any(cut.at > day.begin for cut in cuts)


def read_nodes(manifest: Path, fault: str = "") -> NodesEvents:
    """Reads ``shards.json`` of the copy. ``fault``: why it was not made for this run. Raises NotGathered."""
    try:
        said = json.loads(manifest.read_text(encoding="utf-8"))
        shards = [_shard(each, manifest.parent) for each in said["shards"]]
        by_number = {each.number: each for each in shards}
        return NodesEvents(float(said["at"]), str(said["since"]), str(said["until"]), by_number, fault)
    except FileNotFoundError:
        why = fault or "the core has not fetched them from the database yet"
        raise NotGathered(f"the events of all shards are not here: {why}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NotGathered(f"{manifest} cannot be read: {error}") from error


def _shard(said: Mapping[str, Any], copy: Path) -> NodesShard:
    number = int(said["number"])
    return NodesShard(
        number=number,
        name=str(said["name"]),
        events=copy / "shards" / f"{number:02}" / "events",
        state=str(said["state"]),
        absent_at=float(said["absent_at"]),
        missing=int(said["missing"]),
        named=tuple(map(str, said["named"])),
    )
