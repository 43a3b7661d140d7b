"""Counts the rows of events while they are written, so that a report can compare the files with what was exported.

The counters are those of ``schema.COUNTERS``. They are made from the rows in memory, never from files, and are saved with the
exported position; a cut has them (``cutoff``).

Keeps law: rows-as-exported (docs/laws.md).
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from mailcore.events.schema import CHECKSUM_WRAPS, FIELDS, ROUTED

__all__ = ["add", "count"]

Counted = Sequence[tuple[Any, ...]]  # rows of one kind: offset, part, at, queue id, then the columns of the kind
_OF_ROW = 4
_STATUS, _NUMBER = (_OF_ROW + FIELDS["attempt"].index(name) for name in ("status", "number"))
_DESTINATION, _DOMAIN = (_OF_ROW + FIELDS["attempt"].index(name) for name in ("destination", "recipient_domain"))
_RECIPIENTS, _SIZE = (_OF_ROW + FIELDS["accepted"].index(name) for name in ("recipients", "size_bytes"))
_OPERATION, _ARGUMENTS = (_OF_ROW + FIELDS["order"].index(name) for name in ("operation", "arguments"))


def count(kind: str, rows: Counted) -> dict[str, int]:
    """Returns the counters of rows of one kind; a counter that is 0 may be missing."""
    counts: dict[str, int] = {"rows": len(rows), "checksum": _checksum(kind, rows)}
    if kind == "attempt":
        counts |= Counter(row[_STATUS] for row in rows)
        counts |= {ROUTED: len(rows), "routes": _routes(rows)}
    elif kind == "accepted":
        counts["messages"] = sum(1 for row in rows if row[1] == 0)
        counts["accepted"] = sum(len(row[_RECIPIENTS] or ()) for row in rows)
        counts["bytes"] = sum(row[_SIZE] or 0 for row in rows)
    elif kind == "refused":
        counts["refused"] = len(rows)
    elif kind == "order":
        counts["added"] = sum(_added(row[_ARGUMENTS]) for row in rows if row[_OPERATION] == "add_recipients")
    return counts


def add(counts: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    """Returns the sums, without those that are 0."""
    sums = {name: counts.get(name, 0) + more.get(name, 0) for name in sorted({*counts, *more})}
    for name in sums.keys() & {"checksum", "routes"}:
        sums[name] %= CHECKSUM_WRAPS
    return {name: number for name, number in sums.items() if number}


def _checksum(kind: str, rows: Counted) -> int:
    crc32 = zlib.crc32
    if kind == "attempt":
        return sum(crc32(f"{row[0]} {row[1]} {row[3]} {row[_NUMBER]} {row[_STATUS]}".encode()) for row in rows)
    return sum(crc32(f"{row[0]} {row[1]} {row[3]} {kind}".encode("utf-8", "replace")) for row in rows)


def _routes(rows: Counted) -> int:
    crc32 = zlib.crc32
    texts = (f"{row[0]} {row[1]} {row[_DESTINATION] or ''} {row[_DOMAIN] or ''}" for row in rows)
    return sum(crc32(text.encode("utf-8", "replace")) for text in texts)


def _added(arguments: str | None) -> int:
    try:
        listed = msgspec.json.decode(arguments or "{}").get("recipients")
    except (msgspec.MsgspecError, AttributeError):
        return 0
    return len(listed) if isinstance(listed, list) else 0
