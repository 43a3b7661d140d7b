"""Carrying: small data that lies in the log goes along when its message comes to rest, and needs no spool file.

A spool file costs a file, two syncs and their wait. Data that is carried costs its own bytes once more in each pass, in a
batch that is written with the next checkpoint. Data up to ``carry_limit`` is always carried, larger data in the first PASSES
passes: most mail that is deferred is delivered by then.

Held data up to ``carry_limit`` is carried, too: compaction takes it along when it empties segments of the hold lane. Larger
held data is not: it may rest for months and would be copied with each compaction. Deleted data is carried at any size, as its
lane is empty after ``undo_time_s``: a deletion makes no file.

Not carried is
- data beyond CARRIED_BYTES_MAX, or an eighth (RESERVE_SHARE) of the reserve, in front of one checkpoint: until then it is in
  memory. A hold or a deletion waits for that checkpoint instead; any other pass ends with a spool file;
- any data while the disk is full: a spool file is written once, carried data in each pass;
- a message that may have a spool file, from the end of a pass that broke off: two places for one message's data would be
  told apart by nothing.

Keeps law: data-before-replacement (docs/laws.md). See docs/decisions/0064-carried-data.md.
"""

from __future__ import annotations

from mailcore.manager.context import ManagerContext
from mailcore.queue.active import Active
from mailcore.queue.lanes import DELETED, HOLD

__all__ = ["CARRIED_BYTES_MAX", "PASSES", "Carrying"]

CARRIED_BYTES_MAX = 16 << 20
RESERVE_SHARE = 8
PASSES = 2  # of data larger than ``carry_limit``


class Carrying:
    """Decides at the end of a pass."""

    def __init__(self, context: ManagerContext) -> None:
        self.context = context

    def takes(self, active: Active, lane: str) -> bool:
        """Returns whether the inline data of the message goes into its replacement's record, in ``lane``.

        Asks for a checkpoint when half of what may be carried in front of it is used.
        """
        if not self._may(active, lane):
            return False
        carried, most = self.context.queue.carried_bytes + active.envelope.size_bytes, self.bytes_max
        if carried > most // 2:
            self.context.request_checkpoint()
        return carried <= most

    def waits(self, active: Active, lane: str) -> bool:
        """Returns whether the end of a pass waits for the next checkpoint, which makes room for the message's data."""
        return lane in (HOLD, DELETED) and self._may(active, lane) and active.envelope.size_bytes <= self.bytes_max

    @property
    def bytes_max(self) -> int:
        """Returns how many bytes may be carried in front of one checkpoint."""
        return min(CARRIED_BYTES_MAX, self.context.settings.queue.reserve_bytes // RESERVE_SHARE)

    @property
    def is_half_full(self) -> bool:
        """Returns whether changes of many messages should wait for a checkpoint before they continue."""
        return 0 < self.bytes_max // 2 < self.context.queue.carried_bytes

    def _may(self, active: Active, lane: str) -> bool:
        settings, envelope = self.context.settings.queue, active.envelope
        if active.may_have_file or self.context.stalled:
            return False
        if lane == DELETED:
            return True
        return settings.carry_limit > 0 and (
            envelope.size_bytes <= settings.carry_limit or (lane != HOLD and envelope.generation < PASSES)
        )
