"""The manager reads the lane of the pickup only as far as the pickup says, also while there is no pickup."""

from __future__ import annotations

import time
from pathlib import Path

from mailcore.envelope import DataPlace
from mailcore.log.disk import Disk
from mailcore.log.lane import LaneWriter
from mailcore.queue.records import append_envelope
from tests.lookup.sample_messages import envelope
from tests.manager.manager_in_process import DATA, Home

LANE = "incoming.1021"


def write(home: Home, lane: str) -> int:
    writer = LaneWriter(
        Disk(), str(home.path / "queue" / lane), segment_bytes=1 << 20, clock=time.time, salt=lambda: 42
    )
    append_envelope(writer, envelope(queue_id=home.ids.next(), data=DataPlace.INLINE, size_bytes=len(DATA)), DATA)
    writer.sync()
    end = writer.durable
    writer.close()
    return end


async def test_the_end_of_the_pickups_lane_is_not_read_before_it_is_reported(tmp_path: Path) -> None:
    """law: taken-once. Its files may still be in the maildrop."""
    home = Home(tmp_path)
    end = write(home, LANE)
    other_end = write(home, "incoming.9")  # of a receiver that is no longer configured
    manager = home.start()
    runners = manager.context.queue.runners
    manager.take_over_lanes()
    assert LANE not in runners or runners[LANE].readable_end == 0
    assert runners["incoming.9"].readable_end == other_end
    manager.durable(LANE, 0)
    manager.durable(LANE, end, 1, 1)
    assert runners[LANE].readable_end == end
    assert manager.context.balance.by_origin()["local"].messages == 1
    home.kill()
