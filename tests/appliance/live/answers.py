"""What a small core answers, as a test may change it."""

from __future__ import annotations

from typing import Any

__all__ = ["answers", "state"]

STARTED_AT = 1_000_000.0


def state(*, started_at: float = STARTED_AT, queued: int = 0, **counts: int) -> dict[str, Any]:
    names = ("accepted", "delivered", "deferred", "bounced", "expired", "deleted", "undeleted", "lost")
    return {
        "pid": 10,
        "started_at": started_at,
        "stalled": "",
        "tuned_damage": "",
        "active_messages": 1,
        "deliverers": [{"in_flight": 2}],
        "lanes": {"incoming.0": {"interval_s": 0}, "retry.300": {"interval_s": 300}, "retry.60": {"interval_s": 60}},
        "counted_since": started_at,
        "totals": {f"recipients_{name}": counts.get(name, 0) for name in names},
        "balance": {"recipients": {"queued_at_start": 0, "queued": queued}},
    }


def row(**values: Any) -> dict[str, Any]:
    outcome: dict[str, Any] = {"delivered": 0, "deferred": 0, "bounced": 0, "success_share": None, "last_replies": []}
    return {"window": 5, "limit": 20, "busy": 1, "dead_until": None, "suspended": False, **outcome, **values}


def ages(oldest: dict[str, Any] | None = None, as_of: float = STARTED_AT) -> dict[str, Any]:
    """A count of the ages that is complete."""
    return {
        "buckets_s": [300, None], "rows": [], "total": 0, "counts": [0, 0], "by_state": {}, "oldest": oldest, "as_of": as_of,
        "took_s": 0.1, "examined": 0, "note": "", "done": True,
    }  # fmt: skip


def answers(**changed: Any) -> dict[str, Any]:
    return {
        "processes": {
            "processes": {"supervisor": 9, "manager": 10},
            "children": {"manager": {"pid": 10, "started_at": STARTED_AT, "restarts": 2}},
            "manager": True,
        },
        "state": state(),
        "size": {
            "messages": 3,
            "recipients": 7,
            "lanes": {"retry.300": {"messages": 3, "recipients": 7}},
            "destinations": {},
        },
        "destinations": {"destinations": {}, "without_mail": {}, "queued": {}, "suspended": {}},
        "disks": {
            "disks": [{"what": "queue", "path": "/q", "total_bytes": 100, "free_bytes": 40, "reserve_bytes": 10}]
        },
        "ages": ages(),
        **changed,
    }
