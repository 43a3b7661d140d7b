"""Routes: whether the files of [route_maps] can be used, and the users of the processes that route can read them."""

from __future__ import annotations

from collections.abc import Iterator

from mailcore.config.route_files import FAULT_MEANS, route_faults
from mailcore.doctor.finding import Finding
from mailcore.doctor.host import Host
from mailcore.doctor.live_files import look_at_files

__all__ = ["look"]


def look(host: Host) -> Iterator[Finding]:
    """Yields findings about the files of [route_maps]."""
    settings = host.settings
    asks = "next_hop" in settings.recipients.ways.values()  # then receivers route, too
    yield from look_at_files(
        host,
        "routes",
        list(settings.route_maps.files),
        lambda: route_faults(settings),
        FAULT_MEANS,
        lambda process: process in ("manager", "control") or (asks and process.startswith("receiver.")),
        "looks up routes",
    )
