"""The setting of [portal] that says who may read the portal's metrics."""

from __future__ import annotations

from dataclasses import dataclass

from mailcore.bounds import texts
from mailcore.config import values

__all__ = ["PortalMetrics"]


@dataclass(frozen=True, kw_only=True)
class PortalMetrics:
    """The part of [portal] about metrics."""

    metrics_networks: tuple[str, ...] = texts(
        (),
        "networks of clients that may read the portal's own metrics at /metrics without signing in, such as 127.0.0.0/8; "
        "the page does not exist if there are none",
        values.network,
    )
