"""The section [esmtp]: limits of the ESMTP extensions."""

from __future__ import annotations

from dataclasses import dataclass

from mailcore.bounds import DAY_S, whole

__all__ = ["Esmtp"]


@dataclass(frozen=True, kw_only=True)
class Esmtp:
    """[esmtp]: limits of the ESMTP extensions."""

    hold_max_s: int = whole(
        30 * DAY_S,
        0,
        365 * DAY_S,
        "seconds",
        "how long a client of a submission listener may have a message held (FUTURERELEASE)",
        special={0: "FUTURERELEASE is not offered"},
    )
    deliver_by_min_s: int = whole(
        60, 1, DAY_S, "seconds", "shortest time after which a client may have a message returned (DELIVERBY, mode R)"
    )
    priority_max: int = whole(
        9,
        0,
        9,
        "",
        "highest priority of mail of clients in `[relay] networks` (MT-PRIORITY); a higher one is lowered to it",
    )
    login_priority_max: int = whole(
        0,
        0,
        9,
        "",
        "highest priority of mail of users who have logged in (MT-PRIORITY); a higher one is lowered to it. Mail of a higher "
        "priority keeps all other mail of its transport waiting",
    )
