"""Carrying: small data that lies in the log goes along when its message comes to rest, and needs no spool file.

A spool file costs a file, two syncs and their wait. Data that is carried costs its own bytes once more in each pass, in a
batch that is written with the next checkpoint. Data up to ``carry_limit`` is always carried, larger data in the first PASSES
passes: most mail that is deferred is delivered by then.

Not carried is
- held mail: it may rest for months, and the hold lane would keep its segments;
- data beyond CARRIED_BYTES_MAX, or an eighth (RESERVE_SHARE) of the reserve, in front of one checkpoint: until then it is in
  memory;
- any data while the disk is full: a spool file is written once, carried data in each pass;
- a message that may have a spool file, from the end of a pass that broke off: two places for one message's data would be
  told apart by nothing.

Keeps law: data-before-replacement (docs/laws.md). See docs/decisions/0064-carried-data.md.
"""

from __future__ import annotations

from mailcore.manager.context import ManagerContext
from mailcore.queue.active import Active
from mailcore.queue.lanes import HOLD

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
        context, envelope = self.context, active.envelope
        settings = context.settings.queue
        if lane == HOLD or active.may_have_file or context.stalled:
            return False
        if not settings.carry_limit or (envelope.size_bytes > settings.carry_limit and envelope.generation >= PASSES):
            return False
        most = min(CARRIED_BYTES_MAX, settings.reserve_bytes // RESERVE_SHARE)
        carried = context.queue.carried_bytes + envelope.size_bytes
        if carried > most // 2:
            context.request_checkpoint()
        return carried <= most
