"""Where data that lies in the log goes when its message comes to rest: along with it, or nowhere.

A spool file costs a file, two syncs and their wait. Data that is carried costs its own bytes once more in each pass, in a batch
that is written with the next checkpoint; so data up to ``carry_limit`` is carried. Larger data stays where it lies, and the
replacement refers to it: that costs nothing, but keeps a segment. If little in that segment is needed (``compact_below``), its
data is carried once, and the segment goes. With ``refer_deferred`` off, larger data is carried in the first PASSES passes, and
gets a spool file then.

Held data up to ``carry_limit`` is carried, too: compaction takes it along when it empties segments of the hold lane. Larger
held data is neither carried nor referred to: it may rest for months. Deleted data of any size stays where it lies, unless
little else is needed there, as its lane is empty after ``undo_time_s``; it is carried at any size where it may not be referred
to: a deletion makes no file.

A spool file is for
- data that may be neither carried nor referred to: beyond CARRIED_BYTES_MAX, or an eighth (RESERVE_SHARE) of the reserve, in
  front of one checkpoint (until then it is in memory; a hold or a deletion waits for that checkpoint instead), and without
  checksums, from an older version;
- a message that may have a spool file, from the end of a pass that broke off: two places for one message's data would be
  told apart by nothing.

On a full disk data stays where it lies. Only what keeps the segment of which least is needed is carried, one segment at a time:
that is what makes room.

Keeps law: data-before-replacement, law: retained-data-stays (docs/laws.md). See docs/decisions/0064-carried-data.md and
docs/decisions/0071-data-that-stays-where-it-lies.md.
"""

from __future__ import annotations

import enum

from mailcore.manager.context import ManagerContext
from mailcore.queue.active import Active
from mailcore.queue.lanes import DELETED, HOLD

__all__ = ["CARRIED_BYTES_MAX", "PASSES", "Carrying", "Way"]

CARRIED_BYTES_MAX = 16 << 20
RESERVE_SHARE = 8
PASSES = 2  # of data larger than ``carry_limit`` that may not be referred to


class Way(enum.Enum):
    """Says where the data of a message goes."""

    CARRY = "carry"  # into the record of the replacement
    REFER = "refer"  # nowhere: the replacement names the record in which it lies
    SPOOL = "spool"  # into a spool file


class Carrying:
    """Decides at the end of a pass."""

    def __init__(self, context: ManagerContext) -> None:
        self.context = context

    def way(self, active: Active, lane: str) -> Way:
        """Returns where the data of the message, which lies in the log, goes when it comes to rest in ``lane``.

        Asks for a checkpoint when half of what may be carried in front of it is used.
        """
        settings = self.context.settings.queue
        if active.may_have_file or (lane != DELETED and not settings.carry_limit):
            return Way.SPOOL
        may_refer = self._may_refer(active, lane)
        if self.context.stalled:
            return self._on_full_disk(active) if may_refer else Way.SPOOL
        if self._is_carried(active, lane, may_refer) and self._fits(active.envelope.size_bytes):
            return Way.CARRY
        return Way.REFER if may_refer else Way.SPOOL

    def waits(self, active: Active, lane: str) -> bool:
        """Returns whether the end of a pass waits for the next checkpoint, which makes room for the message's data."""
        if lane not in (HOLD, DELETED) or active.may_have_file or self.context.stalled:
            return False
        carries = self._is_carried(active, lane, self._may_refer(active, lane))
        return carries and active.envelope.size_bytes <= self.bytes_max

    @property
    def bytes_max(self) -> int:
        """Returns how many bytes may be carried in front of one checkpoint."""
        return min(CARRIED_BYTES_MAX, self.context.settings.queue.reserve_bytes // RESERVE_SHARE)

    @property
    def is_half_full(self) -> bool:
        """Returns whether changes of many messages should wait for a checkpoint before they continue."""
        return 0 < self.bytes_max // 2 < self.context.queue.carried_bytes

    def _may_refer(self, active: Active, lane: str) -> bool:
        if lane == HOLD or not self.context.settings.queue.refer_deferred:
            return False
        return active.body is not None and bool(active.envelope.data_sums)

    def _is_carried(self, active: Active, lane: str, may_refer: bool) -> bool:
        """Returns True if the data goes along when there is room for it."""
        envelope, carry_limit = active.envelope, self.context.settings.queue.carry_limit
        if lane == DELETED and may_refer:
            return self._is_thin(active)  # it is read again only if the deletion is undone
        if envelope.size_bytes <= carry_limit:
            return True
        if lane == HOLD:
            return False
        if may_refer:
            return self._is_thin(active)
        return lane == DELETED or envelope.generation < PASSES

    def _on_full_disk(self, active: Active) -> Way:
        """Carries data out of the segment of which least is needed, if all that is needed of it has room: else it would only
        take space."""
        context, queue, size_bytes = self.context, self.context.queue, active.envelope.size_bytes
        needed = queue.bodies.needed_in_emptiest(active.data.path)
        if needed is None or queue.carried_bytes + max(needed, size_bytes) > context.carry_bytes_left:
            return Way.REFER
        if not self._fits(size_bytes):
            return Way.REFER
        context.made_room = True
        return Way.CARRY

    def _is_thin(self, active: Active) -> bool:
        """Returns True if little of the segment with the data is needed, so that it is to be emptied."""
        below = self.context.settings.queue.compact_below
        return self.context.queue.bodies.needed_share(active.data.path, active.data.length) < below

    def _fits(self, size_bytes: int) -> bool:
        most = self.bytes_max
        carried = self.context.queue.carried_bytes + size_bytes
        if carried > most // 2:
            self.context.request_checkpoint()
        return carried <= most
