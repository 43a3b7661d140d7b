"""An appliance that exports, brought to forget: journal and arrivals of a message go, and its events stay."""

from __future__ import annotations

import itertools

from tests.running.running_core import RunningCore, Sections

__all__ = ["EXPORTING", "until_forgotten"]

AGAIN = 20  # messages
EXPORTING: Sections = {"export": {"enabled": True, "interval_s": 0.2}}


async def until_forgotten(core: RunningCore, *queue_ids: str) -> None:
    """A start opens new segments as soon as something is written; those before go when they are exported, and checkpoints do
    not need them. In a lane that nothing is written to, a retry lane say, one may stay. Killed before it had a checkpoint, a
    message is said anew in the new segment; so it is killed again now and then."""
    turns = itertools.count()
    wanted = [queue_id.encode() for queue_id in queue_ids]

    async def forgotten() -> bool:
        queue = core.home / "queue"
        segments = [*queue.glob("journal/*.seg"), *queue.glob("incoming.*/*.seg")]
        if not any(each in path.read_bytes() for path in segments for each in wanted):
            return True
        if next(turns) % AGAIN == 0:
            await core.again()
        other = await core.send("somebody@else.example")  # an idle queue keeps what it has
        await core.until_removed(other)
        return False

    await core.eventually(forgotten, f"the segments of {', '.join(queue_ids)} to go")
