"""Makes events out of the rows that the export makes of records, whether they come from the log or from a file. Pure.

Law: a record gives the same events, with the same ids, from the log and from a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from mailcore.lookup.feed import Event
from mailcore.queue.records import domain_of

__all__ = ["KINDS_OF_ROWS", "Message", "events_of"]

Columns = Mapping[str, Any]
KINDS_OF_ROWS = ("accepted", "attempt", "order")  # the order of the rows of one record
ADDED = "add_recipients"
NUMBER_UNKNOWN = -1  # the record of an order does not say it


class Message:
    """Holds the first row of an ``accepted`` record, which describes the message, for the record's further rows."""

    def __init__(self) -> None:
        self.place: tuple[str, int] | None = None
        self.first: Columns = {}


def events_of(lane: str, offset: int, kind: str, row: Columns, message: Message) -> Iterator[Event]:
    """Yields the events of one row, in order; ``row`` has its columns by name."""
    if kind == "accepted":
        yield from _accepted(lane, offset, row, message)
    elif kind == "attempt":
        yield _attempt(lane, offset, row)
    elif kind == "order" and row["operation"] == ADDED:
        yield from _added(lane, offset, row)


def _accepted(lane: str, offset: int, row: Columns, message: Message) -> Iterator[Event]:
    if row["part"] == 0:
        message.place, message.first = (lane, offset), row
    first = message.first if message.place == (lane, offset) else {}
    sender = first.get("sender") or ""
    for number, recipient in enumerate(row["recipients"] or (), row["first_number"] or 0):
        yield Event(
            id=f"{lane}:{offset}:a{number}",
            kind="accepted",
            at=row["at"],
            queue_id=row["queue_id"],
            number=number,
            recipient=recipient,
            recipient_domain=domain_of(recipient),
            sender=sender,
            sender_domain=domain_of(sender),
            tag=first.get("tag") or "",
            login=first.get("login") or "",
            size_bytes=first.get("size_bytes") or 0,
            message_id=first.get("message_id") or "",
            origin=first.get("origin") or "",
            client_address=first.get("client_address") or "",
        )


def _attempt(lane: str, offset: int, row: Columns) -> Event:
    delays = [row[name] or 0.0 for name in ("delay_a", "delay_b", "delay_c", "delay_d")]
    return Event(
        id=f"{lane}:{offset}:{row['part']}",
        kind=row["status"],
        at=row["at"],
        queue_id=row["queue_id"],
        number=row["number"] or 0,
        recipient=row.get("recipient") or "",
        recipient_domain=row.get("recipient_domain") or "",
        sender=row.get("sender") or "",
        sender_domain=row.get("sender_domain") or "",
        tag=row.get("tag") or "",
        login=row.get("login") or "",
        size_bytes=row.get("size_bytes") or 0,
        destination=row["destination"] or "",
        relay=row["relay"] or "",
        tls=row["tls"] or "",
        dsn=row["dsn"] or "",
        reply=row["reply"] or "",
        delay_s=round(sum(delays), 6),
    )


def _added(lane: str, offset: int, row: Columns) -> Iterator[Event]:
    """Yields the acceptance of recipients that an operator added. The record does not say who sent the message."""
    try:
        added = msgspec.json.decode(row["arguments"] or "{}")["recipients"]
    except (msgspec.MsgspecError, KeyError, TypeError):
        return
    for place, recipient in enumerate(added if isinstance(added, list) else ()):
        yield Event(
            id=f"{lane}:{offset}:a{place}",
            kind="accepted",
            at=row["at"],
            queue_id=row["queue_id"],
            number=NUMBER_UNKNOWN,
            recipient=str(recipient),
            recipient_domain=domain_of(str(recipient)),
            sender="",
            sender_domain="",
            tag="",
            login="",
            size_bytes=0,
            origin="operator",
        )
