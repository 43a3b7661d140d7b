"""Reads journal events: converts rows back into the bodies of the records that they were made from.

A column that a row lacks, in a damaged file or one of another program, becomes an empty value.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Collection, Iterator
from itertools import repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mailcore.envelope import Status, Verdict
from mailcore.events.read.rows import Event, Group, of_kind, opened, shared
from mailcore.lookup.archive import Window
from mailcore.lookup.tracing import Body, Steps
from mailcore.queue.records import Administrative, Delivery, Finish, Place, Replaced

__all__ = ["bodies_in", "deliveries_in"]

NOWHERE = -1  # events do not say where in its lane a replacement lies
_STATUSES = {status.name.lower(): status for status in Status}
_ATTEMPT = (
    "queue_id", "offset", "part", "at", "number", "status", "dsn", "reply", "destination", "relay", "tls", "delay_a", "delay_b",
    "delay_c", "delay_d", "generation", "recipient_domain", "sender_domain", "source_address", "tls_verified", "tag",
    "size_bytes", "tls_level",
)  # fmt: skip
_TRIED = (
    "offset", "part", "at", "delay_a", "delay_b", "delay_c", "delay_d", "destination", "relay", "status", "dsn", "reply",
)  # fmt: skip
_SIZE = "size_bytes"
_LATER = ("tls", "tls_level", "sender_domain")  # files of earlier versions lack some of these
_Tried = tuple[tuple[Any, ...], list[Verdict]]  # the first row of a record, and what all of its rows say
_OF_THE_JOURNAL: dict[str, tuple[str, ...]] = {
    "attempt": _ATTEMPT,
    "finished": ("queue_id", "offset", "at", "generation", "why"),
    "replaced": ("queue_id", "offset", "at", "generation", "to_lane"),
    "order": ("queue_id", "offset", "at", "operation", "who", "why", "arguments"),
}


def bodies_in(
    path: str, queue_ids: Collection[str], start: int, end: int, window: Window
) -> Steps[list[tuple[int, Body]]]:
    """Returns the record bodies of these messages in one file, by offset. Raises what is in DAMAGED."""
    found: list[tuple[int, Body]] = []
    attempts: dict[int, _Attempt] = {}
    low, high = min(queue_ids), max(queue_ids)
    with opened(path) as groups:
        for group, kind in of_kind(groups, *_OF_THE_JOURNAL):
            if (
                group.may_have("queue_id", low, high)
                and group.may_have("offset", start, end - 1)
                and group.may_have("at", window.earliest, window.latest)
            ):
                rows = _rows_of(group, queue_ids)
                yield
                for event in group.events(_OF_THE_JOURNAL[kind], rows) if rows else ():
                    offset = event["offset"]
                    if not start <= offset < end:
                        continue
                    if kind != "attempt":
                        found.append((offset, _BODIES[kind](event)))
                    elif offset in attempts:
                        attempts[offset].add(event)
                    else:
                        attempts[offset] = _Attempt(event)
                yield
    # Attempts first: a message that was passed on while its client waited has its end in the same record.
    deliveries: list[tuple[int, Body]] = [(offset, attempt.delivery()) for offset, attempt in attempts.items()]
    return sorted([*deliveries, *found], key=lambda each: each[0])


def _rows_of(group: Group, queue_ids: Collection[str]) -> list[int]:
    wanted = pa.array(sorted(queue_ids), pa.string())
    rows: list[int] = []
    for first, batch in group.batches(("queue_id",)):
        hits = pc.indices_nonzero(pc.is_in(batch.column(0), value_set=wanted)).to_pylist()
        rows += (first + hit for hit in hits)
    return rows


class _Attempt:
    """Collects the rows of one DELIVERY record, one for each verdict."""

    __slots__ = ("_domains", "_first", "_verdicts")

    def __init__(self, event: Event) -> None:
        self._first = event
        self._verdicts: list[Verdict] = []
        self._domains: list[str] = []
        self.add(event)

    def add(self, event: Event) -> None:
        self._domains.append(event.get("recipient_domain") or "")
        self._verdicts.append(
            Verdict(event["number"] or 0, _STATUSES[event["status"]], event["dsn"] or "", event["reply"] or "")
        )

    def delivery(self) -> Delivery:
        first = self._first
        delays = (first["delay_a"] or 0.0, first["delay_b"] or 0.0, first["delay_c"] or 0.0, first["delay_d"] or 0.0)
        return Delivery(
            first["queue_id"] or "",
            first["generation"] or 0,
            tuple(self._verdicts),
            first["at"] or 0.0,
            first["relay"] or "",
            first["tls"] or "",
            delays,
            first["destination"] or "",
            first.get("source_address") or "",  # files of earlier versions lack these columns
            first.get("tls_verified") or False,
            first.get("sender_domain") or "",
            _domains(self._domains),
            first.get("tag") or "",
            first.get("size_bytes") or 0,
            first.get("tls_level") or "",
        )


def _domains(found: list[str]) -> tuple[str, ...]:
    """Returns the domains as ``Delivery.recipient_domains``."""
    return () if not any(found) else tuple(found[:1] if len(set(found)) == 1 else found)


def _finish(event: Event) -> Finish:
    return Finish(event["queue_id"], event["generation"] or 0, None, event["at"] or 0.0, event["why"] or "")


def _replaced(event: Event) -> Replaced:
    place = Place(event["to_lane"] or "", NOWHERE)
    return Replaced(event["queue_id"], event["generation"] or 0, place, None, event["at"] or 0.0)


def _order(event: Event) -> Administrative:
    text = event["arguments"] or ""
    arguments: Any = None
    with contextlib.suppress(ValueError, RecursionError):
        arguments = json.loads(text)
    if not isinstance(arguments, dict):
        arguments = {"as written": text} if text else {}
    return Administrative(
        event["operation"] or "",
        event["queue_id"],
        event["who"] or "",
        event["why"] or "",
        event["at"] or 0.0,
        arguments,
    )


_BODIES: dict[str, Callable[[Event], Body]] = {"finished": _finish, "replaced": _replaced, "order": _order}


def deliveries_in(path: str, end: int, since: float) -> Iterator[list[Delivery]]:
    """Yields the deliveries of one row group at a time, newest group first, in order within; skips groups that are too old."""
    rest: list[_Tried] = []  # of a record whose first rows are in the group before
    with opened(path) as groups:
        for group, _ in reversed(list(of_kind(groups, "attempt"))):
            if not (group.may_have("at", since, float("inf")) and group.may_have("offset", 0, end - 1)):
                continue
            tried = _tried(group, end)
            if rest and tried and tried[-1][0][0] == rest[0][0][0]:
                tried[-1][1].extend(rest.pop()[1])
            tried += rest  # there is no group with its first rows
            rest = [tried.pop(0)] if tried and tried[0][0][1] else []
            yield [
                Delivery(
                    "",
                    0,
                    tuple(verdicts),
                    at or 0.0,
                    relay or "",
                    tls or "",
                    (a or 0.0, b or 0.0, c or 0.0, d or 0.0),
                    to or "",
                    sender_domain=sender or "",
                    size_bytes=size or 0,
                    tls_level=level or "",
                )
                for (_, _, at, a, b, c, d, to, relay, *_, tls, level, sender, size), verdicts in tried
            ]


def _tried(group: Group, end: int) -> list[_Tried]:
    """Uses one object for equal verdicts: few are different."""
    known: dict[tuple[Any, ...], Verdict] = {}
    tried: list[_Tried] = []
    before: int | None = None
    verdicts: list[Verdict] = []
    for _, batch in group.batches((*_TRIED, *_LATER, _SIZE)):
        columns = [batch.column(name).to_pylist() for name in _TRIED[:7]]
        texts = [shared(batch.column(name)) for name in _TRIED[7:]]
        later = [
            shared(batch.column(name)) if name in batch.schema.names else repeat("", batch.num_rows) for name in _LATER
        ]
        has_size = _SIZE in batch.schema.names  # files of earlier versions lack it
        sizes = batch.column(_SIZE).to_pylist() if has_size else repeat(0, batch.num_rows)
        for row in zip(*columns, *texts, *later, sizes, strict=True):
            offset = row[0]
            if offset >= end:
                continue
            said = row[9:12]
            verdict = known.get(said)
            if verdict is None:
                status, dsn, reply = said
                verdict = known[said] = Verdict(0, _STATUSES[status], dsn or "", reply or "")
            if offset != before:
                before, verdicts = offset, []
                tried.append((row, verdicts))
            verdicts.append(verdict)
    return tried
