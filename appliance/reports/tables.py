"""How the pipeline's tables are shown: titles, order, column labels, units and links.

A column's unit is the end of its name (delay_p50_s, delivered_share, size_bytes), so that unlisted columns and tables are
shown correctly, too. Page, mail and CSV all use it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
from django.urls import reverse

from appliance.reports import rows
from appliance.reports.report_store import Report
from mailcore.control.protocol.operation import literal

__all__ = [
    "Column",
    "Kind",
    "Shown",
    "Spec",
    "columns_of",
    "link_of",
    "plain_value",
    "shown_tables",
    "spec_of",
    "table",
]


class Kind(enum.Enum):
    """How the values of a column are written."""

    TEXT = "text"
    NUMBER = "number"
    DECIMAL = "decimal"  # a number that need not be whole
    SHARE = "share"  # of 1
    SPAN = "span"  # seconds
    SIZE = "size"  # bytes
    TIME = "time"  # wall clock
    FLAG = "flag"
    MEASURE = "measure"  # its unit is in the row's ``measure``

    def of(self, row: Mapping[str, Any]) -> Kind:
        """Returns the CSS class of a cell of this kind."""
        if self is not Kind.MEASURE:
            return self
        measure = str(row.get("measure", ""))
        return next((kind for end, kind in _UNITS if measure.endswith(end)), Kind.NUMBER)


@dataclass(frozen=True)
class Column:
    """One column as shown: its name in the file, its label and kind."""

    name: str
    label: str
    kind: Kind

    @property
    def right(self) -> bool:
        """Returns whether the column is aligned to the right and sorts in descending order first."""
        return self.kind not in (Kind.TEXT, Kind.TIME, Kind.FLAG)

    @property
    def long(self) -> bool:
        """Returns whether the column contains sentences, not names."""
        return self.name in ("reason", "example")

    @property
    def named(self) -> bool:
        """Returns whether the column contains addresses or names of hosts, which may be as long as a sentence."""
        return self.name in NAMED


@dataclass(frozen=True)
class Spec:
    """How one table of a report is shown."""

    name: str
    title: str
    explanation: str = ""
    added_up: str = ""  # how a week's or a month's is to be read
    by: str = ""  # is sorted by this at first; "": as it lies there
    hidden: tuple[str, ...] = ()
    only: str = ""  # rows in which this flag is set
    in_mail: tuple[str, ...] = ()  # columns of the mail; none: it is not in the mail
    mail_rows: int = 10
    none: str = "None."  # where it has no rows
    labels: Mapping[str, str] = field(default_factory=dict)  # where a column is called otherwise than in other tables


@dataclass(frozen=True)
class Shown:
    """A table with the rows that are shown of it."""

    spec: Spec
    columns: list[Column]
    rows: list[dict[str, Any]]
    count: int  # of the whole table
    by: str
    descending: bool
    fault: str = ""  # why it cannot be shown
    gone: str = ""  # that it was deleted, and why
    outstanding: frozenset[tuple[str, str]] = frozenset()  # (what a row is of, column): cells that stand out

    @property
    def more(self) -> int:
        """Returns how many rows are not shown."""
        return max(self.count - len(self.rows), 0)

    @property
    def cells(self) -> Iterator[list[tuple[Column, Any, str, bool]]]:
        """Yields the rows as lists of (column, value, link target, whether the value is an anomaly)."""
        for row in self.rows:
            name = str(row.get(self.columns[0].name)) if self.columns else ""
            yield [
                (
                    replace(column, kind=column.kind.of(row)),
                    _value(column.name, row),
                    link_of(column.name, row),
                    (name, column.name) in self.outstanding,
                )
                for column in self.columns
            ]

    @property
    def heads(self) -> Iterator[tuple[Column, str, str]]:
        """Yields (column, the sort order that a click selects, the current sort order as aria-sort)."""
        for column in self.columns:
            here = column.name == self.by
            down = not self.descending if here else column.right
            yield (
                column,
                f"-{column.name}" if down else column.name,
                ("descending" if self.descending else "ascending") if here else "",
            )


NAMED = (
    "name", "destination", "provider", "sender", "recipient", "client_address", "top_client", "top_destination",
)  # fmt: skip
_OF_DESTINATIONS = (
    "recipients", "delivered", "deferred", "bounced", "put_off", "delivered_share", "delay_p50_s", "delay_p99_s",
)  # fmt: skip
_ATTEMPTS = (
    "Attempts are what a next hop was asked. Put off: deferred without an attempt, for a dead destination. Returned: bounced "
    "without an attempt, by an operator or because no route exists."
)
_TRIED = "A message or recipient counts once for each day with a delivery attempt."
_VERDICTS = (
    "Counts verdicts: a recipient deferred three times counts three times. Mail that was put off or returned was not tried. "
    "Addresses, ids and numbers in replies are replaced by placeholders."
)
_TOP = "Sum of each day's top list; names that were in no top list are missing."
_TRIED_ONLY = (
    "Recipients by attempt. Mail that was put off for a dead destination, without an attempt, is counted apart; recipients "
    "that an operator ended are not counted."
)
_OF_LABELS = {"first_attempt_share": "first attempt %", "tls_share": "TLS %", "delivered_bytes": "bytes delivered"}
SPECS = (
    Spec("comparison", "Anomalies", "Compared with the previous day and the same weekday one week earlier.", only="stands_out",
         hidden=("stands_out", "change"), in_mail=("*",), mail_rows=12, none="No anomalies."),
    Spec("destinations", "Destinations", _ATTEMPTS, by="attempts", in_mail=("destination", *_OF_DESTINATIONS), added_up=_TRIED),
    Spec("providers", "Providers", "Owners of the hosts that received the mail.", by="attempts",
         in_mail=("provider", *_OF_DESTINATIONS), added_up=_TRIED),
    *(
        Spec(name, title, _TRIED_ONLY, by="attempts", hidden=("first_attempts", "first_delivered", "delivered_tls"),
             added_up=_TRIED, labels=_OF_LABELS)
        for name, title in (
            ("by_destination", "Delivery by destination"), ("by_recipient_domain", "Delivery by recipient domain"),
            ("by_sender_domain", "Delivery by sender domain"), ("by_source_address", "Delivery by source address"),
            ("by_tag", "Delivery by tag"),
        )
    ),
    Spec("reasons", "Why mail was deferred or bounced", _VERDICTS,
         by="recipients", in_mail=("status", "dsn", "reason", "recipients", "destinations"),
         labels={"recipients": "verdicts"}, none="Nothing was deferred or bounced.",
         added_up="The number of destinations is that of the day with the most."),
    Spec("refused", "Refused at SMTP time", by="count",
         in_mail=("stage", "reason", "count", "clients", "top_client"), mail_rows=5,
         none="Nothing was refused.", added_up="The number of clients is that of the day with the most."),
    Spec("senders", "Top senders", by="messages",
         in_mail=("sender", "messages", "recipients", "size_bytes"), mail_rows=5, added_up=_TOP),
    Spec("clients", "Top clients", by="messages",
         in_mail=("client_address", "messages", "recipients", "refused"), mail_rows=5, added_up=_TOP),
    Spec("recipients", "Top recipients", by="messages", in_mail=("recipient", "messages"), mail_rows=5, added_up=_TOP),
    Spec("ages", "Age of the mail queued at the end", in_mail=("*",), mail_rows=12, none="Nothing was queued."),
    Spec("windows", "Windows and dead times", "Sampled once a minute.", by="dead_minutes", mail_rows=5,
         none="No samples.",
         in_mail=("destination", "window_mean", "window_max", "busy_max", "queued_max", "dead_minutes")),
    Spec("encryption", "TLS", "In: messages; out: recipients delivered. No version: unencrypted. The level was demanded of the "
         "next hop; the reason is why, or why the mail was sent in the clear.",
         in_mail=("direction", "version", "level", "reason", "count"), mail_rows=8),
    Spec("hours", "Hours", hidden=("hour", "begins_at")),
    Spec("shards", "Shards", "The balance of each shard, as above; an amount that is not known is empty.", none="No shards."),
)  # fmt: skip
NOT_SHOWN = frozenset(("totals", "arrivals"))  # the figures at the top; what days are added up from
LABELS = {
    "dsn": "DSN",
    "delay_p50_s": "delay p50",
    "delay_p90_s": "p90",
    "delay_p99_s": "p99",
    "delay_max_s": "longest",
    "delay_a_s": "a",
    "delay_b_s": "b",
    "delay_c_s": "c",
    "delay_d_s": "d",
    "client_address": "client",
    "top_client": "most from",
    "top_destination": "most at",
    "clock": "from",
    "from_s": "age from",
    "to_s": "to",
    "tls": "TLS",
    "size_bytes": "size",
}
_UNITS = (("_share", Kind.SHARE), ("_s", Kind.SPAN), ("_bytes", Kind.SIZE), ("_at", Kind.TIME))
_MEASURED = {
    "delay_p90_s": "delay p90",
    "delay_p99_s": "delay p99",
    "delay_max_s": "longest delay",
}  # without the others by it
_MEASURES = frozenset(("value", "day_before", "week_before"))  # of the comparison


def spec_of(name: str) -> Spec:
    """Returns how a table is shown; an unlisted table has its own name as title."""
    return next((spec for spec in SPECS if spec.name == name), Spec(name, name.replace("_", " ").capitalize()))


def shown_tables(report: Report) -> list[str]:
    """Returns the names of the tables in the order of the page, deleted ones included."""
    order = {spec.name: place for place, spec in enumerate(SPECS)}
    names = {*report.tables, *report.deleted} - NOT_SHOWN
    return sorted(names, key=lambda name: (order.get(name, 99), name))


def columns_of(report: Report, name: str) -> list[Column]:
    """Returns the columns shown to readers, without microsecond sums and sketches. Raises Unreadable."""
    spec = spec_of(name)
    found = []
    for each in rows.schema(report, name):
        if each.name in spec.hidden or each.name.endswith("_us") or pa.types.is_nested(each.type):
            continue
        found.append(Column(each.name, spec.labels.get(each.name) or _label(each.name), _kind(each)))
    return found


def _kind(column: pa.Field) -> Kind:
    if column.name in _MEASURES:
        return Kind.MEASURE
    if pa.types.is_boolean(column.type):
        return Kind.FLAG
    if pa.types.is_timestamp(column.type):
        return Kind.TIME
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_decimal(column.type)):
        return Kind.TEXT
    number = Kind.DECIMAL if pa.types.is_floating(column.type) else Kind.NUMBER
    return next((kind for end, kind in _UNITS if column.name.endswith(end)), number)


def _label(name: str) -> str:
    if name in LABELS:
        return LABELS[name]
    for end, kind in _UNITS:
        if name.endswith(end) and kind is not Kind.SHARE:
            name = name.removesuffix(end)
    return name.replace("_share", " %").replace("_", " ")


def table(report: Report, name: str, sort: str, rows_max: int, read_max: int) -> Shown:
    """Returns a table, sorted by a column. ``sort``: the column's name, with a leading minus for descending order; an
    unknown column is ignored.

    Raises Unreadable.
    """
    spec, columns = spec_of(name), columns_of(report, name)
    by, descending = sort.removeprefix("-"), sort.startswith("-")
    if by not in {column.name for column in columns}:
        by = spec.by if spec.by in {column.name for column in columns} else ""
        descending = bool(by)
    names = [column.name for column in columns]
    shown, count = rows.top(
        report, name, names, rows_max=rows_max, read_max=read_max, by=by, descending=descending, only=spec.only
    )
    return Shown(spec, columns, shown, count, by, descending)


def _value(column: str, row: dict[str, Any]) -> Any:
    if column == "name" and row.get("scope") == "total":
        return "all mail"
    if column == "measure" and isinstance(row.get(column), str):
        return _MEASURED.get(str(row[column])) or _label(str(row[column]))
    return row.get(column)


def _queue(**filters: str) -> str:
    return f"{reverse('queue:list')}?{urlencode(filters)}"


def _search(text: str) -> str:
    return f"{reverse('queue:search')}?{urlencode({'q': literal(text)})}"


# column -> where its value leads to: into the queue, or the search of messages
_LINKS: dict[str, Callable[[str], str]] = {
    "destination": lambda value: _queue(destination=literal(value)),
    "destination of comparison": lambda value: _queue(destination=literal(value)),
    "top_destination": lambda value: _queue(destination=literal(value)),
    "sender": lambda value: _search(value) if value else _queue(sender="<>"),
    "recipient": _search,
    "queue_id": lambda value: reverse("queue:message", args=(value,)),
    "dsn": lambda value: _queue(reason=value),
}


def link_of(column: str, row: dict[str, Any]) -> str:
    """Returns the portal address of the mail that a row counts, or ""."""
    value = row.get(column)
    make = _LINKS.get(f"{row.get('scope')} of comparison" if column == "name" else column)
    if make is None or not isinstance(value, str) or (not value and column != "sender"):
        return ""
    return make(value)


def plain_value(value: Any) -> Any:
    """Returns a value for a file: unchanged, times in ISO 8601, "" for None."""
    if value is None:
        return ""
    return value.isoformat() if hasattr(value, "isoformat") else value
