"""Names this boot of the machine: an owner of a shard, or a giver of shares, is another one after it."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

__all__ = ["BOOT", "boot_id"]

BOOT = "WAYPOST_BOOT"  # set by the unit: a service that sees processes alone in /proc cannot read the file
_FILE = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Returns the kernel's name of this boot. Raises OSError if neither the unit nor the kernel tells it."""
    given = os.environ.get(BOOT, "")
    return str(uuid.UUID(given)) if given else _FILE.read_text(encoding="ascii").strip()
