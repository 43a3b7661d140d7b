"""The faults of a change that the files alone do not show: on this host it could not come into force, or would stop mail.

Asked where a change of managed settings is made, and at each other node before it takes the change over: disks and addresses
are another matter at each.
"""

from __future__ import annotations

from mailcore.config.settings import Settings
from mailcore.control.address_faults import address_faults
from mailcore.control.kept_maps import kept_map_faults
from mailcore.control.protocol.settings import KeyFault
from mailcore.control.room_faults import room_faults
from mailcore.log.disk import Disk
from mailcore.supervisor.fresh_addresses import sockets_are_given
from mailcore.supervisor.settings_change import not_while_running

__all__ = ["change_faults", "faults_here"]


def change_faults(old: Settings, new: Settings, disk: Disk) -> list[KeyFault]:
    """Returns why ``new`` can't come into force in the place of ``old``, which the processes have. Raises OSError."""
    if faults := kept_map_faults(new):
        return faults
    faults = address_faults(old, new, sockets_are_given=sockets_are_given(old.node_run_directory))
    if faults := [*faults, *room_faults(old, new, disk)]:
        return faults
    refused = not_while_running(old, new, sockets_are_given=False)  # their addresses are asked for above
    return [KeyFault(key="", reason=f"{each}; it needs a restart") for each in refused]


def faults_here(old: Settings, new: Settings) -> list[tuple[str, str]]:
    """Returns their keys and reasons, for a process that takes a change over. Raises OSError."""
    return [(each.key, each.reason) for each in change_faults(old, new, Disk())]
