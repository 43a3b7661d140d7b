"""The section [export]: the events for the reports."""

from __future__ import annotations

from dataclasses import dataclass

from mailcore.bounds import DAY_S, flag, number, whole

__all__ = ["Export"]


@dataclass(frozen=True, kw_only=True)
class Export:
    """[export]: the events for the reports. They are exported from the log before it is deleted, to `events` below `home`."""

    enabled: bool = flag(True, "export events; false: no events, no reports, and segments are deleted without waiting")
    interval_s: float = number(30.0, 0.1, 3600, "seconds", "time between two searches for sealed segments")
    cut_interval_s: float = number(
        3600.0,
        60,
        DAY_S,
        "seconds",
        "time after which, and at midnight, everything up to now is exported and the queue is counted",
    )
    window_interval_s: float = number(
        60.0, 1, DAY_S, "seconds", "time between two samples of the destinations' windows"
    )
    lag_bytes_max: int = whole(
        8 << 30,
        1 << 20,
        1 << 50,
        "bytes",
        "segments kept for the export; above this they are deleted, their events are lost, and this is logged",
    )
    keep_days: int = whole(400, 3, 36_500, "days", "how long events are kept")
