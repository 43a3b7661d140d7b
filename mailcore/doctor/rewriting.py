"""Rewriting: whether the files of [rewriting] can be used, and the users of the receivers and of control can read them."""

from __future__ import annotations

from collections.abc import Iterator

from mailcore.config.maps import map_faults
from mailcore.doctor.finding import Finding
from mailcore.doctor.host import Host
from mailcore.doctor.live_files import look_at_files

__all__ = ["look"]


def look(host: Host) -> Iterator[Finding]:
    """Yields findings about the files of [rewriting]."""
    rewriting = host.settings.rewriting
    yield from look_at_files(
        host,
        "rewriting",
        list(rewriting.files),
        lambda: map_faults(rewriting),
        "the maps read before stay in use, and all mail gets 451 after a restart",
        lambda process: process == "control" or process.startswith("receiver."),
        "takes mail",
    )
