"""Counts every table of a day's report again, with DuckDB over the event files, and compares each number.

Nothing of the pipeline is used: the definitions are those of docs/reports.md and docs/events.md, written once more. DuckDB
reads the files, counts and adds; what has no words in SQL (folded replies, quantiles of sketches, the comparison of days) is
beside it in ``recount_values``. A table or a column that the pipeline writes and this file does not count is a difference,
too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb

from tests.end_to_end.recount_values import (
    BOUNDS_S,
    compared,
    folded,
    provider_of,
    quantiles_s,
    rounded,
    share,
    sketch,
)
from tests.end_to_end.reporting import Gold

__all__ = ["KEYS", "OUTCOMES", "Tables", "differences", "recount", "tables_of"]

Tables = dict[str, list[dict[str, Any]]]
OUTCOMES = ("delivered", "deferred", "bounced", "put_off", "returned", "expired", "deleted")
LABELS = {
    "by_destination": "destination",
    "by_recipient_domain": "recipient_domain",
    "by_sender_domain": "sender_domain",
    "by_source_address": "source_address",
    "by_tag": "tag",
}
# What names a row of each table.
KEYS: dict[str, tuple[str, ...]] = {
    "totals": (),
    "destinations": ("destination",),
    "providers": ("provider",),
    "reasons": ("status", "dsn", "reason"),
    "senders": ("sender",),
    "clients": ("client_address",),
    "recipients": ("recipient",),
    "hours": ("hour",),
    "encryption": ("direction", "version", "level", "reason", "cipher"),
    "windows": ("destination",),
    "refused": ("stage", "reason"),
    "arrivals": ("stretch",),
    "ages": ("from_s",),
    "comparison": ("scope", "name", "measure"),
    **{table: (key,) for table, key in LABELS.items()},
}
AGES_DAYS = 15
# Tables of the names with most messages, and by which number; which of those with the least are among them is not said.
TOP, TOP_ROWS = {"senders": "messages", "recipients": "messages"}, 1_000

EVENTS = """
create temp table event as
select distinct on (lane, "offset", part) *, floor("at" * 1e6 + 0.5)::bigint as us
from read_parquet($files, union_by_name = true, hive_partitioning = false);
"""
DAY = """
create temp table today as select * from event where us >= $begin and us < $end;
create temp table verdict as
with timed as (
    select *,
        coalesce(destination, '') as dest,
        provider_of(coalesce(relay, '')) as provider,
        relay <> 'none' or delay_c > 0 or delay_d > 0 as asked,
        floor(delay_a * 1e6 + 0.5)::bigint as a_us, floor(delay_b * 1e6 + 0.5)::bigint as b_us,
        floor(delay_c * 1e6 + 0.5)::bigint as c_us, floor(delay_d * 1e6 + 0.5)::bigint as d_us
    from today where kind = 'attempt'
), named as (
    select *,
        case when not asked and status = 'deferred' then 'put_off' when not asked and status = 'bounced' then 'returned'
            else status end as outcome,
        asked and status in ('delivered', 'deferred', 'bounced') as attempt
    from timed
)
select *,
    attempt and generation = 0
        and row_number() over (partition by queue_id, number, attempt and generation = 0 order by "offset", part) = 1 as first,
    case when status = 'delivered' then a_us + b_us + c_us + d_us end as delay_us
from named;
create temp table came as
select queue_id, us, part = 0 as first, part, size_bytes, recipient_count, origin, sender, client_address, tls, recipients,
    len(recipients) as n
from today where kind = 'accepted';
create temp table added as
select us, len(from_json(arguments, '{"recipients": ["varchar"]}').recipients) as n
from today where kind = 'order' and operation = 'add_recipients';
"""
COUNTED = ",\n    ".join(
    ["count(*) filter (attempt) as attempts", *(f"count(*) filter (outcome = '{name}') as {name}" for name in OUTCOMES)]
)
TRIED = f"""
    {COUNTED},
    count(distinct queue_id) filter (attempt) as messages,
    count(distinct (queue_id, number)) filter (attempt) as recipients,
    coalesce(sum(a_us) filter (status = 'delivered'), 0)::bigint as delay_a_sum_us,
    coalesce(sum(b_us) filter (status = 'delivered'), 0)::bigint as delay_b_sum_us,
    coalesce(sum(c_us) filter (status = 'delivered'), 0)::bigint as delay_c_sum_us,
    coalesce(sum(d_us) filter (status = 'delivered'), 0)::bigint as delay_d_sum_us,
    max(delay_us) as delay_max_us,
    list(delay_us) filter (status = 'delivered') as each_us
"""
TABLES = {
    "senders": """select coalesce(sender, '') as sender, count(*) as messages, sum(recipient_count)::bigint as recipients,
        sum(size_bytes)::bigint as size_bytes from came where first group by all""",
    "clients": """select client_address, count(*) filter (came) as messages, coalesce(sum(recipients), 0)::bigint as recipients,
        coalesce(sum(size_bytes), 0)::bigint as size_bytes, count(*) filter (not came) as refused
        from (
            select client_address, true as came, recipient_count as recipients, size_bytes from came
            where first and client_address <> ''
            union all select client_address, false, 0, 0 from today where kind = 'refused'
        ) group by client_address""",
    "recipients": """select recipient, count(*) as messages from (select unnest(recipients) as recipient from came)
        group by recipient""",
    "encryption": r"""select direction, split_part(tls, ' ', 1) as version, split_part(said, ': ', 1) as level,
        case when tls = '' then folded(why) else why end as reason,
        case when contains(tls, ' ') then split_part(tls, ' ', -1) else '' end as cipher, count(*) as count
        from (select *, regexp_replace(
            case when contains(said, ': ') then said[strpos(said, ': ') + 2:] else '' end,
            '([A-Za-z0-9_-]+\.)+[A-Za-z][A-Za-z0-9-]*[A-Za-z0-9]', '<host>', 'g'
        ) as why from (
            select 'in' as direction, coalesce(tls, '') as tls, '' as said from came where first and origin = 'smtp'
            union all select 'out', coalesce(tls, ''), coalesce(tls_level, '') from verdict where status = 'delivered'
        )) group by all""",
    "windows": """select destination, count(*) as samples, min("window") as window_min, avg("window") as window_mean,
        max("window") as window_max, avg(busy) as busy_mean, max(busy) as busy_max, max(queued) as queued_max,
        count(distinct us // 60000000) filter (dead_until > us / 1e6) as dead_minutes
        from today where kind = 'window' group by destination""",
    "arrivals": """select coalesce(a.stretch, f.stretch) as stretch, arrived_at, coalesce(accepted, 0) as accepted,
        coalesce(finished, 0) as finished
        from (select left(queue_id, 5) as stretch, min(us) / 1e6 as arrived_at, count(*) as accepted
            from came where first group by stretch) as a
        full join (select left(queue_id, 5) as stretch, count(*) as finished
            from today where kind = 'finished' group by stretch) as f on a.stretch = f.stretch""",
}


def recount(
    events: Path, day: date, zone: str = "UTC", before: Mapping[date, Tables] | None = None, end: float | None = None
) -> Tables:
    """Returns all tables of a day. ``before``: the tables of earlier days, as far as there are reports; ``end``: of a day that
    is not over, the last count of the queue."""
    before = before or {}
    begins = {n: _midnight(day + timedelta(days=n), zone) for n in range(1 - AGES_DAYS, 2)}
    connection = duckdb.connect()
    connection.create_function("provider_of", provider_of, ["VARCHAR"], "VARCHAR")
    connection.create_function("folded", folded, ["VARCHAR"], "VARCHAR")
    files = [str(file) for file in sorted(events.glob("dt=*/[!._]*.parquet"))]
    connection.execute(EVENTS, {"files": files})
    for statement in DAY.split(";\n"):
        if statement.strip():
            given = {"begin": round(begins[0] * 1e6), "end": round(begins[1] * 1e6)}
            connection.execute(statement, given if "$begin" in statement else {})
    twice = _rows(
        connection, "select queue_id, number from verdict where status <> 'deferred' group by all having count(*) > 1"
    )
    assert not twice, f"recipients that ended twice: {twice}"
    tables = {name: _rows(connection, query) for name, query in TABLES.items()}
    for row in tables["windows"]:
        row.update({name: rounded(row[name], 3) for name in ("window_mean", "busy_mean")})
    tables["destinations"] = _tried(connection, "dest", "destination")
    tables["providers"] = _tried(connection, "provider", "provider")
    tables["totals"] = _totals(connection)
    tables["hours"] = _hours(connection, begins[0], begins[1], zone)
    tables["reasons"] = _reasons(connection)
    tables["refused"] = _refused(connection)
    for table, key in LABELS.items():
        tables[table] = _labelled(connection, key)
    since = {n: begin for n, begin in begins.items() if n == 0 or day + timedelta(days=n) in before}
    tables["ages"] = _ages(connection, {n: (begins[n], begins[n + 1]) for n in since if n <= 0}, end or begins[1])
    others = [before.get(day - timedelta(days=days)) for days in (1, 7)]
    tables["comparison"] = compared(tables, *others)
    return tables


def _midnight(day: date, zone: str) -> float:
    return datetime.combine(day, time(0), ZoneInfo(zone)).timestamp()


def _rows(connection: duckdb.DuckDBPyConnection, query: str, given: object = None) -> list[dict[str, Any]]:
    answer = connection.execute(query, given)
    names = [each[0] for each in answer.description or ()]
    return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]


def _shares(row: dict[str, Any]) -> dict[str, float | None]:
    return {f"{name}_share": share(row[name], row["attempts"]) for name in ("delivered", "deferred", "bounced")}


def _delays(row: dict[str, Any]) -> dict[str, Any]:
    """The distribution of the delays ``each_us``, which leave the row, and what is read from it."""
    each = row.pop("each_us")
    longest = row["delay_max_us"]
    return {"delays": sketch(each) if each else None, **quantiles_s(each or [], longest)}


def _tried(connection: duckdb.DuckDBPyConnection, column: str, key: str) -> list[dict[str, Any]]:
    rows = _rows(connection, f"select {column} as {key}, {TRIED} from verdict group by {column}")
    for row in rows:
        row.update(_shares(row) | _delays(row))
        longest, delivered = row["delay_max_us"], row["delivered"]
        row["delay_max_s"] = None if longest is None else rounded(longest / 1e6, 4)
        for letter in "abcd":
            row[f"delay_{letter}_s"] = (
                rounded(row[f"delay_{letter}_sum_us"] / delivered / 1e6, 6) if delivered else None
            )
    return rows


def _totals(connection: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    (row,) = _rows(connection, f"select {TRIED} from verdict")
    (came,) = _rows(
        connection,
        """select count(*) filter (first) as messages, coalesce(sum(n), 0)::bigint as accepted,
        coalesce(sum(size_bytes), 0)::bigint as size_bytes, count(*) filter (first and origin = 'smtp') as messages_smtp,
        count(*) filter (first and origin = 'local') as messages_local,
        count(*) filter (first and origin = 'bounce') as messages_bounce,
        (select coalesce(sum(n), 0)::bigint from added) as recipients_added,
        (select count(*) from today where kind = 'finished') as finished,
        (select count(*) from today where kind = 'refused') as refused from came""",
    )
    row |= _shares(row) | _delays(row) | came
    row["recipients"] = row.pop("accepted") + row["recipients_added"]
    return [row]


def _hours(connection: duckdb.DuckDBPyConnection, begin: float, end: float, zone: str) -> list[dict[str, Any]]:
    begin_us = round(begin * 1e6)
    found: dict[int, dict[str, Any]] = {}
    for number in range(math.ceil((end - begin) / 3600)):
        at = datetime.fromtimestamp(begin + number * 3600, UTC).astimezone(ZoneInfo(zone))
        found[number] = {"hour": number, "begins_at": begin + number * 3600, "clock": at.strftime("%H:%M %z")}
        found[number] |= dict.fromkeys(("messages", "recipients", "size_bytes", "attempts", *OUTCOMES, "refused"), 0)
    for query in (
        "select {hour} as hour, count(*) filter (first) as messages, coalesce(sum(size_bytes), 0)::bigint as size_bytes "
        "from came group by all",
        "select {hour} as hour, sum(n)::bigint as recipients from (select us, n from came union all select us, n from added) "
        "group by all",
        f"select {{hour}} as hour, {COUNTED} from verdict group by all",
        "select {hour} as hour, count(*) as refused from today where kind = 'refused' group by all",
    ):
        for row in _rows(connection, query.format(hour=f"(us - {begin_us}) // 3600000000")):
            found[row["hour"]] |= row
    return list(found.values())


def _reasons(connection: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    return _rows(
        connection,
        """with each as (
            select replace(outcome, '_', ' ') as status, dsn, folded(coalesce(reply, '')) as reason, destination, count(*) as n,
                min(reply) as example
            from verdict where status not in ('delivered', 'deleted') group by all
        )
        select status, dsn, reason, sum(n)::bigint as recipients, count(*) as destinations,
            first(destination order by n desc, destination desc) as top_destination, min(example) as example
        from each group by all""",
    )


def _refused(connection: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    return _rows(
        connection,
        """with each as (
            select stage, folded(coalesce(reply, '')) as reason, client_address, count(*) as n, min(reply) as example
            from today where kind = 'refused' group by all
        )
        select stage, reason, sum(n)::bigint as count, count(*) as clients,
            first(client_address order by n desc, client_address desc) as top_client, min(example) as example
        from each group by all""",
    )


def _labelled(connection: duckdb.DuckDBPyConnection, key: str) -> list[dict[str, Any]]:
    rows = _rows(
        connection,
        f"""select coalesce({key}, '') as {key},
            count(*) filter (attempt) as attempts,
            count(*) filter (attempt and status = 'delivered') as delivered,
            count(*) filter (attempt and status = 'deferred') as deferred,
            count(*) filter (attempt and status = 'bounced') as bounced,
            count(*) filter (outcome = 'put_off') as put_off,
            count(distinct queue_id) filter (status = 'deferred') as messages_deferred,
            coalesce(sum(size_bytes) filter (status = 'delivered'), 0)::bigint as delivered_bytes,
            count(*) filter (first) as first_attempts,
            count(*) filter (first and status = 'delivered') as first_delivered,
            count(*) filter (status = 'delivered' and tls <> '') as delivered_tls
        from verdict where status in ('delivered', 'deferred', 'bounced') group by 1""",
    )
    for row in rows:
        row["first_attempt_share"] = share(row["first_delivered"], row["first_attempts"])
        row["tls_share"] = share(row["delivered_tls"], row["delivered"])
    return rows


def _ages(
    connection: duckdb.DuckDBPyConnection, days: Mapping[int, tuple[float, float]], end: float
) -> list[dict[str, Any]]:
    """Messages by the age of their stretch of arrival: accepted in it on these days, and not finished."""
    inside = " or ".join(
        f"(us >= {round(begin * 1e6)} and us < {round(until * 1e6)})" for begin, until in days.values()
    )
    rows = _rows(
        connection,
        f"""select left(queue_id, 5) as stretch, min(us) filter (kind = 'accepted') / 1e6 as arrived_at,
            count(*) filter (kind = 'accepted') - count(*) filter (kind = 'finished') as messages
        from event where ({inside}) and (kind = 'finished' or (kind = 'accepted' and part = 0))
        group by stretch having messages > 0 and arrived_at is not null""",
    )
    steps = list(zip((0, *BOUNDS_S), (*BOUNDS_S, None), strict=True))
    return [
        {
            "from_s": low,
            "to_s": high,
            "messages": sum(
                row["messages"]
                for row in rows
                if low <= max(0.0, end - row["arrived_at"]) and (high is None or end - row["arrived_at"] < high)
            ),
        }
        for low, high in steps
    ]


# --- comparing


def tables_of(report: Gold) -> Tables:
    """All tables that the pipeline wrote: a new one is among them without a word here."""
    return {path.name: report.rows(path.name) for path in sorted(report.directory.iterdir()) if path.is_dir()}


def differences(said: Tables, counted: Tables, keys: Mapping[str, tuple[str, ...]] = KEYS) -> list[str]:
    """What a report says otherwise than the recount: tables, rows, columns, numbers. ``keys`` name a row of each table."""
    found = [f"{name}: only the report has it" for name in sorted(said.keys() - counted.keys())]
    found += [f"{name}: the report lacks it" for name in sorted(counted.keys() - said.keys())]
    for name in sorted(said.keys() & counted.keys()):
        theirs, ours = (_by_key(rows, keys[name]) for rows in (said[name], counted[name]))
        if name in TOP and len(theirs) == TOP_ROWS:
            least = min(row[TOP[name]] for row in said[name])
            ours = {key: row for key, row in ours.items() if key in theirs or row[TOP[name]] > least}
        found += [f"{name}: a row is there twice"] if len(theirs) != len(said[name]) else []
        for key in sorted(theirs.keys() | ours.keys(), key=str):
            found += [f"{name} {key}: {text}" for text in _of_row(theirs.get(key), ours.get(key))]
    return found


def _by_key(rows: Sequence[dict[str, Any]], keys: Sequence[str]) -> dict[tuple[Any, ...], dict[str, Any]]:
    return {tuple(row[key] for key in keys): row for row in rows}


def _of_row(said: dict[str, Any] | None, own: dict[str, Any] | None) -> list[str]:
    if said is None or own is None:
        return [f"only the {'report' if own is None else 'recount'} has it: {said or own}"]
    return [
        f"{name} {said.get(name, 'missing')}, counted {own.get(name, 'missing')}"
        for name in sorted(said.keys() | own.keys())
        if name not in said or name not in own or not _same(said[name], own[name])
    ]


def _same(said: Any, own: Any) -> bool:
    if isinstance(said, float) and isinstance(own, int | float):
        return math.isclose(said, own, rel_tol=0.0, abs_tol=1e-9)  # relative, a time could be a second off
    return bool(said == own)
