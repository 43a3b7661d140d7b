"""A queue that came out of a backup: all mail that was in it then is held, because it may have been delivered since.

``restored`` in the queue directory says how far each lane went in the backup. Who restored writes it before the queue is given
its name, so that no manager ever sees the one without the other. It stays for good: offsets are never used twice, so what
lies below them is of the backup, whenever it is read, and nothing else ever is.

Laws
- Nothing of a restored queue reaches the scheduler: what lies below, or was being taken out of hold or deleted then, is put
  into hold (or, when that was ordered, into deleted) by a pass that delivers nothing. A manager killed in the middle finds
  the message where it was, and does the same.
- A bounce that is owed for such a message is held as well.
- What lay in deleted then, or was going there, is held when it is undeleted, as what is deleted out of hold is.
- A marker that can't be read stops the manager: nobody knows then what may be delivered.

Keeps law: restored-is-held (docs/laws.md).
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

import msgspec

from mailcore.envelope import Envelope, Origin
from mailcore.log.disk import Disk
from mailcore.queue.active import Active
from mailcore.queue.lanes import DELETED, HOLD, JOURNAL, LOCAL
from mailcore.queue.records import Administrative
from mailcore.queue.undelete import held_before

__all__ = ["NAME", "NOT_RESTORED", "Restored", "RestoredDamaged", "read_restored", "write_restored"]

NAME = "restored"
VERSION = 1
WARNING = "it may have been delivered since"


class RestoredDamaged(Exception):
    """There is a marker, and it can't be understood; the message names the file."""


class Restored(msgspec.Struct, frozen=True):
    """``lanes``: what lies below came out of the backup. ``taken``: queue id -> generation, of messages that were just being
    taken out of the hold or deleted lane then."""

    backup_at: float = 0.0  # wall clock; 0: this queue was never restored
    restored_at: float = 0.0
    lanes: dict[str, int] = {}
    taken: dict[str, int] = {}
    version: int = VERSION

    @property
    def why(self) -> str:
        """What a held message says, and a filter by reason finds."""
        at = datetime.fromtimestamp(self.backup_at, UTC)
        return f"restored from the backup of {at:%Y-%m-%d %H:%M:%S} UTC; {WARNING}"

    def covers(self, lane: str, offset: int) -> bool:
        """Whether what rests there is of the backup, and not held yet."""
        return offset < self.lanes.get(lane, 0) and lane not in (HOLD, DELETED, JOURNAL)

    def is_held_back(self, lane: str, offset: int, envelope: Envelope) -> bool:
        """Whether nothing of the message may be delivered."""
        if not self.backup_at:
            return False
        return (
            self.covers(lane, offset)
            or self.taken.get(envelope.queue_id) == envelope.generation
            or (lane == LOCAL and envelope.origin is Origin.BOUNCE and bool(envelope.held_because))
        )

    def order(self, active: Active, wall: float) -> Administrative | None:
        """Where a message goes instead of to the scheduler; None: it goes its way. What an operator had ordered in the backup
        is kept as far as it delivers nothing: recipients that were added, another route."""
        if not self.is_held_back(active.lane, active.offset, active.envelope):
            return None
        before = active.order
        if before is not None and before.operation in ("hold", "delete"):
            return before
        arguments = {} if before is None else before.arguments
        why = held_before(active) or self.why
        return Administrative("hold", active.queue_id, "", why, wall, arguments)

    def held_before(self, active: Active) -> str | None:
        """The reason a message has to be in hold for when it is undeleted, if it is deleted or about to be; None: it goes on.
        What was held before the backup keeps its own."""
        why = held_before(active)
        return self.why if why is None and active.offset < self.lanes.get(active.lane, 0) else why


NOT_RESTORED = Restored()


def read_restored(disk: Disk, directory: str) -> Restored:
    """``NOT_RESTORED`` when there is no marker. Raises RestoredDamaged, OSError."""
    path = os.path.join(directory, NAME)
    try:
        found = msgspec.json.decode(disk.read_whole(path), type=Restored)
    except FileNotFoundError:
        return NOT_RESTORED
    except msgspec.MsgspecError as error:
        raise RestoredDamaged(f"{path}: {error}; it says what must not be delivered: restore again") from error
    if found.version > VERSION or not found.backup_at:
        raise RestoredDamaged(f"{path} has format version {found.version}, this Waypost reads up to {VERSION}")
    return found


def write_restored(disk: Disk, directory: str, restored: Restored) -> None:
    """Atomic and synced. Raises OSError."""
    disk.write_whole(
        os.path.join(directory, NAME), msgspec.json.format(msgspec.json.encode(restored), indent=1) + b"\n"
    )
