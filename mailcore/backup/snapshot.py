"""A snapshot of the queue at one moment, with or without a running core: hard links, from which nothing is deleted.

A snapshot has the files that a start would find after a crash at that moment: restart positions, the journal up to the moment,
and the lanes they refer to. The order of these steps makes it consistent, without help or a pause of the manager:

1. All spool files are linked, which may take long.
2. Newest restart positions are read; the journal is linked from where they begin, and its length noted: this is the moment.
   Then the lanes, so that all that the journal speaks of is there, and the segments that are kept for data of messages, which
   may just be retired; then once more the spool, for all that the lanes speak of.
3. When these positions are still one of the two kept, nothing that they need was deleted meanwhile
   (law: delete-after-both-positions); else step 2 is done again. From here on time does not matter: a link keeps
   a deleted file.

Linked files still change: records are added behind the noted lengths, which are not copied, and marks are set. A mark that is
newer than the moment would hide a message that was queued then. A message is marked only after its START, so ``younger`` reads
the journal from the moment on, after the lanes are copied, and returns the place of each START; there the mark is removed. A
mark that lets go of a message's data elsewhere comes after a REPLACED or FINISH that names its place: ``retained`` returns it.

Must not know: the use of the copy. It reads the live files like any program and creates links only.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field

from mailcore.log.disk import Disk
from mailcore.log.index import index_path
from mailcore.log.positions import RestartPositions, read_all_positions, read_positions
from mailcore.log.reader import LaneReader
from mailcore.log.record import Record, RecordType
from mailcore.log.segment import FIRST_RECORD, Segment, SegmentDamaged, base_of, name_of, retired_base_of
from mailcore.queue.damage import damaged_path
from mailcore.queue.fold import fold
from mailcore.queue.lanes import DELETED, HOLD, JOURNAL
from mailcore.queue.records import Place, decode_finish, decode_replaced, decode_start
from mailcore.queue.retiring import living_data
from mailcore.queue.spool import FANOUT

__all__ = ["LINKS", "QueueFile", "Snapshot", "SnapshotFailed"]

LINKS = ".backup"  # below the queue and below the spool, which may be disks of their own
TRIES = 20  # each from newer positions, when what they need was deleted before it was linked


class SnapshotFailed(Exception):
    """It could not be taken; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class QueueFile:
    """One file of the queue in a snapshot."""

    name: str  # in the archive: queue/LANE/NAME or spool/ab/QUEUE_ID
    path: str
    size: int | None  # bytes to copy; None: all


@dataclass(slots=True)
class Snapshot:
    """``take``, ``files`` to be copied, ``younger``, ``drop``; one at a time."""

    queue_directory: str
    spool_directory: str
    disk: Disk = field(default_factory=Disk)
    positions: RestartPositions | None = None
    sizes: dict[str, dict[int, int]] = field(default_factory=dict)  # lane -> base -> bytes that count
    _retired: dict[str, list[tuple[str, int]]] = field(
        default_factory=dict
    )  # lane -> (name, bytes) of retired segments
    _linked: dict[str, set[tuple[str, int]]] = field(default_factory=dict)  # directory -> (name, inode)
    _lock: int = -1
    _moment: int = 0  # journal offset

    # -- taking it

    def take(self) -> None:
        """Raises SnapshotFailed, PositionsDamaged, PositionsTooNew, OSError."""
        if not os.path.isdir(self.queue_directory):
            raise SnapshotFailed(f"{self.queue_directory} is not there: there is no queue")
        self._lock = os.open(self.queue_directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            self._lock = -1
            raise SnapshotFailed(f"another backup of {self.queue_directory} is being made") from None
        self._remove_links()  # of one that was killed
        self._link_spool()
        for _ in range(TRIES):
            self.positions = self._read_positions()
            self.sizes = {}
            self._link_lane(JOURNAL)
            self._link_lanes()
            self._link_bodies()
            self._link_spool()
            if self.positions is None or self._are_kept(self.positions):
                break
        else:
            raise SnapshotFailed("segments were deleted faster than they could be linked; try again")
        self._moment = self._end_of_journal()

    def _read_positions(self) -> RestartPositions | None:
        for _ in range(TRIES):
            with contextlib.suppress(FileNotFoundError):  # it is being replaced
                return read_positions(self.disk, self.queue_directory)
        raise SnapshotFailed(f"{self.queue_directory}: restart positions come and go; try again")

    def _are_kept(self, positions: RestartPositions) -> bool:
        for _ in range(TRIES):
            with contextlib.suppress(FileNotFoundError):
                found = read_all_positions(self.disk, self.queue_directory)
                return any(each.sequence == positions.sequence for each in found)
        return False

    def _link_lanes(self) -> None:
        for name in self.disk.list(self.queue_directory):
            if name[0] != "." and name != JOURNAL and os.path.isdir(os.path.join(self.queue_directory, name)):
                self._link_lane(name)

    def _link_lane(self, lane: str) -> None:
        """Links a lane's segments from the restart positions on, and notes their sizes; also links the files that
        describe damage."""
        directory = os.path.join(self.queue_directory, lane)
        links = os.path.join(self.queue_directory, LINKS, lane)
        names = self.disk.list(directory)
        bases = [base for base in map(base_of, names) if base is not None]
        needed = self._needed(lane)
        first = max((base for base in bases if base <= needed), default=0)
        sizes = {}
        for base in bases:
            path = os.path.join(directory, name_of(base))
            if base < first:
                continue
            try:
                self._link(path, os.path.join(links, name_of(base)))
                sizes[base] = self.disk.size_of(os.path.join(links, name_of(base)))
            except FileNotFoundError:
                continue  # deleted just now: then these positions are not kept any more, or did not need it
            for beside in (index_path(path), damaged_path(path)):
                with contextlib.suppress(FileNotFoundError):
                    self._link(beside, os.path.join(links, os.path.basename(beside)))
        with contextlib.suppress(FileNotFoundError):
            self._link(os.path.join(directory, "lane.damaged"), os.path.join(links, "lane.damaged"))
        self.sizes[lane] = sizes

    def _link_bodies(self) -> None:
        """Links the segments in front of a lane's position, and the retired ones, as far as data in them may be needed.

        A segment may be retired between the two steps, but never comes back.
        """
        self._retired = {}
        for lane, sizes in self.sizes.items():
            if lane == JOURNAL:
                continue
            directory = os.path.join(self.queue_directory, lane)
            names = self.disk.list(directory)
            names = [name for name in names if base_of(name) is not None and base_of(name) not in sizes]
            for name in names:
                size = self._link_if_needed(directory, lane, name)
                if size:
                    sizes[base_of(name) or 0] = size
            for name in self.disk.list(directory):
                base = retired_base_of(name)
                if base is not None and base not in sizes and (size := self._link_if_needed(directory, lane, name)):
                    self._retired.setdefault(lane, []).append((name, size))

    def _link_if_needed(self, directory: str, lane: str, name: str) -> int:
        """Links a segment if it holds data that may be needed; returns the bytes to copy, 0 if it does not or is gone."""
        link = os.path.join(self.queue_directory, LINKS, lane, name)
        try:
            self._link(os.path.join(directory, name), link)
            segment = Segment(self.disk, link)
        except FileNotFoundError:
            return 0
        except SegmentDamaged:
            return os.path.getsize(link)
        try:
            end = segment.file_end
            needed, _ = living_data(segment, end)
            return end - segment.base if needed else 0
        finally:
            segment.close()

    def _needed(self, lane: str) -> int:
        if self.positions is None:
            return 0
        if lane == JOURNAL:
            return self.positions.suffix
        position = self.positions.lanes.get(lane)
        return 0 if position is None else min(position.browse, position.runner)

    def _link_spool(self) -> None:
        """Links the spool files that are not linked yet, or are other files by now."""
        for folder in range(FANOUT):
            directory = os.path.join(self.spool_directory, f"{folder:02x}")
            linked = self._linked.setdefault(directory, set())
            with contextlib.suppress(FileNotFoundError), os.scandir(directory) as entries:
                for entry in entries:
                    key = entry.name, entry.inode()
                    if key in linked:
                        continue
                    with contextlib.suppress(FileNotFoundError):  # gone, and finished by a record of the journal
                        self._link(entry.path, os.path.join(self.spool_directory, LINKS, f"{folder:02x}", entry.name))
                        linked.add(key)

    def _link(self, path: str, link: str) -> None:
        try:
            os.link(path, link)
        except FileExistsError:
            if not os.path.samefile(path, link):
                os.unlink(link)
                os.link(path, link)
        except FileNotFoundError:
            if os.path.isdir(os.path.dirname(link)):
                raise
            os.makedirs(os.path.dirname(link), mode=0o700)
            os.link(path, link)
        except OSError as error:
            raise SnapshotFailed(
                f"{path} can't be linked into {os.path.dirname(link)}: {error.strerror}; a backup of the queue is made by root "
                "or by the user Waypost runs as, on a file system with hard links"
            ) from error

    def _end_of_journal(self) -> int:
        """Returns the end of the last complete journal record in the copy."""
        for base in sorted(self.sizes.get(JOURNAL, {}), reverse=True):
            with contextlib.suppress(SegmentDamaged):
                segment = Segment(self.disk, os.path.join(self.queue_directory, LINKS, JOURNAL, name_of(base)))
                try:
                    upto = base + self.sizes[JOURNAL][base]
                    end = base + FIRST_RECORD
                    for record in segment.records(end, upto):
                        end = record.end
                    return end
                finally:
                    segment.close()
        return self.positions.journal_end if self.positions is not None else 0

    # -- copying it

    def files(self) -> Iterator[QueueFile]:
        """Yields the files to copy, without the restart positions: ``positions`` has them."""
        for lane, sizes in self.sizes.items():
            links = os.path.join(self.queue_directory, LINKS, lane)
            newest = max(sizes, default=0)
            for base, size in sizes.items():
                path = os.path.join(links, name_of(base))
                yield QueueFile(f"queue/{lane}/{name_of(base)}", path, min(size, os.path.getsize(path)))
                beside = [damaged_path(path)] + ([index_path(path)] if base != newest else [])
                for each in beside:
                    if os.path.exists(each):
                        yield QueueFile(f"queue/{lane}/{os.path.basename(each)}", each, os.path.getsize(each))
            for name, size in self._retired.get(lane, ()):
                yield QueueFile(f"queue/{lane}/{name}", os.path.join(links, name), size)
            if os.path.exists(os.path.join(links, "lane.damaged")):
                yield QueueFile(f"queue/{lane}/lane.damaged", os.path.join(links, "lane.damaged"), None)
        for directory, linked in self._linked.items():
            folder = os.path.basename(directory)
            for name in sorted({name for name, _ in linked}):
                yield QueueFile(f"spool/{folder}/{name}", os.path.join(self.spool_directory, LINKS, folder, name), None)

    def younger(self) -> dict[str, list[int]]:
        """Returns, by lane, the offsets of envelopes that were taken up since the moment of the snapshot, and so may
        have a mark that they did not have then. To be called after the lanes are copied. Raises SnapshotFailed."""
        reader = LaneReader(self.disk, os.path.join(self.queue_directory, JOURNAL), lambda damage: None)
        ends = self.ends()
        found: dict[str, set[int]] = {}
        try:
            if reader.bases and reader.base_for(self._moment) is None:
                raise SnapshotFailed("the beginning of the journal was deleted meanwhile; try again")
            for record in reader.records(self._moment):
                if record.type == RecordType.START:
                    place = decode_start(record.body).place
                    if place.offset < ends.get(place.lane, 0):
                        found.setdefault(place.lane, set()).add(place.offset)
        finally:
            reader.close()
        return {lane: sorted(offsets) for lane, offsets in found.items()}

    def retained(self) -> dict[str, list[int]]:
        """Returns, by lane, the offsets of records whose data messages may have let go of since the snapshot's restart
        positions. To be called after the lanes are copied. Raises SnapshotFailed."""
        found: dict[str, set[int]] = {}
        started: set[str] = set()
        linked = os.path.join(self.queue_directory, LINKS, JOURNAL)
        for directory, start, end in (
            (linked, self._needed(JOURNAL), self._moment),
            (os.path.join(self.queue_directory, JOURNAL), self._moment, None),
        ):
            reader = LaneReader(self.disk, directory, lambda damage: None)
            try:
                if reader.bases and reader.base_for(start) is None and end is None:
                    raise SnapshotFailed("the beginning of the journal was deleted meanwhile; try again")
                for record in reader.records(start, end):
                    left = _let_go(record, started, is_before=end is not None)
                    if left is not None:
                        found.setdefault(left.lane, set()).add(left.offset)
            finally:
                reader.close()
        return {lane: sorted(offsets) for lane, offsets in found.items()}

    def ends(self) -> dict[str, int]:
        """Returns, by lane, the first offset that the copy neither contains nor names."""
        ends = {}
        for lane in {*self.sizes, *(self.positions.lanes if self.positions is not None else ())}:
            sizes = self.sizes.get(lane, {})
            newest = max(sizes, default=0)
            end = newest + max(sizes.get(newest, 0), FIRST_RECORD) if sizes else 0
            position = self.positions.lanes.get(lane) if self.positions is not None else None
            ends[lane] = max(end, position.end, position.runner) if position is not None else end
        return ends

    def being_taken(self) -> dict[str, int]:
        """Returns, by queue id, the generation of each message that, according to the journal, is being taken out of
        the hold or deleted lane."""
        reader = LaneReader(self.disk, os.path.join(self.queue_directory, LINKS, JOURNAL), lambda damage: None)
        try:
            folded = fold(reader.records(self._needed(JOURNAL), self._moment), 0)
        finally:
            reader.close()
        return {
            known.queue_id: known.generation
            for known in folded.messages.values()
            if known.place.lane in (HOLD, DELETED)
        }

    # -- the end of it

    def drop(self) -> None:
        """Removes the links. Safe to call at any time."""
        if self._lock >= 0:
            self._remove_links()
            os.close(self._lock)
            self._lock = -1

    def _remove_links(self) -> None:
        for directory in (self.queue_directory, self.spool_directory):
            shutil.rmtree(os.path.join(directory, LINKS), ignore_errors=True)


def _let_go(record: Record, started: set[str], *, is_before: bool) -> Place | None:
    """Returns the record whose data a message lets go of with this journal record; None if it lets go of none.

    Before the moment only those count whose START is in the suffix (``started``): the others have their marks, for good.
    """
    if record.type == RecordType.START:
        started.add(decode_start(record.body).queue_id)
        return None
    if record.type == RecordType.REPLACED:
        replaced = decode_replaced(record.body)
        queue_id, left = replaced.queue_id, replaced.left
    elif record.type == RecordType.FINISH:
        finish = decode_finish(record.body)
        queue_id, left = finish.queue_id, finish.left
    else:
        return None
    return left if not is_before or queue_id in started else None
