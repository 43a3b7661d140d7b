"""Reads arrivals from event files: searches by column, and converts rows back into envelopes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from mailcore.envelope import DataPlace, Envelope, Origin, Recipient
from mailcore.events.read.rows import Event, Group, of_kind, opened, rows_where
from mailcore.lookup.archive import Window
from mailcore.lookup.query import Matches
from mailcore.lookup.tracing import Steps

__all__ = ["Row", "arrivals_in", "envelopes_at", "matching_at", "names_in"]

_ORIGINS = {origin.name.lower(): origin for origin in Origin}
_ENVELOPE = (
    "queue_id", "offset", "part", "at", "sender", "size_bytes", "recipient_count", "recipients", "first_number", "origin",
    "client_address", "helo", "login", "message_id", "tls", "tag", "authentication",
)  # fmt: skip


class Row(NamedTuple):
    """The place of an ``accepted`` row in its file."""

    group: int
    row: int
    offset: int  # in its lane
    matched: tuple[int, int] | None = None  # group and row of the recipient that was asked for


def arrivals_in(path: str, matches: Matches, window: Window, from_group: int) -> Iterator[tuple[int, int, list[Row]]]:
    """Yields (number, rows examined, matching first rows of messages in order) of row groups, from ``from_group`` backwards.

    ``from_group`` -1 begins at the last.
    """
    names = ["offset", "part", *_tests(matches)]
    names += ["recipients"] if matches.recipient is not None else []
    carried: tuple[int, tuple[int, int]] | None = (
        None  # a message of which a recipient matched behind this group, and where
    )
    with opened(path) as groups:
        for group, _ in reversed(list(of_kind(groups, "accepted"))):
            if from_group >= 0 and group.number > from_group:
                continue
            wanted = matches.queue_id
            if not group.may_have("at", window.earliest, window.latest) or (
                wanted and not group.may_have("queue_id", wanted, wanted)
            ):
                yield group.number, 0, []
                continue
            rows, reached, head = _matching(group, names, matches)
            if matches.recipient is not None:
                if carried is not None:
                    reached.setdefault(*carried)
                carried = (head, reached[head]) if head is not None and head in reached else None
                rows = [row._replace(matched=reached[row.offset]) for row in rows if row.offset in reached]
            yield group.number, group.rows, rows


def _tests(matches: Matches) -> dict[str, Callable[[str], bool]]:
    """Returns the tests of a whole message, the most selective first."""
    tests: dict[str, Callable[[str], bool] | None] = {
        "queue_id": matches.queue_id.__eq__ if matches.queue_id else None,
        "message_id": matches.message_id,
        "sender": matches.sender,
    }
    return {name: test for name, test in tests.items() if test is not None}


def _matching(
    group: Group, names: Sequence[str], matches: Matches
) -> tuple[list[Row], dict[int, tuple[int, int]], int | None]:
    """Returns the first rows of messages that match except for recipients, the offsets of messages with a matching recipient
    here and where its first one is, and the offset of the message whose first rows are in the group before."""
    rows: list[Row] = []
    reached: dict[int, tuple[int, int]] = {}
    head: int | None = None
    tests = _tests(matches)
    for first, batch in group.batches(names):
        offsets = batch.column("offset").to_pylist()
        parts = batch.column("part").to_pylist()
        if not first and parts[0]:
            head = offsets[0]
        at: set[int] | None = None
        for name, test in tests.items():
            if at is None or at:
                found = rows_where(batch.column(name), test)
                at = found if at is None else at & found
        whole = range(len(parts)) if at is None else sorted(at)
        rows += (Row(group.number, first + row, offsets[row]) for row in whole if not parts[row])
        if matches.recipient is not None:
            for row in sorted(rows_where(batch.column("recipients"), matches.recipient)):
                reached.setdefault(offsets[row], (group.number, first + row))
    return rows, reached, head


def envelopes_at(path: str, rows: Sequence[Row]) -> list[Envelope]:
    """Returns the envelopes of rows of one row group, in order, with the recipients that the row has."""
    with opened(path) as groups:
        (group,) = (group for group in groups if group.number == rows[0].group)
        return [_envelope(event) for event in group.events(_ENVELOPE, [row.row for row in rows])]


def matching_at(path: str, rows: Sequence[Row], matches: Matches) -> dict[int, str]:
    """Returns the recipient that was asked for, by the offset of its message; {} if the query does not ask for one."""
    found: dict[int, str] = {}
    test = matches.recipient
    wanted = [(row.matched, row.offset) for row in rows if row.matched is not None]
    if test is None or not wanted:
        return found
    with opened(path) as groups:
        for group in groups:
            here = sorted((at[1], offset) for at, offset in wanted if at[0] == group.number)
            events = group.events(("recipients",), [row for row, _ in here]) if here else ()
            for (_, offset), event in zip(here, events, strict=True):
                found[offset] = next((each for each in event["recipients"] or () if test(each or "")), None) or ""
    return found


def _envelope(event: Event) -> Envelope:
    first = event["first_number"] or 0
    recipients = tuple(
        Recipient(number, address or "") for number, address in enumerate(event["recipients"] or (), first)
    )
    return Envelope(
        queue_id=event["queue_id"] or "",
        generation=0,
        sender=event["sender"] or "",
        recipients=recipients,
        recipient_count=event["recipient_count"] or len(recipients),
        arrived_at=event["at"] or 0.0,
        size_bytes=event["size_bytes"] or 0,
        data=DataPlace.SPOOL,
        origin=_ORIGINS.get(event["origin"], Origin.SMTP),
        client_address=event["client_address"] or "",
        helo=event["helo"] or "",
        tls=event["tls"] or "",
        login=event["login"] or "",
        message_id=event["message_id"] or "",
        tag=event.get("tag") or "",  # files of earlier versions lack this and the next
        authentication=event.get("authentication") or "",
    )


def names_in(path: str, offset: int, numbers: Collection[int]) -> Steps[dict[int, str]]:
    """Returns addresses of recipients, by number, of the message at this offset."""
    names: dict[int, str] = {}
    with opened(path) as groups:
        for group, _ in of_kind(groups, "accepted"):
            if not group.may_have("offset", offset, offset):
                continue
            rows = [
                first + row
                for first, batch in group.batches(("offset",))
                for row, each in enumerate(batch.column(0).to_pylist())
                if each == offset
            ]
            yield
            for event in group.events(("first_number", "recipients"), rows):
                first = event["first_number"] or 0
                for number, address in enumerate(event["recipients"] or (), first):
                    if number in numbers:
                        names[number] = address or ""
                yield
    return names
