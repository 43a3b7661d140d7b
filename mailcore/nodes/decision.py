"""The decision of a person about settings of this node that differ from those of all nodes: a file, which the watching process
reads, carries out and removes.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec

from mailcore.config.settings import Settings
from mailcore.config.shared_settings import KINDS
from mailcore.nodes.node_files import directory_of

__all__ = ["GIVE", "TAKE", "Decision", "decide", "decisions", "forget_decision"]

GIVE, TAKE = "give", "take"  # the settings of this node to all; those of all to this node
_NAME = "decision-{}.json"


class Decision(msgspec.Struct, frozen=True):
    """The decision, who made it, and why. ``version``: that all nodes had then; what is given counts only above it."""

    what: str
    who: str = ""
    why: str = ""
    version: int = -1


def decide(settings: Settings, kind: str, decision: Decision) -> None:
    """Writes a decision down, for the user that Waypost runs as. Raises OSError."""
    path = _path(settings, kind)
    owner = settings.home.stat()
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(msgspec.json.encode(decision))
        if os.geteuid() == 0:
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
    new.replace(path)


def decisions(settings: Settings) -> dict[str, Decision]:
    """Returns the decisions that are not carried out, by kind."""
    found = {}
    for kind in KINDS:
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            found[kind] = msgspec.json.decode(_path(settings, kind).read_bytes(), type=Decision)
    return found


def forget_decision(settings: Settings, kind: str) -> None:
    """Removes a decision. Raises OSError."""
    _path(settings, kind).unlink(missing_ok=True)


def _path(settings: Settings, kind: str) -> Path:
    return directory_of(settings) / _NAME.format(kind)
