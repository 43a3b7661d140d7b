"""The manager on a full disk: it gives back the ballast, and lets deliveries go out one at a time.

Only a delivered message frees space, and recording its delivery needs some. So while the disk of the queue or of the spool is
full, one delivery goes out after the other, as long as they succeed. A deferral frees nothing and takes a little: deferrals may
use up half of the ballast, so that mail which can be delivered is reached behind mail which cannot. Below that, the next
delivery after a deferral goes out TRY_S later. A deferral whose data is carried out of a segment of which little is needed
frees that segment (mailcore.manager.carrying): it counts as a delivery, and may use up three quarters of the ballast.

Keeps law: delivery-has-room (docs/laws.md).
"""

from __future__ import annotations

from mailcore.config.settings import Settings
from mailcore.manager.context import ManagerContext
from mailcore.queue.ballast import STALL_BYTES, STALL_INODES, Ballast, Room
from mailcore.queue.compaction import MOVES_MAX

__all__ = ["ENTRY_BYTES_MAX", "TRY_S", "FullDisk"]

RESERVE_SHARE = 4  # deliveries go one at a time below a quarter of the reserve: the records of many might not fit
ENTRY_BYTES_MAX = 65_536  # four times the records and log lines of 50 recipients, a common entry
ENTRY_INODES = 2  # a spool file, and a segment that is begun
MOVE_BYTES = 8192  # of a move, besides the data: two envelopes, and the end of a block
CARRY_SHARE = 4  # carrying leaves a quarter of the ballast: it frees more than it takes, but later
MOVES_SHARE = 4  # compaction may take a quarter of the room on a full disk
TRY_S = 10.0  # between single deliveries on a full disk, after one that freed no space


class FullDisk:
    """Looks at the disks in front of each checkpoint."""

    def __init__(self, context: ManagerContext, ballast: Ballast, settings: Settings) -> None:
        self.context = context
        self.ballast = ballast
        self.settings = settings
        self._try_at = 0.0  # monotonic: the next single delivery
        self._complaint = ""

    async def look(self) -> None:
        """Refills the ballast, then decides whether deliveries go out one at a time."""
        context = self.context
        try:
            await context.loop.run_in_executor(context.pool, self.ballast.keep)
            self._complaint = ""
        except OSError as error:  # told once
            if str(error) != self._complaint:
                context.log.failed("manager", f"no space can be set aside for delivery: {error}")
            self._complaint = str(error)
        self.decide()

    def decide(self) -> None:
        """Lets deliveries go out one at a time while a disk is full. Raises OSError if one is missing."""
        context, settings = self.context, self.settings.queue
        least_bytes = max(settings.reserve_bytes // RESERVE_SHARE, STALL_BYTES)
        least_inodes = max(settings.reserve_inodes // RESERVE_SHARE, STALL_INODES)
        rooms = self._rooms()
        room = next((each for each in rooms if each.free_bytes < least_bytes or each.free_inodes < least_inodes), None)
        if room is not None:
            if not context.stalled:
                context.log.disk_full(
                    room.directory,
                    room.free_bytes,
                    settings.reserve_bytes,
                    room.free_inodes,
                    settings.reserve_inodes,
                    service="qmgr",
                )
            what = "is full" if room.free_bytes < least_bytes else "has no free inodes"
            context.stalled = f"the disk of {room.directory} {what}"
            self._let_some_out(rooms)
        elif context.stalled:
            context.stalled = ""
            context.go_on()
        if context.checkpoints.keeper is not None:
            context.checkpoints.keeper.disk_full = bool(context.stalled)

    def moves_max(self) -> int:
        """Returns how many messages compaction may move now. On a full disk it takes a share of the room at most.

        There, too, a few living messages must not keep segments that are otherwise dead.
        """
        if not self.context.stalled:
            return MOVES_MAX
        each_bytes = self.settings.queue.inline_limit + MOVE_BYTES
        fitting = min(min(room.delivery_bytes // each_bytes, room.delivery_inodes) for room in self._rooms())
        return min(MOVES_MAX, fitting // MOVES_SHARE)

    def _rooms(self) -> list[Room]:
        queue = self.context.queue
        return [self.ballast.room(each) for each in (queue.directory, queue.spool.directory)]

    def _let_some_out(self, rooms: list[Room]) -> None:
        """Allows single deliveries, as many as surely fit: only a delivered message frees space."""
        context = self.context
        context.entries_left = min(
            min(room.delivery_bytes // ENTRY_BYTES_MAX, room.delivery_inodes // ENTRY_INODES) for room in rooms
        )
        whole = self.ballast.wanted
        spare = min(
            min(
                (room.delivery_bytes - whole.space_bytes // 2) // ENTRY_BYTES_MAX,
                (room.delivery_inodes - whole.inodes // 2) // ENTRY_INODES,
            )
            for room in rooms
        )
        context.deferrals_left = max(spare, 0)
        carry = min(room.delivery_bytes for room in rooms) - whole.space_bytes // CARRY_SHARE
        context.carry_bytes_left = max(carry, 0)
        if not context.made_room and not context.deferrals_left:
            if context.now() < self._try_at:
                context.entries_left = 0
                return
            context.entries_left = min(context.entries_left, 1)
        self._try_at = context.now() + TRY_S
        context.go_on()
