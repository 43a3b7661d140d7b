"""The name of an owner: the node, its home, its boot, and random digits.

So a copy of a machine, or a home whose processes were ended because the shard was lost, is another owner.
"""

from __future__ import annotations

import secrets

from mailcore.boot import boot_id
from mailcore.config.settings import Settings
from mailcore.log.disk import Disk
from mailcore.nodes.parameters import node_of
from mailcore.queue.identity import HOME, read_identity

__all__ = ["name_in", "new_owner"]


def name_in(settings: Settings, disk: Disk) -> str:
    """Returns how the names of all owners of this home in this boot begin. Raises OSError."""
    identity = read_identity(disk, HOME, str(settings.home))
    boot = boot_id()
    return f"{node_of(settings)}/{identity.identity[:8] if identity is not None else '-'}/{boot[:13]}/"


def new_owner(settings: Settings, disk: Disk) -> str:
    """Returns a name that no owner has had. Raises OSError."""
    return name_in(settings, disk) + secrets.token_hex(4)
