"""The section [queue]: the log, the spool and the retry lanes."""

from __future__ import annotations

from dataclasses import dataclass

from mailcore.bounds import DAY_S, flag, number, whole, wholes
from mailcore.config import values

__all__ = ["Queue"]


@dataclass(frozen=True, kw_only=True)
class Queue:
    """[queue]: the log, the spool and the retry lanes."""

    segment_bytes: int = whole(32 << 20, 64 << 10, 1 << 30, "bytes", "size at which a lane begins a new segment")
    checkpoint_interval_s: float = number(1.0, 0.05, 60, "seconds", "time between two writes of the restart positions")
    commit_delay_ms: float = number(
        3.0, 0, 100, "milliseconds", "under load, how long a sync waits so that it covers more records"
    )
    inline_limit: int = whole(
        256 << 10, 0, 1 << 20, "bytes", "data up to this size is stored in the log, larger data in the spool"
    )
    inline_memory_bytes: int = whole(
        64 << 20,
        0,
        1 << 40,
        "bytes",
        "memory of each receiver for messages above 64 kB on their way into the log, or to the spool in pieces as large; when"
        " it is in use, and on listeners with milters, they go to the spool in small pieces",
    )
    carry_limit: int = whole(
        16 << 10,
        0,
        1 << 20,
        "bytes",
        "up to this size, deferred and held data that is in the log is written again with each deferral; 0: none stays in the"
        " log, each such message gets a spool file",
    )
    retries_waiting: int = whole(
        100_000,
        0,
        10_000_000,
        "messages",
        "messages that a retry makes due and the active set has no room for, that wait where they rest (300 bytes of memory"
        " each); more are written to the lane retry.0",
    )
    refer_deferred: bool = flag(
        True,
        "deferred data above carry_limit, and deleted data, stays in the log where it lies; false: it is written again, and"
        " larger deferred data gets a spool file at its third deferral",
    )
    reserve_bytes: int = whole(64 << 20, 0, 1 << 40, "bytes", "free disk space below which new mail gets 452")
    reserve_inodes: int = whole(
        1000, 0, 1 << 40, "inodes", "free inodes below which new mail gets 452, on a file system that limits them"
    )
    ballast_bytes: int = whole(
        16 << 20,
        1 << 20,
        1 << 40,
        "bytes",
        "disk space that is allocated in advance; when the disk is full, it is given back for delivery",
    )
    ballast_inodes: int = whole(
        128, 64, 100_000, "inodes", "empty files that are created in advance; they are given back like ballast_bytes"
    )
    lag_bytes_max: int = whole(
        8 << 30, 1 << 20, 1 << 50, "bytes", "a receiver answers 452 while more than this of its lane is unread"
    )
    retry_ladder_s: tuple[int, ...] = wholes(
        (1, 5, 30, 60, 300, 600, 1200, 2400, 4000), "waits of deferred mail; each has a retry lane", values.retry_ladder
    )
    undo_time_s: int = whole(3600, 60, 30 * DAY_S, "seconds", "how long a deletion can be undone")
    names_counted: int = whole(
        1000, 1, 100_000, "destinations", "number of destinations with their own counters; all others are aggregated"
    )
    suffix_bytes_max: int = whole(
        64 << 20,
        1 << 20,
        1 << 40,
        "bytes",
        "how much of the journal's end a start reads; the state of older messages is written again at its end",
    )
    compact_below: float = number(
        0.25, 0.0, 0.9, "of its records", "a sealed segment is rewritten when less than this share is still needed"
    )
