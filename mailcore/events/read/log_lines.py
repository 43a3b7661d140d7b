"""Lines of the mail log out of events, for times whose files are gone: arrivals, deliveries, refusals, changes, and ends.

A line has the names and values of ``mail.jsonl`` as far as events have them; ``docs/log.md`` lists what they lack. The lines of
a stretch of time are read by column; the addresses of recipients, which the journal's events name by number, come from the
arrivals of their messages.

Law: in memory are the lines of one stretch of time, at most LINES_MAX; of a longer one the caller has to ask for less.

Keeps law: log-continues-in-events (docs/laws.md).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mailcore.bounce.dsn import MESSAGE_CHARACTERS
from mailcore.events.read.files import EventFile, EventFiles, words_of
from mailcore.events.read.rows import DAMAGED, Group, of_kind, opened
from mailcore.lookup.archive import LogPart, Trouble, Window
from mailcore.lookup.browse import lane_order
from mailcore.lookup.tracing import SLACK_S, Steps, earliest_of

__all__ = ["log_lines"]

BOUNCED_S = 31 * 86_400.0  # a bounce has the queue id of its message, and is made up to a queue lifetime later
LINES_MAX = 20_000  # of one stretch: some ten megabytes
Line = dict[str, Any]
_STATUS = {"delivered": "sent", "deferred": "deferred", "bounced": "bounced", "expired": "expired"}  # as the log has it
_COLUMNS: dict[str, tuple[str, ...]] = {
    "accepted": (
        "sender", "size_bytes", "recipient_count", "origin", "client_address", "helo", "login", "message_id", "tls",
        "authentication",
    ),
    "refused": ("sender", "client_address", "helo", "reply", "stage", "recipient"),
    "attempt": (
        "number", "status", "dsn", "reply", "destination", "relay", "tls", "delay_a", "delay_b", "delay_c", "delay_d",
        "tls_level",
    ),
    "finished": (),
    "order": ("operation", "who", "why", "arguments"),
}  # fmt: skip
# An event of the log -> kinds of rows that may become one.
_KINDS = {
    "accepted": ("accepted",), "refused": ("refused",), "delivery": ("attempt",),
    "expired": ("attempt",), "removed": ("finished",), "administered": ("order",), "tuned": ("order",),
}  # fmt: skip


def log_lines(
    files: EventFiles, window: Window, part: LogPart, trouble: Trouble
) -> Steps[list[tuple[float, Line]] | None]:
    """Returns (time, line) of events with ``earliest`` <= time < ``latest``, in order; None if there are too many."""
    found: list[tuple[tuple[float, Any, int, int], str, Line]] = []
    for day in files.days(window):
        for file in sorted(files.of_day(day), key=lambda each: each.order):
            try:
                with opened(file.path) as groups:
                    for group, kind in of_kind(groups, *_wanted(part)):
                        if group.may_have("at", window.earliest, window.latest):
                            found += _rows(file, group, kind, window, part)
                            yield
            except DAMAGED as error:
                trouble.add(words_of(file, error))
            if len(found) > LINES_MAX:
                return None
    found.sort(key=lambda each: each[0])
    named = yield from _names(files, [row for _, kind, row in found if kind in ("attempt", "finished")], trouble)
    lines: list[tuple[float, Line]] = []
    seen: set[tuple[Any, ...]] = set()
    for (at, lane, offset, number), kind, row in found:
        if (lane, offset, number, kind) in seen:  # exported twice
            continue
        seen.add((lane, offset, number, kind))
        lines += [(at, line) for line in _LINES[kind](row, named)]
    return _once(lines)


def _wanted(part: LogPart) -> Collection[str]:
    """Returns the kinds of rows that the question needs."""
    if part.status:
        return ("attempt",)
    return _KINDS.get(part.event, ()) if part.event else tuple(_COLUMNS)


def _rows(
    file: EventFile, group: Group, kind: str, window: Window, part: LogPart
) -> Iterator[tuple[tuple[float, Any, int, int], str, Line]]:
    names = ("queue_id", "offset", "part", "at", *_COLUMNS[kind])
    for _, batch in group.batches(names):
        at = batch.column("at")
        mask = pc.and_(pc.greater_equal(at, window.earliest), pc.less(at, window.latest))
        if part.queue_id:
            mask = pc.and_(mask, pc.equal(batch.column("queue_id"), part.queue_id))
        if kind == "accepted":
            mask = pc.and_(mask, pc.equal(batch.column("part"), 0))
        if kind == "attempt" and part.status:
            mask = pc.and_(mask, pc.equal(batch.column("status"), _ROW_STATUS[part.status]))
        for row in batch.filter(pc.fill_null(mask, False)).to_pylist():
            order = row["at"], lane_order(file.lane), row["offset"], row["part"] or 0
            yield order, kind, row


def _names(files: EventFiles, rows: list[Line], trouble: Trouble) -> Steps[dict[str, tuple[str, dict[int, str]]]]:
    """Returns sender, and addresses by number, of the messages that these rows are about."""
    wanted: dict[str, set[int]] = {}
    for row in rows:
        wanted.setdefault(row["queue_id"] or "", set()).add(row.get("number") or 0)
    wanted.pop("", None)
    named: dict[str, tuple[str, dict[int, str]]] = {}
    if not wanted:
        return named
    ids = pa.array(sorted(wanted), pa.string())
    days = {day for queue_id in wanted for day in _days_of(files, queue_id)}
    low, high = min(wanted), max(wanted)
    for day in sorted(days):
        for file in files.of_day(day):
            try:
                with opened(file.path) as groups:
                    for group, _ in of_kind(groups, "accepted"):
                        if group.may_have("queue_id", low, high):
                            _names_in(group, ids, wanted, named)
                        yield
            except DAMAGED as error:
                trouble.add(words_of(file, error))
    return named


def _days_of(files: EventFiles, queue_id: str) -> list[str]:
    """Returns the days on which the message may have arrived."""
    earliest = earliest_of(queue_id)
    later = BOUNCED_S if len(queue_id) > MESSAGE_CHARACTERS else 2 * SLACK_S
    return files.days(Window(earliest, earliest + later))


def _names_in(
    group: Group, ids: Any, wanted: dict[str, set[int]], named: dict[str, tuple[str, dict[int, str]]]
) -> None:
    for _, batch in group.batches(("queue_id", "part", "sender", "first_number", "recipients")):
        rows = batch.filter(pc.is_in(batch.column("queue_id"), value_set=ids))
        for row in rows.to_pylist():
            sender, addresses = named.get(row["queue_id"], ("", {}))
            numbers = wanted[row["queue_id"]]
            for number, address in enumerate(row["recipients"] or (), row["first_number"] or 0):
                if number in numbers:
                    addresses[number] = address or ""
            named[row["queue_id"]] = (sender if row["part"] else row["sender"] or ""), addresses


# -- the lines of each kind of row

_Named = dict[str, tuple[str, dict[int, str]]]


def _accepted(row: Line, named: _Named) -> Iterator[Line]:
    line = {
        "event": "accepted",
        "time": row["at"],
        "queue_id": row["queue_id"] or "",
        "origin": row["origin"],
        "client_address": row["client_address"] or "",
        "helo": row["helo"] or "",
        "tls": row["tls"] or "",
        "login": row["login"] or "",
        "message_id": row["message_id"] or "",
        "sender": row["sender"] or "",
        "size_bytes": row["size_bytes"] or 0,
        "recipients": row["recipient_count"] or 0,
    }
    yield line | ({"authentication": row["authentication"]} if row.get("authentication") else {})


def _refused(row: Line, named: _Named) -> Iterator[Line]:
    yield {
        "event": "refused",
        "time": row["at"],
        "queue_id": "",
        "stage": row["stage"] or "",
        "reply": row["reply"] or "",
        "client_address": row["client_address"] or "",
        "sender": row["sender"],
        "recipient": row["recipient"] or None,
        "helo": row["helo"] or "",
    }


def _attempt(row: Line, named: _Named) -> Iterator[Line]:
    status = _STATUS.get(row["status"] or "")
    if status is None:  # the end of a deletion has no line
        return
    sender, addresses = named.get(row["queue_id"], ("", {}))
    if status == "expired" and not row["part"]:
        yield {"event": "expired", "time": row["at"], "queue_id": row["queue_id"], "sender": sender}
    delays = [row[name] or 0.0 for name in ("delay_a", "delay_b", "delay_c", "delay_d")]
    yield {
        "event": "delivery",
        "time": row["at"],
        "queue_id": row["queue_id"],
        "recipient": addresses.get(row["number"] or 0, ""),
        "sender": sender,
        "relay": row["relay"] or "",
        "transport": (row["destination"] or "").partition(":")[0],
        "tls": row["tls"] or "",
        "tls_level": row.get("tls_level") or "",
        "delay_s": sum(delays),
        "delays_s": delays,
        "dsn": row["dsn"] or "",
        "status": status,
        "reply": row["reply"] or "",
    }


def _finished(row: Line, named: _Named) -> Iterator[Line]:
    sender, _ = named.get(row["queue_id"], ("", {}))
    yield {"event": "removed", "time": row["at"], "queue_id": row["queue_id"], "sender": sender}


def _order(row: Line, named: _Named) -> Iterator[Line]:
    said = {"who": row["who"] or "", "why": row["why"] or ""}
    if row["queue_id"]:
        yield {
            "event": "administered",
            "time": row["at"],
            "queue_id": row["queue_id"],
            "operation": row["operation"],
            **said,
        }
        return
    try:
        arguments = json.loads(row["arguments"] or "{}")
    except (ValueError, RecursionError):
        arguments = {}
    names = ("scope", "parameter", "value", "until")
    known = {name: arguments[name] for name in names if isinstance(arguments, dict) and name in arguments}
    yield {"event": "tuned", "time": row["at"], **known, **said}


def _once(lines: list[tuple[float, Line]]) -> list[tuple[float, Line]]:
    """Returns the lines without repeats of a change whose records name further recipients."""
    found: list[tuple[float, Line]] = []
    before: Line = {}
    for at, line in lines:
        if line["event"] == "administered" and line == before:
            continue
        before = line
        found.append((at, line))
    return found


_LINES: dict[str, Callable[[Line, _Named], Iterator[Line]]] = {
    "accepted": _accepted, "refused": _refused, "attempt": _attempt, "finished": _finished, "order": _order,
}  # fmt: skip
_ROW_STATUS = {shown: status for status, shown in _STATUS.items()}
