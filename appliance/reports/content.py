"""The content of a report, for both the page and the mail: figures, balance, charts and tables.

Law: page and mail are made only from this, so that they cannot differ.

Keeps law: letter-is-the-page (docs/laws.md).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from typing import Any

from appliance.common.current_settings import current_settings
from appliance.pipeline.store import VERSION
from appliance.reports import report_store, rows
from appliance.reports.report_store import Period, Report
from appliance.reports.retention import days_kept
from appliance.reports.rows import Unreadable
from appliance.reports.shares import shares_of
from appliance.reports.tables import Column, Kind, Shown, shown_tables, spec_of, table
from appliance.reports.writing import Writing
from mailcore.balance import Scope, terms

__all__ = ["Balance", "Content", "Figure", "Lines", "altered_words", "balance_of", "content_of", "gone"]

TREND_DAYS = 30
HOURS_MAX = 26  # of the longest day there is anywhere
SUSPECTS_SHOWN = 100
OUTSTANDING_SHOWN = 4
PUT_BACK = (
    "A file that was set aside stays where it is. If it is damaged, restore it from a backup; then make the report of the "
    "day again."
)
OLDER = "attempts include mail that was put off, and mail returned by an operator; recipients are without those added later."
LINES = ("recipients", "delivered", "deferred", "bounced")  # columns of hours and totals; all of them count recipients
NAMES = {"recipients": "accepted"}
FIGURES = (
    ("messages", "messages accepted", Kind.NUMBER),
    ("recipients", "recipients accepted", Kind.NUMBER),
    ("size_bytes", "size accepted", Kind.SIZE),
    ("attempts", "attempts", Kind.NUMBER),
    ("delivered", "delivered", Kind.NUMBER),
    ("deferred", "attempts deferred", Kind.NUMBER),
    ("bounced", "bounced", Kind.NUMBER),
    ("delivered_share", "of attempts delivered", Kind.SHARE),
    ("deferred_share", "of attempts deferred", Kind.SHARE),
    ("bounced_share", "of attempts bounced", Kind.SHARE),
    ("put_off", "put off without attempt", Kind.NUMBER),
    ("returned", "returned without attempt", Kind.NUMBER),
    ("expired", "expired", Kind.NUMBER),
    ("deleted", "deleted", Kind.NUMBER),
    ("refused", "refused at SMTP time", Kind.NUMBER),
    ("delay_p50_s", "delay, median", Kind.SPAN),
    ("delay_p90_s", "delay, p90", Kind.SPAN),
    ("delay_p99_s", "delay, p99", Kind.SPAN),
)


@dataclass(frozen=True)
class Figure:
    """One of the day's key figures: label, kind of number and value."""

    name: str
    label: str
    kind: Kind
    value: Any
    change: str = ""  # since the day before, "+1.2 points"


@dataclass(frozen=True)
class ShardLine:
    """The balance of one of several shards. A value of None is not known."""

    shard: int
    words: str
    balances: bool | None
    values: list[tuple[str, int | None]]  # by the label of the term
    name: str = ""  # in the database that keeps it

    @property
    def label(self) -> str:
        """Returns its name, with the number that its lanes have: "north (@1)"; the number alone if it has no name."""
        return f"{self.name} (@{self.shard})" if self.name else str(self.shard)

    @property
    def red(self) -> bool:
        """Returns whether the shard does not balance."""
        return self.balances is False


@dataclass(frozen=True)
class Balance:
    """The balance of a report as page and mail show it: its words, both sides of the equation, and what to do."""

    balances: bool | None  # None: the queue was not counted
    words: str
    left: list[tuple[str, int]]
    right: list[tuple[str, int]]
    suspects: list[dict[str, Any]]  # queue_id, why, accepted, ended, events
    suspects_left_out: int
    gaps: list[str]
    altered: list[str]  # counters of the exporter that the event files do not agree with
    red_days: list[date]  # of a week or month: those that do not balance
    advice: list[str]  # next steps for the operator
    shards: list[ShardLine] = field(default_factory=list)  # of a node with several

    @property
    def red(self) -> bool:
        """Returns whether the report does not balance."""
        return self.balances is False


@dataclass(frozen=True)
class Lines:
    """Columns of equal length for a chart: the labels, and the values by name; None where a value is unknown."""

    labels: list[str]
    values: dict[str, list[float | None]]

    @property
    def told(self) -> dict[str, Any]:
        """Returns labels and values for the page's script."""
        return {"labels": self.labels, "values": self.values}

    def __bool__(self) -> bool:
        return len(self.labels) > 1


@dataclass(frozen=True)
class Content:
    """All that the page and the mail show of a report."""

    report: Report
    writing: Writing
    figures: list[Figure]
    balance: Balance
    inside: Lines  # its hours, or its days
    trend: Lines  # the days up to its end
    tables: list[Shown]
    notes: list[str] = field(default_factory=list)  # files set aside and other notes of the pipeline
    shares: str = ""  # the whole that shares are of; the day they are compared with, or why they are not

    @property
    def title(self) -> str:
        """Returns the day, week or month in words."""
        return self.writing.period(self.report.period, self.report.start)

    @property
    def empty(self) -> bool:
        """Returns whether the period had no mail at all; False if its totals were deleted or are unreadable."""
        told = self.report.told.get("empty")
        if isinstance(told, bool):
            return told
        return bool(self.figures) and not any(figure.value for figure in self.figures)

    @property
    def outstanding(self) -> list[str]:
        """Returns the anomalies in short: the first few, and the number of the others."""
        shown = next((each for each in self.tables if each.spec.name == "comparison"), None)
        if shown is None or not shown.rows:
            return []
        words = [self._compared({column.name: (column, value) for column, value, *_ in row}) for row in shown.cells]
        more = max(shown.count, len(words)) - OUTSTANDING_SHOWN
        return words[:OUTSTANDING_SHOWN] + ([f"{self.writing.number(more)} more"] if more > 0 else [])

    def _compared(self, row: Mapping[str, tuple[Column, Any]]) -> str:
        def said(name: str) -> str:
            column, value = row.get(name, (None, None))
            return self.writing.value(column.kind, value) if column is not None and value is not None else ""

        before = said("day_before") and f"{said('day_before')} the day before"
        before = before or (said("week_before") and f"{said('week_before')} a week before") or "not there before"
        return f"{said('name')}: {said('measure')} {said('value')} ({before})"


def content_of(
    report: Report, writing: Writing, sorts: Mapping[str, str] | None = None, rows_max: int | None = None
) -> Content:
    """Returns the content of a report. ``sorts``: the sort column by table. A table that cannot be read contains its
    error; the other tables are complete."""
    most = rows_max or current_settings().reports.rows_shown_max
    tables = [_table(report, name, (sorts or {}).get(name, ""), most) for name in shown_tables(report)]
    tables = [replace(each, outstanding=_outstanding(tables, each.spec.name)) for each in tables]
    totals = _totals(report)
    shares = shares_of(report, totals, writing)
    figures = [
        Figure(name, label, kind, totals[name], shares.changes.get(name, ""))
        for name, label, kind in FIGURES
        if totals.get(name) is not None
    ]
    if figures and not any(figure.value for figure in figures):  # many tables that say that there is nothing
        tables = [each for each in tables if each.rows or each.fault or each.gone]
    day = report.period is Period.DAY
    inside = _hours(report) if day else _days(report.start, report.last, writing)
    trend = _days(report.last - timedelta(days=TREND_DAYS - 1), report.last, writing) if day else Lines([], {})
    return Content(
        report, writing, figures, balance_of(report), inside, trend, tables, _notes(report, writing), shares.words
    )


def _outstanding(tables: list[Shown], table: str) -> frozenset[tuple[str, str]]:
    """Returns (name of the row, column) of each value of this table that is an anomaly."""
    compared = next((each.rows for each in tables if each.spec.name == "comparison"), [])
    scope = table.removesuffix("s")
    return frozenset((str(row.get("name")), str(row.get("measure"))) for row in compared if row.get("scope") == scope)


def _table(report: Report, name: str, sort: str, most: int) -> Shown:
    if name in report.deleted:
        return Shown(spec_of(name), [], [], 0, "", False, gone=gone(name))
    try:
        return table(report, name, sort, most, current_settings().reports.download_rows_max)
    except Unreadable as error:
        return Shown(spec_of(name), [], [], 0, "", False, str(error))


def gone(table: str) -> str:
    """Returns the text that replaces a deleted table."""
    return f"Deleted: this table is kept for {days_kept(table)} days."


def _totals(report: Report) -> dict[str, Any]:
    try:
        names = [name for name in rows.schema(report, "totals").names if name in {name for name, _, _ in FIGURES}]
        return next(iter(rows.top(report, "totals", names, rows_max=1, read_max=1)[0]), {})
    except Unreadable:
        return {}


def _hours(report: Report) -> Lines:
    try:
        there = rows.schema(report, "hours").names
        names = [name for name in ("hour", "clock", *LINES) if name in there]
        hours, _ = rows.top(report, "hours", names, by="hour", rows_max=HOURS_MAX, read_max=HOURS_MAX)
    except Unreadable:
        return Lines([], {})
    values = {NAMES.get(name, name): [_number(row.get(name)) for row in hours] for name in LINES}
    return Lines([str(row.get("clock", row.get("hour", "")))[:5] for row in hours], values)


def _days(first: date, last: date, writing: Writing) -> Lines:
    """Returns the lines of the days, from the first one that has a report."""
    days = [first + timedelta(days=each) for each in range((last - first).days + 1)]
    found = [(day, report_store.report_of(Period.DAY, day)) for day in days]
    while found and found[0][1] is None:
        found.pop(0)
    totals = [_totals(report) if report is not None else {} for _, report in found]
    values = {NAMES.get(name, name): [_number(each.get(name)) for each in totals] for name in LINES}
    return Lines([writing.short_day(day) for day, _ in found], values)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def balance_of(report: Report) -> Balance:
    """Returns the balance of a report, ready to be shown."""
    told = report.balance
    suspects = [each for each in _list(told.get("suspects")) if isinstance(each, dict)]
    left_out = told.get("suspects_left_out") or 0
    gaps = [_gap(each) for each in _list(told.get("gaps"))][:SUSPECTS_SHOWN]
    altered = [altered_words(each) for each in _list(told.get("altered")) if isinstance(each, dict)][:SUSPECTS_SHOWN]
    return Balance(
        balances=report.balances,
        words=_words(report),
        left=_terms(told, +1),
        right=_terms(told, -1),
        suspects=suspects[:SUSPECTS_SHOWN],
        suspects_left_out=int(left_out) + max(len(suspects) - SUSPECTS_SHOWN, 0),
        gaps=gaps,
        altered=altered,
        red_days=list(_dates(told.get("unbalanced"))),
        advice=list(_advice(report, bool(suspects), bool(gaps), bool(altered))),
        shards=[_shard(each) for each in _list(told.get("shards")) if isinstance(each, dict)],
    )


def _shard(told: dict[str, Any]) -> ShardLine:
    """Returns the line of one of several shards; without a balance its amounts are unknown, not zero."""
    given, known = told.get("balances"), [(term, told.get(term.name)) for term in terms(Scope.REPORT)]
    values = [(term.label, value if isinstance(value, int) else None) for term, value in known]
    words = str(told.get("words") or "The balance is unknown.") + (
        " It was closed." if told.get("closed") is True else ""
    )
    name = str(told.get("name") or "")
    return ShardLine(int(told.get("shard") or 0), words, given if isinstance(given, bool) else None, values, name)


def _terms(told: dict[str, Any], sign: int) -> list[tuple[str, int]]:
    """Returns one side of the balance equation: label and amount of each term; nothing if the queue was not counted."""
    if not all(isinstance(told.get(name), int) for name in ("queued_at_start", "queued_at_end")):
        return []
    known = (term for term in terms(Scope.REPORT) if term.sign == sign and isinstance(told.get(term.name), int))
    repeated = told.get("repeated") if sign < 0 else 0
    more = [("recorded a second time", repeated)] if isinstance(repeated, int) and repeated else []
    return [(term.label, told[term.name]) for term in known] + more


def _words(report: Report) -> str:
    days, missing = _list(report.told.get("days")), _list(report.told.get("missing"))
    if report.period is Period.DAY or not days:
        return report.words or "Balance unknown."
    red, unchecked = (len(_list(report.balance.get(name))) for name in ("unbalanced", "unchecked"))
    parts = [f"{red} of them do not balance" if red > 1 else "1 of them does not balance"] if red else []
    parts += [f"of {unchecked} of them have no count of the queue"] if unchecked else []
    words = "; ".join(parts) or ("all of them balance" if len(days) > 1 else "it balances")
    return f"{len(days)} of {len(days) + len(missing)} days {'have' if len(days) > 1 else 'has'} a report; {words}."


def _advice(report: Report, suspects: bool, gaps: bool, altered: bool) -> Iterator[str]:
    """Yields the next steps for the operator on call."""
    if report.balances is None and report.period is Period.DAY:
        yield (
            "The core counts the queue each hour and at midnight, while it runs and exports. "
            "A missing count cannot be added later."
        )
    if report.balances is not False:
        return
    if report.period is not Period.DAY:
        yield "Check the days that do not balance. When their reports are made again, this report is updated."
        return
    yield "First make the report again, which includes late events."
    if gaps:
        yield (
            "For missing events: `waypost export` shows how far each lane is exported, `waypost export --now` exports the "
            "rest; `mail.log` records permanently lost events. Then make the report again."
        )
    if altered and not gaps:
        yield (
            "The event files were changed after they were written, also if their checksums agree. Restore those of the day "
            "from a backup, then make the report again."
        )
    if suspects:
        yield (
            "For each message: its page shows what the log holds, `waypost export show FILE --id QUEUE_ID` shows its "
            "events. An accepted message that neither ended nor is queued counts as lost until it is found."
        )


def _dates(given: Any) -> Iterator[date]:
    for each in _list(given):
        with contextlib.suppress(ValueError):
            yield date.fromisoformat(str(each))


def altered_words(given: Mapping[str, Any]) -> str:
    """Returns a counter that the event files do not agree with, "journal, deferred: 4 exported, 3 in the files"."""
    if given.get("what") == "checksum":
        return f"{given.get('lane')}: the checksum over all rows differs"
    if given.get("what") == "routes":
        return f"{given.get('lane')}: the checksum over the destinations and recipient domains of attempts differs"
    return (
        f"{given.get('lane')}, {given.get('what')}: {given.get('exported')} exported, {given.get('found')} in the files"
    )


def _gap(given: Any) -> str:
    if isinstance(given, dict):
        day = f", of {given['day']}" if given.get("day") else ""
        return f"{given.get('lane')} from {given.get('begin')} to {given.get('end')}{day}"
    return str(given)


def _notes(report: Report, writing: Writing) -> list[str]:
    today = datetime.now(writing.zone).date()
    missing = [each for each in _dates(report.told.get("missing")) if each < today]  # the others are to come
    words = "this day has no report" if len(missing) == 1 else "these days have no report"
    found = [f"Without {', '.join(_ranges(missing, writing))}: {words}."] if missing else []
    if report.behind:
        found.append(
            f"Computed before the latest reports of {', '.join(_ranges(report.behind, writing))} were made; the "
            "next run updates it."
        )
    found += [f"Totals: {gone('totals')}"] if "totals" in report.deleted else []
    if older := _older(report):
        days = "" if report.period is Period.DAY else f" ({', '.join(_ranges(older, writing))})"
        found.append(f"Made by an older version{days}: {OLDER}")
    if report.so_far:
        found.append("The day was not over when this report was made, so it is not compared with other days.")
    found += [str(each) for each in _list(report.told.get("left_out"))[:SUSPECTS_SHOWN]]
    aside = [f"Set aside: {_gap(each)}" for each in _list(report.told.get("damaged"))[:SUSPECTS_SHOWN]]
    unsigned = [str(each) for each in _list(report.told.get("unsigned"))]
    more = int(report.told.get("unsigned_files") or 0) - len(unsigned)
    if unsigned:
        names = ", ".join(unsigned) + (f" and {more} more" if more > 0 else "")
        found.append(f"Without checksum, from an older version or another program: {names}.")
    return found + aside + ([PUT_BACK] if aside and report.told.get("damaged_files", len(aside)) else [])


def _older(report: Report) -> list[date]:
    """Returns the days of the report that an older version made, which counted attempts otherwise."""
    if report.period is not Period.DAY:
        return list(_dates(report.told.get("older")))
    version = report.told.get("version", 1)
    return [report.start] if isinstance(version, int) and version < VERSION else []


def _ranges(days: list[date], writing: Writing) -> Iterator[str]:
    """Days that follow each other as from and to."""
    begin: date | None = None
    for day, after in zip(days, [*days[1:], None], strict=False):
        begin = begin or day
        if after != day + timedelta(days=1):
            yield writing.short_day(day) if begin == day else f"{writing.short_day(begin)} – {writing.short_day(day)}"
            begin = None


def _list(given: Any) -> list[Any]:
    return given if isinstance(given, list) else []
