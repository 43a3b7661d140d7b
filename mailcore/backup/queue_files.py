"""Completes a queue from the files of a backup: restart positions, removed marks, and the marker that holds its mail.

For a restore of events without a queue it creates lanes that begin where the old lanes ended.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from mailcore.backup.archive import BackupDamaged
from mailcore.log.disk import Disk
from mailcore.log.positions import LanePosition, RestartPositions, write_positions
from mailcore.log.record import LIVE, MARK_AT, RETAINED
from mailcore.log.segment import FIRST_RECORD, SegmentHeader, base_of, name_of, retired_base_of
from mailcore.queue.exported import ExportedPositions
from mailcore.queue.lanes import JOURNAL, is_incoming
from mailcore.queue.restored import Restored, write_restored

__all__ = ["floors_of_events", "make_floors", "mend_queue"]


class Told(msgspec.Struct, frozen=True):
    """The data about the queue in the manifest (``snapshot.Snapshot``)."""

    positions: str | None  # MessagePack, in hexadecimal
    ends: dict[str, int]
    taken: dict[str, int]
    younger: dict[str, list[int]]
    maildrop: list[str] = []  # names of files beside the queue
    retained: dict[str, list[int]] = {}


def mend_queue(directory: Path, manifest: Mapping[str, Any], backup_at: float, now: float) -> None:
    """Raises BackupDamaged, OSError."""
    disk = Disk()
    try:
        told = msgspec.convert(dict(manifest), Told)
        positions = (
            None
            if told.positions is None
            else msgspec.msgpack.decode(bytes.fromhex(told.positions), type=RestartPositions)
        )
    except (msgspec.MsgspecError, ValueError) as error:
        raise BackupDamaged(f"the queue's data in the backup can't be read: {error}") from error
    for lane in (
        *told.younger,
        *told.retained,
        *told.ends,
        *told.taken,
        *(() if positions is None else positions.lanes),
    ):
        if "/" in lane or lane.startswith("."):
            raise BackupDamaged(f"the queue's data in the backup can't be read: {lane!r} is not a lane")
    for lane, offsets in told.retained.items():
        _take_back_marks(disk, directory / lane, offsets, RETAINED)
    for lane, offsets in told.younger.items():
        _take_back_marks(disk, directory / lane, offsets, LIVE)
    if positions is not None:
        write_positions(disk, str(directory), positions)
    marker = Restored(backup_at, now, told.ends, told.taken)
    if told.maildrop:
        marker = msgspec.structs.replace(marker, maildrop=frozenset(told.maildrop), version=2)
    write_restored(disk, str(directory), marker)


def _take_back_marks(disk: Disk, directory: Path, offsets: list[int], mark: int) -> None:
    names = {base_of(name): name for name in disk.list(str(directory)) if base_of(name) is not None}
    names |= {retired_base_of(name): name for name in disk.list(str(directory)) if retired_base_of(name) is not None}
    bases = sorted(base for base in names if base is not None)
    for base, following in zip(bases, [*bases, 1 << 63][1:], strict=True):  # a lane may be younger than the backup
        here = [offset for offset in offsets if base + FIRST_RECORD <= offset < following]
        if not here:
            continue
        path = str(directory / names[base])
        size = disk.size_of(path)
        fd = disk.open_write(path)
        try:
            for offset in here:
                if offset - base + MARK_AT < size:
                    disk.write(fd, [bytes([mark])], offset - base + MARK_AT)
            disk.sync(fd)
        finally:
            disk.close(fd)


def floors_of_events(exported: ExportedPositions) -> dict[str, int]:
    """Returns the first offset without events, by lane."""
    return {lane: max(each.at, each.to) for lane, each in exported.lanes.items()}


def make_floors(directory: Path, floors: Mapping[str, int], now: float) -> None:
    """Creates a queue whose lanes begin at these offsets. Raises OSError."""
    disk = Disk()
    lanes = {lane: LanePosition(at, at, at) for lane, at in floors.items() if lane != JOURNAL}
    journal = floors.get(JOURNAL, 0)
    write_positions(disk, str(directory), RestartPositions(1, now, lanes, journal, journal))
    for lane, at in floors.items():
        if is_incoming(lane):  # its receiver continues behind its files, without restart positions
            disk.make_directory(str(directory / lane))
            fd = disk.create(os.path.join(directory, lane, name_of(at)))
            try:
                disk.write(fd, [SegmentHeader(at, at, secrets.randbits(64), now).encode()], 0)
                disk.sync(fd)
            finally:
                disk.close(fd)
            os.chmod(directory / lane / name_of(at), 0o644)  # nothing is in it, and a receiver may be another user
            disk.sync_directory(str(directory / lane))
