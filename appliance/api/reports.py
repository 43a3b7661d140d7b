"""The reports: which there are, one of them, the rows of its tables."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from itertools import islice
from typing import Annotated, Any, Literal

import msgspec
from django.http import HttpRequest
from ninja import Path
from pydantic import Field, StringConstraints

from appliance.api.errors import ApiError
from appliance.api.operation import operation
from appliance.api.scopes import Scope
from appliance.reports import report_store, rows
from appliance.reports.content import gone
from appliance.reports.listing import lines
from appliance.reports.preferences import in_force, today
from appliance.reports.report_store import Period, Report
from appliance.reports.rows import Unreadable
from appliance.reports.tables import columns_of
from mailcore.faults import Code

__all__ = ["report", "report_table", "reports"]

COUNT, COUNT_MAX = 14, 100
ROWS, ROWS_MAX = 1_000, 10_000
PeriodName = Literal["day", "week", "month"]
Start = Annotated[str, StringConstraints(pattern=r"^\d{4}-\d{2}-\d{2}$")]
Value = str | int | float | bool | None


class ReportLine(msgspec.Struct, kw_only=True):
    """A line of the list of reports."""

    start: str  # the first day of the period
    last: str  # the last day of the period
    state: str
    words: str


class ReportList(msgspec.Struct, kw_only=True):
    """The reports of one kind of period, newest first."""

    period: str
    reports: list[ReportLine]


class ReportFound(msgspec.Struct, kw_only=True):
    """A published report."""

    period: str
    start: str
    last: str
    made_at: float  # seconds since 1970
    so_far: bool  # made before the day was over
    balances: bool | None  # None: the queue was not counted
    summary: str
    balance: dict[str, Any]
    tables: list[str]
    deleted: list[str]  # tables that were deleted because of their age


class TableRows(msgspec.Struct, kw_only=True):
    """Rows of a table, in the order in which they are stored."""

    columns: list[str]
    rows: list[list[Value]]
    count: int  # of the whole table
    cursor: int | None  # of the next rows; None: these are the last


@operation("GET", "/reports", tag="Reports", scopes={Scope.READ}, answer=ReportList)
def reports(
    request: HttpRequest, period: PeriodName = "day", count: Annotated[int, Field(ge=1, le=COUNT_MAX)] = COUNT
) -> ReportList:
    """Lists the last complete periods with the state of their reports, and older reports."""
    found = lines(Period(period), today(in_force().zone), count)
    return ReportList(
        period=period,
        reports=[
            ReportLine(
                start=line.start.isoformat(), last=line.last.isoformat(), state=line.state.value, words=line.words
            )
            for line in found
        ],
    )


@operation("GET", "/reports/{period}/{start}", tag="Reports", scopes={Scope.READ}, answer=ReportFound)
def report(request: HttpRequest, period: PeriodName, start: Path[Start]) -> ReportFound:
    """Returns one report: its balance and the names of its tables."""
    it = _report(period, start)
    return ReportFound(
        period=period,
        start=it.start.isoformat(),
        last=it.last.isoformat(),
        made_at=it.made_at,
        so_far=it.so_far,
        balances=it.balances,
        summary=it.summary,
        balance=it.balance,
        tables=list(it.tables),
        deleted=list(it.deleted),
    )


@operation("GET", "/reports/{period}/{start}/{table}", tag="Reports", scopes={Scope.READ}, answer=TableRows)
def report_table(
    request: HttpRequest,
    period: PeriodName,
    start: Path[Start],
    table: str,
    cursor: Annotated[int, Field(ge=0, le=1 << 31)] = 0,
    limit: Annotated[int, Field(ge=1, le=ROWS_MAX)] = ROWS,
) -> TableRows:
    """Lists rows of a table of a report."""
    it = _report(period, start)
    if table in it.deleted:
        raise ApiError(gone(table), code=Code.NOT_FOUND, argument="table")
    if table not in it.tables:
        raise ApiError(f"{table[:50]}: the report has no such table", code=Code.NOT_FOUND, argument="table")
    try:
        names = [column.name for column in columns_of(it, table)]
        found = list(islice(_rows(it, table, names, cursor + limit), cursor, None))
        count = rows.count(it, table)
    except Unreadable as error:
        raise ApiError(str(error), code=Code.UNAVAILABLE) from error
    end = cursor + len(found)
    return TableRows(columns=names, rows=found, count=count, cursor=end if found and end < count else None)


def _rows(it: Report, table: str, names: list[str], rows_max: int) -> Iterator[list[Value]]:
    for batch in rows.batches(it, table, names, rows_max):
        columns = [[_plain(value) for value in batch.column(name).to_pylist()] for name in names]
        yield from (list(row) for row in zip(*columns, strict=True))


def _plain(value: Any) -> Value:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _report(period: str, start: Path[Start]) -> Report:
    kind = Period(period)
    try:
        first = date.fromisoformat(start)
    except ValueError:
        raise ApiError(f"{start[:20]}: not a day; write 2026-11-21", argument="start") from None
    if not 1970 <= first.year <= 9000 or kind.start(first) != first:
        raise ApiError(f"{start[:20]}: no {period} starts on that day", argument="start")
    it = report_store.report_of(kind, first)
    if it is None:
        raise ApiError(f"{start[:20]}: there is no report of this {period}", code=Code.NOT_FOUND, argument="start")
    return it
