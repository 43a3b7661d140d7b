"""The shards of a node: how the settings of each follow from those of the file, and which of them there are.

A shard is one queue with its own manager: directories, sockets, identity and processes of its own. With ``[core] shards = 1``
the queue is alone, and nothing here applies. With more, shard 0 is the home as it was; the directories of the others are in
``shards/NN`` beside those of the home. All sockets are in ``shards/NN`` below the run directory.

- Shards from ``[core] shards`` on, which an earlier setting made, drain: they have no receivers, and all else until their mail
  has left. A shard without mail has the file DRAINED, and is not started again.
- A node of several takes over shards of others (``adopted``). Each is in the place of its number, which the database has lent,
  and drains: its mail is delivered, and it takes none.
- What belongs to the node is there once: the configuration, kept files, users, the maildrop, mail.log, the portal, reports.

Keeps law: shards-stand-alone (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace

from mailcore.config.known_shards import DRAINED
from mailcore.config.nodes import Nodes
from mailcore.config.settings import Settings, shard_place

__all__ = ["adopted", "all_of", "are_several", "is_adopted", "of_shard", "running_of", "shards_of"]

COPY = "shard"  # in the queue directory: its files are the copy of a shard (mailcore/queue/shard_copy.py)
IDENTITY = "identity"  # in the place of a shard, before anything else of a queue (mailcore/queue/identity.py)


def _part(total: int, number: int, shards: int) -> int:
    """Returns how many of ``total`` processes a shard has: each at least one."""
    return max(1, total // shards + (number < total % shards))


def of_shard(settings: Settings, number: int) -> Settings:
    """Returns the settings of one of several shards. From ``[core] shards`` on it drains: it has no receivers."""
    shards = settings.core.shards
    # The database of [nodes] keeps the first; a shard that drains beside it is on this disk alone.
    nodes = Nodes() if number else settings.nodes
    receivers = _part(settings.receiver.processes, number, shards) if number < shards else 0
    deliverers = _part(settings.deliverer.processes, number % shards, shards)
    of_queue, of_spool = settings.queue_directory, settings.spool_directory
    if number:
        of_queue, of_spool = (shard_place(each.parent, number) / each.name for each in (of_queue, of_spool))
    return replace(
        settings,
        shard=number,
        nodes=nodes,
        queue_directory=of_queue,
        spool_directory=of_spool,
        run_directory=shard_place(settings.run_directory, number),
        receiver=replace(settings.receiver, processes=receivers),
        deliverer=replace(settings.deliverer, processes=deliverers),
    )


def adopted(settings: Settings, number: int, name: str) -> Settings:
    """Returns the settings of a shard of another node, which the database keeps: it has no receivers."""
    here = of_shard(settings, number)
    return replace(here, nodes=replace(settings.nodes, shard=name), receiver=replace(here.receiver, processes=0))


def is_adopted(settings: Settings, number: int) -> bool:
    """Returns whether the files in the place of a number are the copy of a shard that was adopted."""
    return (of_shard(settings, number).queue_directory / COPY).exists()


def shards_of(settings: Settings) -> list[int]:
    """Returns the numbers of the shards that have to run: those of the settings, and those that still have mail."""
    there = [number for number in _on_disk(settings) if number >= settings.core.shards]
    return [*range(settings.core.shards), *(n for n in there if not (shard_place(settings.home, n) / DRAINED).exists())]


def are_several(settings: Settings) -> bool:
    """Returns whether the node needs a process above its supervisors: it has more than one shard, or may take over others."""
    return settings.nodes.is_on or len(shards_of(settings)) > 1


def all_of(settings: Settings) -> list[Settings]:
    """Returns the settings of every shard that has files here, also of those that are drained: for readers of files.

    A queue that is alone has its own, unchanged.
    """
    others = sorted({*range(1, settings.core.shards), *_on_disk(settings)})
    return [of_shard(settings, 0) if are_several(settings) else settings, *(of_shard(settings, n) for n in others)]


def running_of(settings: Settings) -> list[Settings]:
    """Returns the settings of every shard that has to run; a queue that is alone has its own, unchanged."""
    return [of_shard(settings, number) for number in shards_of(settings)] if are_several(settings) else [settings]


def _on_disk(settings: Settings) -> list[int]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        names = [each.name for each in (settings.home / "shards").iterdir()]
        found = sorted(int(name) for name in names if re.fullmatch("[0-9]{2}", name) and int(name))
        return [number for number in found if not is_adopted(settings, number) and _has_begun(settings, number)]
    return []


def _has_begun(settings: Settings, number: int) -> bool:
    """Returns False for a place that was made for a copy and has no note of it yet, because a node was killed just then."""
    queue = of_shard(settings, number).queue_directory
    if (shard_place(settings.home, number) / IDENTITY).exists() or not queue.is_dir():
        return True
    with contextlib.suppress(PermissionError):  # of the portal, which only asks which shards have events
        return any(not each.name.startswith(COPY) for each in queue.iterdir())
    return True
