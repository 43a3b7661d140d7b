"""The highest numbers that the database has confirmed to this node, in a small file, to notice a database that went back.

- law: never-back-in-time. A database that says less than it once confirmed to this node was restored to an earlier time, or
  has lost commits: mail that was delivered since would be delivered again. Nothing is delivered until a person has decided.

Only confirmed numbers are noted, so a failover that loses nothing is never taken for a restore. The file may be older than
the truth: then what went back since it was written is not noticed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import msgspec

from mailcore.faults import Code, Fault
from mailcore.log.disk import Disk
from mailcore.replication.faults import BackInTime, StoreError
from mailcore.replication.snapshot import Snapshot, WriterRow

__all__ = ["NAME", "ConfirmedDamaged", "ConfirmedNumbers"]

NAME = "confirmed.json"
_HELD = "Nothing is delivered from this shard until an operator has decided what to do with its mail."


class ConfirmedDamaged(StoreError):
    """Raised if the file cannot be understood."""


class _Shard(msgspec.Struct):
    """PostgreSQL's system identifier, and the highest epoch of a shard and number of each of its writers."""

    system: int
    epoch: int = 0
    writers: dict[str, int] = {}  # msgspec copies it


class _Content(msgspec.Struct):
    """The file."""

    shards: dict[str, _Shard] = {}  # msgspec copies it


class ConfirmedNumbers:
    """Notes and compares. The file is in a directory of the node, outside of the shards. Raises ConfirmedDamaged, OSError."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = os.path.join(directory, NAME)
        self._content = _Content()
        self._changed = False
        if disk.exists(self._path):
            try:
                self._content = msgspec.json.decode(disk.read_whole(self._path), type=_Content)
            except msgspec.MsgspecError as error:
                raise ConfirmedDamaged(
                    f"{self._path} is damaged ({error}), and it says what the database has confirmed. Remove it if the database"
                    " was not restored to an earlier time."
                ) from error

    def check(self, system: int, snapshot: Snapshot) -> None:
        """Raises BackInTime if the database must not be believed. The snapshot was read behind a write that has returned."""
        why_not = self.judge(system, snapshot.shard.name, snapshot.shard.epoch, _numbers(snapshot.writers.values()))
        if why_not is not None:
            raise BackInTime(why_not.message, code=why_not.code, argument=why_not.argument)

    def judge(self, system: int, shard: str, epoch: int, numbers: dict[str, int]) -> Fault | None:
        """Returns why the database must not be believed; None if it says at least what it confirmed."""
        shards = self._content.shards
        known = shards.get(shard, _Shard(system))
        systems = {known.system} if shard in shards else {each.system for each in shards.values()}
        if systems and system not in systems:
            return Fault(
                Code.CONFLICT,
                f"The database is another one (system identifier {system}, before it was {max(systems)}). {_HELD}",
                "system_identifier",
            )
        if epoch < known.epoch:
            return Fault(
                Code.CONFLICT,
                f"The database went back in time: shard {shard} has epoch {epoch}, and once had {known.epoch}. {_HELD}",
                "epoch",
            )
        for writer, n in known.writers.items():
            if (found := numbers.get(writer, 0)) < n:
                return Fault(
                    Code.CONFLICT,
                    f"The database went back in time: shard {shard} has {found} batches of writer {writer}, and once had {n}."
                    f" {_HELD}",
                    writer,
                )
        return None

    def note(self, system: int, shard: str, epoch: int, numbers: dict[str, int]) -> None:
        """Notes what was confirmed. Lower numbers change nothing. The caller saves it."""
        known = self._content.shards.get(shard)
        if known is None:
            known = self._content.shards[shard] = _Shard(system)
            self._changed = True
        if epoch > known.epoch:
            known.epoch = epoch
            self._changed = True
        for writer, n in numbers.items():
            if n > known.writers.get(writer, 0):
                known.writers[writer] = n
                self._changed = True

    def accept(self, system: int, shard: str, epoch: int, numbers: dict[str, int]) -> None:
        """Replaces what is known of a shard: an operator has decided. The caller saves it."""
        self._content.shards[shard] = _Shard(system, epoch, dict(numbers))
        self._changed = True

    def save(self) -> None:
        """Writes the file, synced, if something has changed. Raises OSError; the old file is then unchanged."""
        if self._changed:
            self._disk.write_whole(self._path, msgspec.json.encode(self._content))
            self._changed = False


def _numbers(rows: Iterable[WriterRow]) -> dict[str, int]:
    return {row.writer: row.n for row in rows}
