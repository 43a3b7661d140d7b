"""Where the events of the shards of this node lie, for reports of all of them."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings

from mailcore.config.core import SHARDS_MAX

__all__ = ["shard_events"]


def shard_events() -> dict[int, Path]:
    """Returns the events of each shard but the first, by number; also of those that are drained, whose earlier days have mail.

    None on a node whose queues a database keeps: the shards that it has adopted are another node's, which reports them when it
    has them back, with their events. The portal may enter the directory of the shards, and not list it.
    """
    if settings.WAYPOST.nodes.is_on:
        return {}
    place = settings.EVENTS_DIRECTORY.parent / "shards"
    directories = {number: place / f"{number:02}" / "events" for number in range(1, SHARDS_MAX)}
    return {number: directory for number, directory in directories.items() if directory.is_dir()}
