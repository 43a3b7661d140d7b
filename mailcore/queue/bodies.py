"""Where the data of messages lies that wait in the log: in the ENVELOPE record that brought it, for as long as they wait.

The record of a message's data is its *body record*. The message may move from lane to lane, and its envelope then names the
place. Segments that are left only for such data are retired: they have another name, and no lane contains them.

How many bytes of a segment are still needed is a hint: it is set when the segment is looked through, and lowered with each
mark. It decides where to look, never what is deleted.

Keeps law: retained-data-stays (docs/laws.md).
"""

from __future__ import annotations

import os
from bisect import bisect_right, insort
from typing import NamedTuple

from mailcore.envelope import DataPlace, Envelope
from mailcore.log.disk import Disk
from mailcore.log.reader import LaneReader
from mailcore.log.record import GARBAGE, Record
from mailcore.log.segment import name_of, retired_base_of, retired_name_of
from mailcore.queue.records import Place, inline_data_at
from mailcore.queue.retiring import Look

__all__ = ["LOOK_S", "Bodies", "Body", "body_elsewhere", "body_of"]

FEW = 4  # of a segment's bytes: less than a quarter
LOOK_S = 600.0  # between two looks through all retired segments, which cost up to 11 ms each, in a thread


class Body(NamedTuple):
    """Names the record that holds a message's data, and where in its lane the data begins."""

    lane: str
    record: int  # lane offset of the ENVELOPE record
    data: int  # lane offset of the first byte of the data


class Bodies:
    """Knows the retired segments of all lanes, and hints about the data in them. All is in memory only."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self.disk = disk
        self.directory = directory
        self.retired: dict[str, list[int]] = {}  # lane -> bases, ascending; the rename may still be to come
        self._needed: dict[tuple[str, int], tuple[int, int]] = {}  # retired segment -> (bytes needed, bytes), as hints
        self.first_sequence = 0  # of the first restart positions after the start: until then, marks are not known
        self._marked: dict[tuple[str, int], int] = {}  # segment -> sequence that the older positions must have reached
        self._passes: dict[str, tuple[int, int]] = {}  # segment -> bytes of data whose first pass is over; that wait
        self._look_at = 0.0  # monotonic: the next look through all of them

    def find(self) -> None:
        """Finds the retired segments of all lanes, for a start."""
        for lane in self.disk.list(self.directory):
            if self.disk.is_directory(os.path.join(self.directory, lane)):
                self.find_in(lane)

    def find_in(self, lane: str) -> None:
        """Finds the retired segments of one lane."""
        names = self.disk.list(os.path.join(self.directory, lane))
        bases = [base for base in map(retired_base_of, names) if base is not None]
        if bases:
            self.retired[lane] = bases

    def retire(self, lane: str, base: int) -> None:
        """Notes that a segment is being retired."""
        bases = self.retired.setdefault(lane, [])
        if base not in bases:
            insort(bases, base)
        self._passes.pop(os.path.join(self.directory, lane, name_of(base)), None)

    def hints(self, found: dict[tuple[str, int], tuple[int, int]]) -> None:
        """Takes the hints of segments that were just retired: on a full disk they are needed before the next look."""
        for (lane, base), hint in found.items():
            if base in self.retired.get(lane, ()):
                self._needed[lane, base] = hint

    def forget(self, lane: str, base: int) -> None:
        """Notes that a retired segment is deleted, or was not retired."""
        if base in self.retired.get(lane, ()):
            self.retired[lane].remove(base)
        self._needed.pop((lane, base), None)
        self._marked.pop((lane, base), None)

    def will_mark(self, lane: str, base: int, sequence: int) -> None:
        """Notes that a garbage mark is about to be written on a body record. The segment must not be deleted before the older
        restart positions have reached ``sequence``: both kept ones are then newer than the mark."""
        self._marked[lane, base] = sequence

    def marked(self, lane: str, base: int, size: int) -> None:
        """Notes a garbage mark on a body record of ``size`` bytes."""
        hint = self._needed.get((lane, base))
        if hint is not None:
            self._needed[lane, base] = max(hint[0] - size, 0), hint[1]

    def may_unlink(self, lane: str, base: int, older: int) -> bool:
        """Returns True if both kept restart positions, of which the older one has this sequence, are newer than all marks.

        May be called in another thread, after the marks were read.
        """
        return self._marked.get((lane, base), self.first_sequence) <= older

    # -- which data keeps a segment although little of it is needed

    def note_pass(self, path: str, size: int, *, is_first: bool, stays: bool) -> None:
        """Notes that a pass of a message with ``size`` bytes of data in this file ended, and whether the message stays."""
        if is_first:
            ended, waiting = self._passes.get(path, (0, 0))
            self._passes[path] = ended + size, waiting + (size if stays else 0)
        elif not stays and (before := self._passes.get(path)) is not None:
            self._passes[path] = before[0], max(before[1] - size, 0)

    def needed_share(self, path: str, size: int) -> float:
        """Returns the share of a segment's bytes that is needed, as far as it is known; 1.0 if nothing is.

        Of a segment that is not retired, what counts are the messages whose first pass is over, and one more with ``size``
        bytes that is being deferred.
        """
        base = retired_base_of(os.path.basename(path))
        if base is not None:
            hint = self._needed.get((os.path.basename(os.path.dirname(path)), base))
            return 1.0 if hint is None else hint[0] / max(hint[1], 1)
        ended, waiting = self._passes.get(path, (0, 0))
        return min((waiting + size) / max(ended + size, 1), 1.0)

    def needed_in_emptiest(self, path: str) -> int | None:
        """Returns how many bytes of this segment are needed, if it is the retired one of which the fewest are, and these are
        few; else None."""
        base = retired_base_of(os.path.basename(path))
        hint = self._needed.get((os.path.basename(os.path.dirname(path)), base)) if base is not None else None
        if hint is None or not hint[0] or hint[0] * FEW > hint[1]:
            return None
        return hint[0] if hint[0] == min(needed for needed, _ in self._needed.values() if needed) else None

    # -- looking for segments to delete

    def look(self, now: float, older: int) -> Look | None:
        """Returns a look through the segments of which nothing seems to be needed, or now and then through all of them; None if
        there is nothing to look at. ``older`` as in ``may_unlink``, ``now``: monotonic."""
        every = now >= self._look_at
        wanted = []
        for lane, bases in self.retired.items():
            for base in bases:
                hint = self._needed.get((lane, base))
                if every or (hint is not None and not hint[0] and self.may_unlink(lane, base, older)):
                    wanted.append((lane, base, os.path.join(self.directory, lane, retired_name_of(base))))
        if every:
            self._look_at = now + LOOK_S
        return Look(self.disk, wanted) if wanted else None

    def looked(self, look: Look, older: int) -> list[tuple[str, int, str]]:
        """Takes the hints of a look; returns (lane, base, path) of the segments to delete."""
        found = []
        for lane, base, path in look.wanted:
            hint = look.found.get((lane, base))
            if hint is None:
                continue
            if hint[0] or not self.may_unlink(lane, base, older):
                self._needed[lane, base] = hint
            else:
                found.append((lane, base, path))
        return found

    def file_of(self, reader: LaneReader, offset: int) -> tuple[int, str] | None:
        """Returns (base, path) of the file that contains a lane offset; None if there is none.

        The file may be under its other name (``mailcore/log/retired.py``).
        """
        base = reader.base_for(offset)
        retired = self.retired.get(reader.lane, ())
        at = bisect_right(retired, offset)
        if at and (base is None or retired[at - 1] >= base):
            return retired[at - 1], os.path.join(reader.directory, retired_name_of(retired[at - 1]))
        return None if base is None else (base, os.path.join(reader.directory, name_of(base)))


def body_elsewhere(body: Body | None, envelope: Envelope) -> Place | None:
    """Returns the body record of a message whose envelope lies elsewhere."""
    if body is None or envelope.data is not DataPlace.LOG:
        return None
    return Place(body.lane, body.record)


def body_of(lane: str, record: Record, envelope: Envelope) -> Body | None:
    """Returns the message's body record; None for data in the spool, and for a record that is marked as garbage.

    A garbage mark says that nothing in the record is needed. It may be there although the message is being worked on, if the
    newest restart positions are damaged: then its next envelope must not refer to this record.
    """
    if envelope.data is DataPlace.LOG:
        return Body(envelope.data_lane, envelope.data_record, envelope.data_offset)
    if envelope.data is DataPlace.SPOOL or record.mark == GARBAGE:
        return None
    return Body(lane, record.offset, inline_data_at(record.offset, record.body))
