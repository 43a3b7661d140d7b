"""A queue restored from a backup: all mail of the backup is held, because it may have been delivered since.

``restored`` in the queue directory says how far each lane reached in the backup. The restore writes it before it gives the
queue its name, so that no manager ever sees the queue without it. The file stays permanently: offsets are never used twice, so
exactly the mail below them is from the backup.

Laws
- No mail of the backup reaches the scheduler: messages below these offsets, and messages that were being taken out of hold or
  deleted, are put into hold (or into deleted, if an order said so) by a pass that delivers nothing. A manager killed meanwhile
  finds the message where it was, and does the same.
- So are messages that came out of the maildrop of the backup, however late the pickup takes them.
- A bounce for such a message is held, too.
- A message of the backup that was deleted, or about to be, is held if it is undeleted.
- A marker that cannot be read stops the manager: without it, it is unknown which mail may be delivered.

Keeps law: restored-is-held (docs/laws.md).
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

import msgspec

from mailcore.envelope import Envelope, Origin
from mailcore.log.disk import Disk
from mailcore.queue.active import Active
from mailcore.queue.from_maildrop import maildrop_name
from mailcore.queue.lanes import DELETED, HOLD, JOURNAL, LOCAL, incoming
from mailcore.queue.queue_id import PICKUP
from mailcore.queue.records import Administrative

__all__ = ["NAME", "NOT_RESTORED", "Restored", "RestoredDamaged", "encode_restored", "read_restored", "write_restored"]

NAME = "restored"
VERSION = 2
WARNING = "it may have been delivered since"


class RestoredDamaged(Exception):
    """Raised if the marker is damaged or too new; the message names the file."""


class Restored(msgspec.Struct, frozen=True):
    """Holds the marker.

    ``lanes`` holds the offsets below which mail is from the backup. ``taken`` holds queue id -> generation of the messages that
    were being taken out of the hold or deleted lane.
    """

    backup_at: float = 0.0  # wall clock; 0: the queue was never restored
    restored_at: float = 0.0
    lanes: dict[str, int] = {}
    taken: dict[str, int] = {}
    version: int = 1  # 2 with ``maildrop``: an older Waypost would deliver that mail
    maildrop: frozenset[str] = frozenset()  # names of files in the maildrop that are from the backup

    @property
    def why(self) -> str:
        """Returns the reason shown for a held message, which a filter by reason finds."""
        at = datetime.fromtimestamp(self.backup_at, UTC)
        return f"restored from the backup of {at:%Y-%m-%d %H:%M:%S} UTC; {WARNING}"

    def covers(self, lane: str, offset: int) -> bool:
        """Returns True if a message at this position is from the backup and not held yet."""
        return offset < self.lanes.get(lane, 0) and lane not in (HOLD, DELETED, JOURNAL)

    def is_of_maildrop(self, lane: str, envelope: Envelope) -> bool:
        """Returns True if the message came out of the maildrop of the backup and is not held yet."""
        return lane == incoming(PICKUP) and maildrop_name(envelope) in self.maildrop

    def is_held_back(self, lane: str, offset: int, envelope: Envelope) -> bool:
        """Returns True if the message must not be delivered."""
        if not self.backup_at:
            return False
        return (
            self.covers(lane, offset)
            or self.is_of_maildrop(lane, envelope)
            or self.taken.get(envelope.queue_id) == envelope.generation
            or (lane == LOCAL and envelope.origin is Origin.BOUNCE and bool(envelope.held_because))
        )

    def orders(self, active: Active, wall: float) -> list[Administrative]:
        """Returns the message's orders, and behind them the one that holds a message of the backup.

        An operator's orders in the backup come first, as far as they deliver nothing: so what was deleted stays deleted, and
        what was held keeps its own reason.
        """
        if not self.is_held_back(active.lane, active.offset, active.envelope):
            return active.orders
        hold = Administrative("hold", active.queue_id, "", self.why, wall)
        orders: list[Administrative] = []
        for order in active.orders:
            if order.operation == "delete":
                orders.append(hold)  # so that it is held when it is undeleted
            if order.operation != "bounce":
                orders.append(order)
        return [*orders, hold]

    def held_if_undeleted(self, lane: str, offset: int) -> str | None:
        """Returns the reason for which a message is held when it is undeleted, if its deletion is from the backup."""
        return self.why if offset < self.lanes.get(lane, 0) else None


NOT_RESTORED = Restored()


def read_restored(disk: Disk, directory: str) -> Restored:
    """Reads the marker; ``NOT_RESTORED`` if there is none. Raises RestoredDamaged, OSError."""
    path = os.path.join(directory, NAME)
    try:
        found = msgspec.json.decode(disk.read_whole(path), type=Restored)
    except FileNotFoundError:
        return NOT_RESTORED
    except msgspec.MsgspecError as error:
        raise RestoredDamaged(f"{path}: {error}; it says which mail must be held: restore again") from error
    if found.version > VERSION or not found.backup_at:
        raise RestoredDamaged(f"{path} has format version {found.version}, this Waypost reads up to {VERSION}")
    return found


def write_restored(disk: Disk, directory: str, restored: Restored) -> None:
    """Writes the marker atomically and synced. Raises OSError."""
    disk.write_whole(os.path.join(directory, NAME), encode_restored(restored))


def encode_restored(restored: Restored) -> bytes:
    """Returns the content of the marker's file."""
    return msgspec.json.format(msgspec.json.encode(restored), indent=1) + b"\n"
