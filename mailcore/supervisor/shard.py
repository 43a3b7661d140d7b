"""The supervisor of one of several shards: a process below that of the node (``node``), with the queue's own children.

It does for its shard what the supervisor does for a queue that is alone. The node's process holds the lock of the home, opens
or gets the sockets that systemd keeps, checks a reload, and speaks to systemd.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mailcore.config.settings import Settings
from mailcore.log.disk import Disk, is_full
from mailcore.queue.exported import EXPORTED
from mailcore.queue.identity import HOME, IdentityError, read_identity
from mailcore.queue.shard_copy import refuse_copy
from mailcore.queue.versions import NotOurs, look_at_versions
from mailcore.supervisor.child import SETTINGS_NAME
from mailcore.supervisor.preparation import HomeError, identify, make_home, prepare, prepare_home
from mailcore.supervisor.refused import refuse_start
from mailcore.supervisor.room import DiskFull, refuse_without_room
from mailcore.supervisor.service import Service
from mailcore.supervisor.start import Role
from mailcore.supervisor.supervisor import Shared, Supervisor, say
from mailcore.supervisor.users import Users

if TYPE_CHECKING:
    import socket

__all__ = ["NodeService", "OfNode", "supervise"]


class NodeService(Service):
    """Tells the node's process through a pipe that the supervisor of a shard works, instead of systemd."""

    def __init__(self, writer: int) -> None:
        super().__init__()
        self._writer = writer
        self._is_ready = False
        os.set_blocking(writer, False)

    def ready(self) -> None:
        """Reports that the shard has started."""
        self._is_ready = True
        self.alive()

    def alive(self) -> None:
        """Reports that the supervisor works, and that no child of it is stuck."""
        if self._is_ready:
            with contextlib.suppress(OSError):  # full: the node's process is delayed
                os.write(self._writer, b".")

    def status(self, status: str) -> None:
        """Does nothing: the node's process has the line of systemd."""


@dataclass(frozen=True, slots=True)
class OfNode:
    """Holds the parts that the supervisors of all shards get from the node's process."""

    roles: Mapping[str, Role]
    users: Users
    listeners: Sequence[socket.socket]
    shared: Shared


def supervise(settings: Settings, of_node: OfNode, service: NodeService, read: Callable[[], Settings]) -> int:
    """Runs until it is killed; returns an exit status only if the shard can't start. ``settings`` are those of the shard."""
    stored = settings.run_directory / SETTINGS_NAME
    locks: list[int] = []
    try:
        if settings.shard:
            locks.append(prepare_home(settings))
        else:
            make_home(settings)  # the node's process holds the lock of the home
        look_at_versions(
            Disk(), str(settings.place), str(settings.queue_directory), str(settings.events_directory / EXPORTED)
        )
        _take_tuned_values(settings)
        held = identify(settings)
        if not settings.nodes.is_on:
            refuse_copy(Disk(), str(settings.queue_directory))
        refuse_without_room(settings)
        prepare(settings, of_node.users, stored)
    except (DiskFull, HomeError, IdentityError, NotOurs, OSError) as error:
        full = isinstance(error, DiskFull) or is_full(error)
        why = f"shard {settings.shard}: {error}" + ("; free disk space and inodes" if full else "")
        say(why)
        if isinstance(error, IdentityError):
            refuse_start(settings, service, f"shard {settings.shard}: {error.fault.message}")
        return 1
    Supervisor(
        settings, of_node.roles, stored, of_node.users, of_node.listeners, service, held, read, of_node.shared
    ).run()
    return 0


def _take_tuned_values(settings: Settings) -> None:
    """Gives a new shard the values set live that the home has: its mail is delivered under the same limits. Raises OSError."""
    is_shared = settings.nodes.is_on  # the node has one file for all its shards
    if not settings.shard or is_shared or read_identity(Disk(), HOME, str(settings.place)) is not None:
        return
    with contextlib.suppress(FileNotFoundError):
        Disk().write_whole(str(settings.tuned_file), (settings.home / settings.tuned_file.name).read_bytes())
