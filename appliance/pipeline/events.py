"""The event files: which exist, are damaged, overlap, or are missing.

A file is named LANE.FROM after the range of the lane that it holds (``mailcore/events/schema.py``). Its footer names its
offsets, so that most files are known to share no row without reading them.

A damaged file is set aside: named in the report, not read again until it changes, and left where it is. A file that is
temporarily unreadable (permission, disk error, too many open files) is left out of one run only, and reported as such.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.compute
import pyarrow.parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from appliance.pipeline.shards import file_of, lane_of
from mailcore.events.checksum import check
from mailcore.events.schema import VERSION

__all__ = [
    "Damage",
    "EventFile",
    "SetAside",
    "event_paths",
    "fingerprint",
    "look",
    "nothing",
    "overlapping",
    "read_footer",
]

_PHYSICAL = {"offset": "INT64", "kind": "BYTE_ARRAY", "at": "DOUBLE"}
_AT_MAX = 2_932_896 * 86_400  # 9999-12-31, as the export has it
_NAMED = re.compile(r"(?P<lane>.+)\.(?P<begin>\d+)\.parquet")
WINDOWS = "windows"  # samples, not a lane: gaps between its files are normal


@dataclass(frozen=True)
class EventFile:
    """A file of events: the stretch of one lane that it holds, from offset ``begin`` to ``end``."""

    path: Path
    dt: str  # the UTC day of its rows
    lane: str
    begin: int  # the stretch it holds, in its lane: [begin, end)
    end: int | None  # None: it does not say
    size_bytes: int
    changed_ns: int
    rows: int
    first: int  # offsets of its rows, both included
    last: int
    damaged: int = 0  # records of its stretch that the export set aside
    kinds: frozenset[str] | None = None  # of its rows; None: its footer does not say
    days: tuple[str, ...] = ()  # the UTC days its stretch has files on
    signed: bool = True  # whether it has checksums
    identity: str = ""  # changes with each write to the file, and when it is replaced
    shard: int = 0  # of the node; ``lane`` has it, too

    @property
    def name(self) -> str:
        """Returns the name as a report shows it."""
        return file_of(f"dt={self.dt}/{self.path.name}", self.shard)

    @property
    def written(self) -> str:
        """Returns a text that identifies the file's rows: another for other rows, the same for a copy or a link of the
        file."""
        return f"{file_of(self.dt, self.shard)}/{self.path.name} {self.size_bytes} {self.changed_ns}"


@dataclass(frozen=True)
class Damage:
    """A file that cannot be read, and why. ``identity`` changes when the file does."""

    file: str  # "dt=2026-11-20/journal.0.parquet"
    why: str
    identity: str

    @classmethod
    def of(cls, file: str, why: object, identity: str) -> Damage:
        """Returns a Damage with the reason shortened to one line of 300 characters."""
        return cls(file, " ".join(str(why).split())[:300], identity)


class SetAside:
    """The damaged files, stored so that each is detected once. If the list is unreadable, it is set aside itself (``fault``
    names it) and the files are checked again. Temporarily unreadable files are known for one run only, so that all its
    steps use the same files."""

    def __init__(self, kept: Path) -> None:
        self.kept = kept
        self.known: dict[str, Damage] = {}
        self._now: dict[str, Damage] = {}
        self.fault = ""
        try:
            self.known = {each["identity"]: Damage(**each) for each in json.loads(kept.read_text(encoding="utf-8"))}
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError) as error:
            broken = kept.with_suffix(".broken")
            kept.replace(broken)
            self.fault = f"{kept.name} could not be read, and is {broken.name} now: {error}"[:300]

    def of(self, identity: str) -> Damage | None:
        """Returns the damage known of a file, None if there is none."""
        return self.known.get(identity) or self._now.get(identity)

    def found(self, file: str, identity: str, error: Exception) -> Damage:
        """Returns the damage for an error while reading. Arrow raises an OSError without a number for invalid content."""
        if isinstance(error, OSError) and error.errno is not None:
            return self.not_now(file, identity, error.strerror or os.strerror(error.errno))
        damage = Damage.of(file, error, identity)
        self.add(damage)
        return damage

    def not_now(self, file: str, identity: str, why: str) -> Damage:
        """Sets a file aside for this run only, and returns its damage."""
        damage = Damage.of(file, f"cannot be read now ({why}); the next run tries again", identity)
        self._now[identity] = damage
        return damage

    def add(self, damage: Damage) -> None:
        """Sets a file aside for good, and stores it for later runs."""
        self.known = {name: each for name, each in self.known.items() if each.file != damage.file}
        self.known[damage.identity] = damage
        text = json.dumps(
            [vars(each) for each in sorted(self.known.values(), key=lambda each: each.identity)], indent=1
        )
        fresh = self.kept.with_suffix(".new")
        with fresh.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.kept)


def event_paths(events: Path, dt: str = "*") -> Iterator[Path]:
    """Yields the event files of a UTC day, or of all days. A file that is being written has a dot before its name."""
    return (path for path in events.glob(f"dt={dt}/*.parquet") if not path.name.startswith((".", "_")))


def look(
    events: Path, dt: str, aside: SetAside, shard: int = 0, said: int | None = None
) -> tuple[list[EventFile], list[Damage]]:
    """Returns the event files of a UTC day: the readable ones, judged by their footers, and the damaged ones. ``said``: the
    number that its files have, if that is not the shard's."""
    good, damaged = [], []
    for path in sorted(event_paths(events, dt)):
        try:
            stat = path.stat()
        except OSError as error:  # a link that leads nowhere, or it is gone again
            damaged.append(Damage.of(file_of(f"dt={dt}/{path.name}", shard), error, ""))
            continue
        identity = _identity(path, dt, stat, shard)
        damage = aside.of(identity)
        if damage is None:
            try:
                good.append(read_footer(path, dt, stat, shard, said))
                continue
            except (OSError, ValueError, pyarrow.ArrowException) as error:
                damage = aside.found(file_of(f"dt={dt}/{path.name}", shard), identity, error)
        damaged.append(damage)
    return good, damaged


def _identity(path: Path, dt: str, stat: os.stat_result, shard: int) -> str:
    """Returns a text that identifies the file's content. Size and modification time alone do not reveal a flipped byte,
    or a good file that ``cp -p`` restored."""
    return f"{file_of(dt, shard)}/{path.name} {stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns} {stat.st_ino}"


def read_footer(path: Path, dt: str, stat: os.stat_result, shard: int = 0, said_shard: int | None = None) -> EventFile:
    """Raises OSError, ValueError or what Arrow raises: it is damaged, or none of ours. ``said_shard``: as ``said`` of look."""
    named = _NAMED.fullmatch(path.name)
    if named is None:
        raise ValueError("it is not named as events are: LANE.OFFSET.parquet")
    signed = check(path, whole=False)
    footer = pyarrow.parquet.read_metadata(path)
    said = {
        key.decode(): value.decode() for key, value in (footer.metadata or {}).items() if key.startswith(b"waypost.")
    }
    version = int(said.get("waypost.events", VERSION))
    if version > VERSION:
        raise ValueError(f"events of version {version}; this program knows {VERSION}")
    if int(said.get("waypost.shard", 0)) != (shard if said_shard is None else said_shard):
        raise ValueError(
            f"it has events of shard {said.get('waypost.shard', 0)}, and lies among those of shard {shard}: it was copied or"
            " moved"
        )
    if said.get("waypost.lane", named["lane"]) != named["lane"]:
        raise ValueError(f"its name says {named['lane']}, and it has events of {said['waypost.lane']}")
    if int(said.get("waypost.from") or named["begin"]) != int(named["begin"]):
        raise ValueError(
            f"its name says offset {named['begin']}, and it begins at {said['waypost.from']}: it was renamed"
        )
    if days_of_rows := _days(path, footer) - {dt}:
        raise ValueError(
            f"it has events of {', '.join(sorted(days_of_rows))}, and lies in dt={dt}: it was copied or moved"
        )
    first, last = _offsets(footer)
    lost = json.loads(said.get("waypost.damaged", "[]"))
    if not isinstance(lost, list):
        raise ValueError("its list of damaged records is invalid")
    days = json.loads(said.get("waypost.days", "[]"))
    if not isinstance(days, list):
        raise ValueError("its list of days is invalid")
    end = said.get("waypost.to")
    return EventFile(
        path=path,
        dt=dt,
        lane=lane_of(named["lane"], shard),
        shard=shard,
        begin=int(named["begin"]),
        end=None if end is None else int(end),
        size_bytes=stat.st_size,
        changed_ns=stat.st_mtime_ns,
        rows=footer.num_rows,
        first=first,
        last=last,
        damaged=len(lost),
        kinds=_kinds(footer),
        days=tuple(map(str, days)),
        signed=signed,
        identity=_identity(path, dt, stat, shard),
    )


def _days(path: Path, footer: pyarrow.parquet.FileMetaData) -> set[str]:
    """Returns the UTC days of its oldest and its newest row; none for a file without rows. The export files an impossible time
    under the first day there is."""
    bounds = _bounds(footer, "at")
    if bounds is None:
        found = pyarrow.compute.min_max(pyarrow.parquet.read_table(path, columns=["at"])["at"]).as_py()
        bounds = [] if found["min"] is None else [(found["min"], found["max"])]
    return {_day_of(at) for pair in bounds for at in pair}


def _day_of(at: float) -> str:
    return datetime.fromtimestamp(at if 0 <= at < _AT_MAX else 0, UTC).date().isoformat()


def _offsets(footer: pyarrow.parquet.FileMetaData) -> tuple[int, int]:
    """Returns the least and the greatest offset; without statistics, the whole range."""
    bounds = _bounds(footer, "offset")
    if bounds is None:
        return 0, (1 << 63) - 1
    return (min(least for least, _ in bounds), max(most for _, most in bounds)) if bounds else (0, -1)


def _kinds(footer: pyarrow.parquet.FileMetaData) -> frozenset[str] | None:
    """Returns the kinds in the file, None if they are unknown. The export writes each kind into its own row groups."""
    bounds = _bounds(footer, "kind")
    if bounds is None or any(least != most for least, most in bounds):
        return None
    return frozenset(least for least, _ in bounds)


def _bounds(footer: pyarrow.parquet.FileMetaData, name: str) -> list[tuple[Any, Any]] | None:
    """Returns the least and the greatest value of a column for each row group; None if one has no statistics. Raises
    ValueError if the file does not contain events."""
    column = [footer.schema.column(index).path for index in range(footer.num_columns)].index(name)
    if (kind := footer.schema.column(column).physical_type) != _PHYSICAL[name]:
        raise ValueError(f"its column {name} is {kind}")
    told = [footer.row_group(group).column(column).statistics for group in range(footer.num_row_groups)]
    if any(each is None or not each.has_min_max for each in told):
        return None
    return [(each.min, each.max) for each in told]


def fingerprint(files: Iterable[EventFile], version: int) -> str:
    """Returns a hash that is the same for the same files read by the same version of the code."""
    told = "\n".join([str(version), *sorted(each.written for each in files)])
    return hashlib.sha256(told.encode()).hexdigest()


def overlapping(files: Sequence[EventFile]) -> list[EventFile]:
    """Returns the files that may share rows with another file: of the same lane, with overlapping ranges of offsets."""
    lanes: dict[str, list[EventFile]] = defaultdict(list)
    for each in files:
        if each.rows:
            lanes[each.lane].append(each)
    found: set[Path] = set()
    for those in lanes.values():
        those.sort(key=lambda each: (each.first, each.last))
        furthest = those[0]
        for each in those[1:]:
            if each.first <= furthest.last:
                found |= {each.path, furthest.path}
            if each.last > furthest.last:
                furthest = each
    return [each for each in files if each.path in found]


def nothing(session: SparkSession, schema: StructType) -> DataFrame:
    """Returns a DataFrame with these columns and without rows; needs no Python process of Spark."""
    return session.range(0).select(*(F.lit(None).cast(each.dataType).alias(each.name) for each in schema.fields))
