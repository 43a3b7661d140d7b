"""Where the events lie that a report is made of: of one queue, of all shards of this node, or of those of all nodes."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings

from mailcore.config.core import SHARDS_MAX
from mailcore.config.events_copy import COPY, MANIFEST

__all__ = ["event_places", "nodes_events", "shard_events"]


def shard_events() -> dict[int, Path]:
    """Returns the events of each shard but the first, by number; also of those that are drained, whose earlier days have mail.

    None on a node whose queue a database keeps: ``nodes_events`` has them. The portal may enter the directory of the shards,
    and not list it.
    """
    if settings.WAYPOST.nodes.is_on:
        return {}
    place = settings.EVENTS_DIRECTORY.parent / "shards"
    directories = {number: place / f"{number:02}" / "events" for number in range(1, SHARDS_MAX)}
    return {number: directory for number, directory in directories.items() if directory.is_dir()}


def nodes_events() -> Path | None:
    """Returns the file that says what the copy of the events of all nodes has; None without [nodes]."""
    return settings.EVENTS_DIRECTORY / COPY / MANIFEST if settings.WAYPOST.nodes.is_on else None


def event_places() -> list[Path]:
    """Returns all directories with events of which reports are made."""
    nodes = nodes_events()
    copies = [] if nodes is None else sorted(nodes.parent.glob("shards/*/events"))
    return [settings.EVENTS_DIRECTORY, *shard_events().values(), *copies]
