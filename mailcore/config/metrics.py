"""The section [metrics]: where a monitoring system reads the metrics."""

from __future__ import annotations

from dataclasses import dataclass

from mailcore.bounds import text, whole
from mailcore.config import values

__all__ = ["Metrics"]


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """[metrics]: Prometheus text over HTTP, and by ``waypost metrics``."""

    listen: str = text(
        "",
        "address and port of the page /metrics, such as 127.0.0.1:9154; it needs no password, so keep it on loopback",
        values.endpoint,
        special={"": "no page"},
    )
    destinations_max: int = whole(
        20,
        0,
        1000,
        "destinations",
        "destinations with metrics of their own, those with the most mail; the rest is other",
    )
