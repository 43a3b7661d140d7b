"""Warns of levels that need a validating name server on this host, where /etc/resolv.conf names only others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mailcore.config.settings import Settings
from mailcore.routing.resolvers import local_servers_of

__all__ = ["dane_warnings"]


def dane_warnings(settings: Settings, resolv_conf: Path) -> Iterator[str]:
    """Yields a sentence if hosts are looked up at other hosts only: their answers do not count as validated."""
    tables = settings.dane_levels
    if (
        not tables or settings.deliverer.nameservers or local_servers_of(resolv_conf)
    ):  # load() checks those of the settings
        return
    more = f" and {len(tables) - 1} more" if len(tables) > 1 else ""
    yield (
        f"{tables[0]}{more}: no DANE, because {resolv_conf} names no name server on this host: dane is as may, and dane-only "
        'defers; run a validating resolver here, such as unbound, and set [deliverer] nameservers = ["127.0.0.1"]'
    )
