"""The steps of a day's report: events, silver, tables, comparison, balance; then all of it is published at once.

Laws
- The tables of a day, its balance and report.json are written aside, and seen together (``store``).
- A file that is not as it was written, or that Spark cannot read, is set aside and named, and the step is done again
  without it.
- The same events and cuts make the same tables, byte for byte except for the version of the library that writes them.

Keeps law: same-events-same-tables (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from appliance.pipeline import ages, comparison
from appliance.pipeline.balance import UNBALANCED, UNCHECKED, Balance, balance, suspects
from appliance.pipeline.counters import altered
from appliance.pipeline.cuts import Cut, cuts_in, ends, stretch
from appliance.pipeline.daily_tables.arrivals import arrivals, came
from appliance.pipeline.daily_tables.cells import OUTCOMES, by_name, cells
from appliance.pipeline.daily_tables.correspondents import clients, recipients, senders
from appliance.pipeline.daily_tables.delays import with_quantiles
from appliance.pipeline.daily_tables.encryption import encryption
from appliance.pipeline.daily_tables.facts import Facts
from appliance.pipeline.daily_tables.hours import hours
from appliance.pipeline.daily_tables.labels import LABELS, label, labelled
from appliance.pipeline.daily_tables.reasons import reasons
from appliance.pipeline.daily_tables.refused import refused
from appliance.pipeline.daily_tables.told_apart import ToldApart, tell_apart
from appliance.pipeline.daily_tables.totals import totals
from appliance.pipeline.daily_tables.windows import windows
from appliance.pipeline.days import HOUR_S, Day, utc_days
from appliance.pipeline.events import Damage, EventFile, SetAside, fingerprint, look
from appliance.pipeline.missing import missing
from appliance.pipeline.nodes import CLOSED, NO_NUMBER, NodesEvents, NodesShard
from appliance.pipeline.rows import Unreadable
from appliance.pipeline.shard_cuts import Ends, ends_of_shard, joined, known_before, stretch_of
from appliance.pipeline.shards import Sources, label_of
from appliance.pipeline.silver import VERSION as SILVER_VERSION
from appliance.pipeline.silver import Silver, made, make
from appliance.pipeline.store import VERSION, Store
from appliance.pipeline.tables import UNREADABLE, damaged, read_table, write_table
from appliance.pipeline.verify import all_unchanged
from mailcore.balance import Scope, terms
from mailcore.counted import counted

__all__ = ["ReportBuilder", "Told", "read_table", "write_json"]

DAMAGED_MAX = 100  # files set aside in one run; more, and something else is wrong
UNSIGNED_MAX = 100  # named
HISTORY_DAYS = 10  # read back for those that do not add up: a queue lifetime of five days, twice
QUERIES_AT_ONCE = 4  # while one is planned or collected, another keeps the cores busy
SMALL_ROWS = 200_000  # a second of work for one core
ROWS_PER_PARTITION = 1_000_000  # of a shuffle: some tens of megabytes

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Told:
    """The content of report.json, which describes a report."""

    directory: Path
    words: str
    balances: bool | None
    content: dict[str, Any] = field(default_factory=dict)
    unmade: tuple[str, ...] = ()  # weeks and months that could not be, and why


@dataclass
class ReportBuilder:
    """Builds the reports of one run: its Spark session, which may still be starting, its store and the events it reads."""

    starting: SparkSession | Future[SparkSession]
    store: Store
    events: Path
    progress: Progress
    now: Callable[[], float] = time.time
    shards: Sources = field(default_factory=dict)  # the events of further shards of the node, by number
    nodes: NodesEvents | None = None  # the events of all shards of several nodes, instead of those of this one

    def __post_init__(self) -> None:
        self.aside = SetAside(self.store.root / "set_aside.json")
        self._silver: dict[str, Silver] = {}
        self._files: dict[str, list[EventFile]] = {}
        self._damaged: dict[str, list[Damage]] = {}
        self._left_out: list[str] = []  # of the day being made: unreadable tables of earlier days

    @property
    def session(self) -> SparkSession:
        """Returns the session; waits until it has started. Raises what its start raised."""
        return self.starting.result() if isinstance(self.starting, Future) else self.starting

    # -- silver

    def silver(self, dts: Sequence[str]) -> list[Silver]:
        """Returns the silver data of these UTC days; makes it if it is missing or was made from other files."""
        for dt in dts:
            self._make_silver(dt)
        return [self._silver[dt] for dt in dts]

    def _make_silver(self, dt: str) -> None:
        for _ in range(DAMAGED_MAX):
            if dt in self._silver:
                return
            files, damaged = self._look(dt)
            self._files[dt], self._damaged[dt] = files, damaged
            if made(self.store, dt, files) is None and not all_unchanged(files, self.aside):
                continue
            try:
                self._silver[dt] = make(self.store, dt, files)
            except Unreadable as error:
                self.aside.found(error.file.name, error.file.identity, error.cause)
        raise RuntimeError(f"more than {DAMAGED_MAX} damaged files on {dt}")

    @property
    def _sources(self) -> Sources:
        if self.nodes is not None:
            return {number: shard.events for number, shard in self.nodes.shards.items()}
        return {0: self.events, **self.shards}

    @property
    def _said(self) -> int | None:
        """Returns the number that all files have, if that is not the one of their shard."""
        return None if self.nodes is None else NO_NUMBER

    def _look(self, dt: str) -> tuple[list[EventFile], list[Damage]]:
        """Returns the event files of a UTC day, of all shards, and those that are damaged."""
        good: list[EventFile] = []
        damaged: list[Damage] = []
        for shard, events in sorted(self._sources.items()):
            found, broken = look(events, dt, self.aside, shard, self._said)
            good += found
            damaged += broken
        return good, damaged

    def partition(self, rows: int) -> None:
        """Sets the number of tasks of a step: one for each ``ROWS_PER_PARTITION`` rows; more would only cost time."""
        least = 1 if rows < SMALL_ROWS else self.session.sparkContext.defaultParallelism
        number = max(least, min(2_000, rows // ROWS_PER_PARTITION + 1))
        self.session.conf.set("spark.sql.shuffle.partitions", str(number))

    # -- a day

    def day(self, day: Day) -> Told:
        """Builds and publishes the day, even if it exists."""
        so_far = self.now() < day.end
        self._left_out = [self.aside.fault] if self.aside.fault else []
        dts = day.partitions()
        counts, unreadable = self._counts()
        pairs = self._pairs(counts, day, so_far)
        cuts = counts.get(0, [])
        first, last = self._whole(pairs, day, so_far) if pairs else ends(cuts, day)
        both = [(first, last), *((pair.first, pair.last) for pair in pairs)]
        known = [(begin.at, finish.at) for begin, finish in both if begin is not None and finish is not None]
        balanced_dts = []
        if known:
            begin, finish = min(begin for begin, _ in known), max(finish for _, finish in known)
            balanced_dts = utc_days(min(begin - HOUR_S, day.begin), max(finish + HOUR_S, day.end))
        self.progress("reading events", 0.02)
        self.silver(sorted({*dts, *balanced_dts}))
        silver = self.silver(dts)
        aside = self.store.begin(f"gold/{day.name}")
        with ThreadPoolExecutor(2) as beside:
            apart = beside.submit(tell_apart, day, silver, {})  # needs no Spark, which may still be starting
            self.partition(sum(each.rows for each in silver))
            facts = Facts(self.session, day, silver)
            balancing = beside.submit(self._balance, first, last, balanced_dts, day, pairs)
            self._tables(facts, aside, apart)
        self._ages(day, aside, last.at if last is not None and last.at < day.end else min(self.now(), day.end))
        self.progress("comparing with earlier days", 0.85)
        self._compare(day, aside, so_far)
        self.progress("balancing", 0.88)
        balanced = balancing.result().of_day(_total(aside), facts.repeated)
        facts.forget()
        if pairs and balanced.begin is not None:
            balanced.words = stretch_of(pairs, day, so_far)[2] + balanced.words
        elif not pairs and first is not None and last is not None and first is not last:
            balanced.words = stretch(cuts, day, first, last) + balanced.words
        if self.nodes is not None:
            write_table(aside / "shards", _shards(balanced))
        told = self._told(day, aside, balanced, unreadable)
        told.content.update(
            so_far=so_far, day_before=self._day_before(day, so_far), left_out=list(dict.fromkeys(self._left_out))
        )
        write_json(aside / "report.json", told.content)
        self.store.publish(aside, f"gold/{day.name}")
        return told

    def stale(self, day: Day) -> bool:
        """Returns whether the day was made from other files or another time zone than now, or by other code, or cannot
        be read. A day that was never made is not stale."""
        version = self.store.current(f"gold/{day.name}")
        if version is None:
            return False
        try:
            said = json.loads((version / "report.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return True
        if not isinstance(said, dict) or damaged(version):
            return True
        if said.get("zone") != day.zone or said.get("inputs") != self._inputs(day):
            return True
        # It was unknown because of a shard, which another node has counted since.
        is_unknown = self.nodes is not None and (said.get("balance") or {}).get("balances") is None
        return is_unknown and not any(pair.why for pair in self._pairs(self._counts()[0], day, so_far=False))

    def _counts(self) -> tuple[dict[int, list[Cut]], list[str]]:
        """Returns the counts of each shard, and the files that cannot be read."""
        counts, unreadable = {}, []
        for shard, events in sorted(self._sources.items()):
            counts[shard], those = cuts_in(events, shard, self._said)
            unreadable += those
        return counts, unreadable

    def _inputs(self, day: Day) -> str:
        files = [each for dt in day.partitions() for each in self._look(dt)[0]]
        return fingerprint(files, VERSION * 1000 + SILVER_VERSION)

    def _tables(self, facts: Facts, aside: Path, counting: Future[ToldApart]) -> None:
        queries: dict[str, Callable[[], DataFrame]] = {
            "cells": lambda: cells(facts),
            "labelled": lambda: labelled(facts),
            "came": lambda: came(facts),
            "reasons": lambda: reasons(facts),
            "recipients": lambda: recipients(facts),
            "encryption": lambda: encryption(facts),
            "refused": lambda: refused(facts),
            "windows": lambda: windows(facts),
        }
        without = {name for name, kind in (("refused", "refused"), ("windows", "window")) if not facts.has(kind)}

        def told(done: int) -> None:
            self.progress("counting", 0.35 + 0.5 * done / len(queries))

        found = self.together(queries, told, without)
        apart = counting.result()
        if apart.several:  # few days have any: then what was counted is counted again, each of them once
            facts.tell_apart()
            apart = tell_apart(facts.day, facts.silver, facts.later)
            found = self.together(queries, told, without)
        tables = {name: found[name] for name in ("reasons", "recipients", "encryption", "refused", "windows")}
        tables |= {
            "totals": totals(found["came"], found["cells"]),
            "destinations": by_name(found["cells"], apart.counts, "destination"),
            "providers": by_name(found["cells"], apart.counts, "provider"),
            "senders": senders(found["came"]),
            "clients": clients(found["came"]),
            "hours": hours(facts.day, found["came"], found["labelled"]),
            "arrivals": arrivals(found["came"]),
            **{table: label(found["labelled"], table) for table in LABELS},
        }
        for name, table in tables.items():
            write_table(aside / name, with_quantiles(table))

    def together(
        self, queries: dict[str, Callable[[], DataFrame]], made_so_many: Callable[[int], None], without: Set[str]
    ) -> dict[str, pyarrow.Table]:
        """Returns the results of these queries; several are under way at a time. ``without``: queries of what the day does
        not have: their results have no rows."""
        found = {}
        with ThreadPoolExecutor(QUERIES_AT_ONCE) as pool:
            making = {pool.submit(_arrow, query, name in without): name for name, query in queries.items()}
            for done, made in enumerate(as_completed(making), 1):
                found[making[made]] = made.result()
                made_so_many(done)
        return found

    def _ages(self, day: Day, aside: Path, end: float) -> None:
        rows = [read_table(aside / "arrivals")]
        for back in range(1, ages.DAYS):
            rows.append(self._before(day.before(back), "arrivals"))
        write_table(aside / "ages", ages.ages((each.to_pylist() for each in rows if each is not None), end))

    def _before(self, day: Day, table: str) -> pyarrow.Table | None:
        """Reads a table of an earlier day; returns None if it does not exist or, with a note in the report, cannot be
        read."""
        version = self.store.current(f"gold/{day.name}")
        try:
            return read_table(version / table) if version is not None else None
        except UNREADABLE as error:
            why = " ".join(str(error).split())[:200]
            self._left_out.append(
                f"gold/{day.name}/{table} cannot be read and was left out; make the report of that day again ({why})"
            )
            return None

    def _compare(self, day: Day, aside: Path, so_far: bool) -> None:
        """Writes the comparison; a day that is not over is not compared with other days: all its counts would be
        low."""
        others = [] if so_far else [self._comparable(day.before(days)) for days in (1, 7)]
        tables = []
        for scope, key, table in (
            ("total", "scope", "totals"),
            ("destination", "destination", "destinations"),
            ("provider", "provider", "providers"),
        ):
            own = _rows(read_table(aside / table), key) or []
            then = [None if each is None else _rows(self._before(each, table), key) for each in others] or [None, None]
            tables.append(comparison.compared(scope, key, own, *then))
        whole = pyarrow.concat_tables(tables)
        write_table(aside / "comparison", whole.sort_by([("stands_out", "descending")]))

    def _comparable(self, day: Day) -> Day | None:
        """Returns the day; None if its report was made before the day was over, or by a version that counted otherwise."""
        said = self._said_of(day)
        return None if said.get("so_far") or said.get("version", VERSION) != VERSION else day

    def _said_of(self, day: Day) -> dict[str, Any]:
        """Returns the summary of a day's report, empty if there is none."""
        version = self.store.current(f"gold/{day.name}")
        with contextlib.suppress(OSError, ValueError):
            said = json.loads((version / "report.json").read_text(encoding="utf-8")) if version is not None else {}
            return said if isinstance(said, dict) else {}
        return {}

    def _day_before(self, day: Day, so_far: bool) -> dict[str, Any] | None:
        """Returns the figures of the day before, for a comparison; None if that day has no report."""
        said = self._said_of(day.before(1))
        if not said:
            return None
        return {
            "day": day.before(1).date.isoformat(),
            "compared": not so_far and self._comparable(day.before(1)) is not None,
            "so_far": bool(said.get("so_far")),
            "balances": (said.get("balance") or {}).get("balances"),
            "damaged": len(said.get("damaged") or ()),
        }

    def _pairs(self, cuts: Mapping[int, Sequence[Cut]], day: Day, so_far: bool) -> list[Ends]:
        """Returns the counts of each shard between which the day balances; none if the queue is alone."""
        nodes = self.nodes
        day_before, is_named = self._said_of(day.before(1)), nodes is not None
        before = known_before(day_before, named=is_named) or ({0: ""} if day_before and not is_named else {})
        expected = before | known_before(self._said_of(day), also_closed=True, named=is_named)
        if nodes is None and not self.shards and expected.keys() <= {0}:
            return []
        self.silver(day.partitions())
        found = []
        for shard, those in sorted(cuts.items()):
            files = [each for dt in day.partitions() for each in self._files[dt] if each.shard == shard]
            if nodes is not None:
                pair = self._pair_of(nodes, nodes.shards[shard], those, day, files, so_far, shard in before)
            else:
                pair = ends_of_shard(shard, those, day, files, so_far=so_far, known=shard in before)
            found += [] if pair is None else [pair]
        gone = sorted((shard, name) for shard, name in expected.items() if shard not in cuts)
        found += [
            Ends(shard, name=name, why=f"the events of {label_of(shard, name)} are not there") for shard, name in gone
        ]
        return [] if [each.shard for each in found] == [0] else found

    def _pair_of(
        self,
        nodes: NodesEvents,
        shard: NodesShard,
        cuts: Sequence[Cut],
        day: Day,
        files: Sequence[EventFile],
        so_far: bool,
        known: bool,
    ) -> Ends | None:
        """Returns the counts of a shard that a database keeps; None if it had no part in the day."""
        now = self.now()
        why = nodes.why_unknown(shard, day, now=now) or nodes.why_silent(shard, cuts, files, day, now=now)
        if why:
            return Ends(shard.number, name=shard.name, why=why)
        if nodes.is_over(shard, cuts, files, day):
            return None
        if shard.state == CLOSED and cuts and not cuts[-1].messages:
            cuts = [*cuts[:-1], replace(cuts[-1], closed=True)]
        return ends_of_shard(shard.number, cuts, day, files, so_far=so_far, known=known, name=shard.name)

    def _whole(self, pairs: Sequence[Ends], day: Day, so_far: bool) -> tuple[Cut | None, Cut | None]:
        """Returns the counts of all shards that were counted, as one at the beginning and one at the end."""
        counted = [(pair.first, pair.last) for pair in pairs if pair.first is not None and pair.last is not None]
        if not counted:
            return None, None
        begin, end, _ = stretch_of([pair for pair in pairs if not pair.why], day, so_far)
        return joined([first for first, _ in counted], begin), joined([last for _, last in counted], end)

    def _balance(
        self,
        first: Cut | None,
        last: Cut | None,
        dts: Sequence[str],
        day: Day | None = None,
        pairs: Sequence[Ends] = (),
    ) -> Balance:
        silver = self.silver(sorted({*dts, *(day.partitions() if pairs and day else ())}))
        found = balance(self.session, silver, first, last, day, pairs)
        if found.state == UNCHECKED:
            return found.with_shards(found.shards) if pairs else found
        assert first is not None
        assert last is not None
        files = [each for dt in dts for each in self._files[dt]]
        if first.exported is not None and last.exported is not None:
            gaps = missing(self._sources, files, first.exported, last.exported, self._said)
            found = found.without(gaps)
        differing = altered(self.session, silver, first, last)
        found = found.compared(differing)
        if pairs:
            found = found.with_shards([each.compared(found.gaps, differing) for each in found.shards])
        if found.state == UNBALANCED:
            history = utc_days(first.at - HISTORY_DAYS * 24 * HOUR_S, last.at + HOUR_S)
            known = self.silver([dt for dt in history if self._has_events(dt)])
            files = [each for day in known for each in self._files[day.dt]]
            found.suspects, found.suspects_left_out = suspects(self.session, known, first, last, files)
        return found

    def _has_events(self, dt: str) -> bool:
        return any((events / f"dt={dt}").is_dir() for events in self._sources.values())

    def _told(self, day: Day, aside: Path, balanced: Balance, unreadable: Sequence[str]) -> Told:
        row = _total(aside)
        empty = not any(row[name] for name in ("messages", "attempts", *OUTCOMES, "refused", "finished"))
        damaged = [f"{each.file}: {each.why}" for dt in day.partitions() for each in self._damaged[dt]]
        damaged += unreadable
        damaged_files = len(damaged)  # files that a backup may have whole; what the export set aside is in no file
        damaged += [
            f"{each.name}: the export set aside {counted(each.damaged, 'damaged record')}"
            for dt in day.partitions()
            for each in self._files[dt]
            if each.damaged
        ]
        unsigned = [each.name for dt in day.partitions() for each in self._files[dt] if not each.signed]
        words = ["There are no events on this day."] if empty else []
        words.append(balanced.words)
        if damaged:
            words.append(f"Damaged and set aside: {len(damaged)} {'file' if len(damaged) == 1 else 'files'}.")
        if unsigned:
            words.append(f"Without checksum: {len(unsigned)} {'file' if len(unsigned) == 1 else 'files'}.")
        balances = {"balanced": True, "unbalanced": False}.get(balanced.state)
        content: dict[str, Any] = {
            "version": VERSION,
            "day": day.date.isoformat(),
            "zone": day.zone,
            "begin": day.begin,
            "end": day.end,
            "hours": len(day.hours()),
            "empty": empty,
            "words": " ".join(words),
            "balance": {"balances": balances, **balanced.told()},
            "damaged": damaged,
            "damaged_files": damaged_files,
            "unsigned": unsigned[:UNSIGNED_MAX],
            "unsigned_files": len(unsigned),
            "totals": row,
            "inputs": self._inputs(day),
        }
        return Told(aside, content["words"], balances, content)


def _shards(balanced: Balance) -> pyarrow.Table:
    """Returns the balance of each shard as a table, which can be downloaded."""
    texts, numbers = ("shard", "balance"), [term.name for term in terms(Scope.REPORT)]
    types = dict.fromkeys(("number", *numbers), pyarrow.int64()) | dict.fromkeys(texts, pyarrow.string())
    schema = pyarrow.schema([(name, types[name]) for name in ("shard", "number", *numbers, "balance")])
    return pyarrow.Table.from_pylist([each.row() for each in balanced.shards], schema)


def _arrow(query: Callable[[], DataFrame], is_empty: bool) -> pyarrow.Table:
    found = to_arrow_schema(query().schema).empty_table() if is_empty else query().toArrow()
    return pyarrow.table({name: found[name] for name in found.column_names})  # without what must not be null


def _total(aside: Path) -> dict[str, Any]:
    """Returns the row of the day's totals."""
    total = read_table(aside / "totals")
    assert total is not None
    return {name: value for name, value in total.to_pylist()[0].items() if name != "delays"}


def _rows(read: pyarrow.Table | None, key: str) -> list[dict[str, Any]] | None:
    if read is None:
        return None
    rows: list[dict[str, Any]] = read.drop_columns([n for n in ("delays",) if n in read.column_names]).to_pylist()
    return [{**row, key: row.get(key, "")} for row in rows]


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Writes a JSON file with sorted keys."""
    path.write_text(json.dumps(content, indent=1, sort_keys=True), encoding="utf-8")
