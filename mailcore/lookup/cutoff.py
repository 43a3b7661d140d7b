"""A cutoff: the state of the queue when its messages were counted, so that a later change touches no newer message.

It holds the time of the count and how far each lane could be read then. A message that still lies below the end of its
lane was there, even if the clock was ahead when it arrived. Another one is newer if it arrived after that time, or if its first
envelope lies beyond the end of its lane: a receiver's lane, ``local``, or a retry lane for scheduled mail. For a message that
was rewritten since, the first envelope is searched beyond the ends.

Law: if it is not known whether a message is newer, it is left alone, with one exception: if the segment of its first envelope
is deleted already, only its time of arrival (the first byte of its data) decides.

Keeps law: change-set-is-fixed (docs/laws.md).
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from mailcore.log.disk import Disk
from mailcore.log.index import queue_id_in
from mailcore.log.reader import LaneReader
from mailcore.log.segment import Damage
from mailcore.lookup.browse import WITHOUT_END, Item, Stretch
from mailcore.queue.lanes import LOCAL, is_incoming

__all__ = ["Cutoff", "CutoffError"]

COMING_S_MAX = 86_400.0  # from the first byte of a message to its 250; far longer than any client waits


class CutoffError(ValueError):
    """Raised for a text that is not a cutoff; the message is for a person."""


@dataclass(frozen=True, slots=True)
class Cutoff:
    """Holds a cutoff. Its text form is the argument ``cut`` of the control socket."""

    at: float  # wall clock
    ends: Mapping[str, int]  # lane -> its end then; empty if the manager could not be asked

    @classmethod
    def of(cls, stretches: Mapping[str, Stretch], at: float) -> Cutoff:
        """Makes a cutoff. ``at`` must be a time after ``stretches`` were read."""
        return cls(at, {lane: stretch.end for lane, stretch in stretches.items() if stretch.end is not None})

    def __str__(self) -> str:
        return " ".join([repr(self.at), *(f"{lane}:{end}" for lane, end in self.ends.items())])

    @classmethod
    def parse(cls, text: str) -> Cutoff:
        """Parses the text form. Raises CutoffError."""
        at, *pairs = text.split(" ")
        try:
            ends = {lane: int(end) for lane, _, end in (pair.rpartition(":") for pair in pairs) if lane}
            parsed = cls(float(at), ends)
        except ValueError:
            parsed = cls(math.nan, {})
        if not math.isfinite(parsed.at) or len(parsed.ends) != len(pairs):
            raise CutoffError(f"{text[:50]!r} is not a valid cut; use the cut that a dry run returned")
        return parsed

    def newer(
        self, disk: Disk, queue_directory: str, stretches: Mapping[str, Stretch], items: Collection[Item]
    ) -> set[str]:
        """Returns the queue ids of the items that are newer. Raises OSError."""
        newer: set[str] = set()
        unsure: set[str] = set()
        for item in items:
            if item.offset < self.ends.get(item.lane, 0):  # positions are never reused
                continue
            if item.arrived_at > self.at or (self.ends and not item.generation):
                newer.add(item.queue_id)
            elif item.arrived_at > self.at - COMING_S_MAX:
                unsure.add(item.queue_id)
        if unsure and self.ends:
            for lane, stretch in stretches.items():
                if is_incoming(lane) or lane == LOCAL:
                    newer |= self._first_beyond(disk, os.path.join(queue_directory, lane), stretch, unsure)
        return newer

    def _first_beyond(self, disk: Disk, directory: str, stretch: Stretch, queue_ids: set[str]) -> set[str]:
        """Returns the queue ids of which an envelope, finished or not, lies in the lane beyond its end."""
        start = self.ends.get(os.path.basename(directory), 0)
        end = stretch.end if stretch.end is not None else WITHOUT_END
        if start >= end:
            return set()
        reader = LaneReader(disk, directory, _told_elsewhere)
        try:
            found = {queue_id_in(record.body) or b"" for record in reader.find_all(queue_ids, start, end)}
        finally:
            reader.close()
        return {queue_id.decode("ascii", "replace") for queue_id in found} & queue_ids


def _told_elsewhere(damage: Damage) -> None:
    """Ignores damage: the runner and browsing report it."""
