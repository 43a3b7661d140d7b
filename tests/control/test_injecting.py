"""Messages that are handed in at the same time are different messages, also just after a start.

law: ids-never-reused.
"""

from __future__ import annotations

import asyncio
import time

from mailcore.control.protocol.injection import Injected
from mailcore.log.disk import Disk
from mailcore.queue.queue_id import CONTROL, QueueIds
from mailcore.queue.reserved_time import OF_CONTROL, ReservedFile, ReservedTime
from tests.control.running_control import RunningControl
from tests.eventually import PATIENCE_S

NOW = 1_795_000_000.0
SYNC_S = 0.05  # long enough for two threads to be in one wait


class SlowDisk(Disk):
    def sync(self, fd: int) -> None:
        time.sleep(SYNC_S)
        super().sync(fd)


async def test_two_at_once_after_a_start_have_different_queue_ids(running: RunningControl) -> None:
    path = str(running.settings.queue_directory / OF_CONTROL)
    before = ReservedTime(ReservedFile(Disk(), path))
    before.begin()
    before.extend(int(NOW * 1e6), int(NOW * 1e6))  # what the process before reserved is ahead of the clock
    running.server.injecting._ids = QueueIds(CONTROL, lambda: NOW, ReservedTime(ReservedFile(SlowDisk(), path)))

    async def begun() -> str:
        async with running.client(who="alice") as client:
            answer = await client.ask("inject_begin", Injected, {"sender": "", "recipients": ["r@example.org"]})
            return answer.queue_id

    async with asyncio.timeout(PATIENCE_S):
        found = await asyncio.gather(*(begun() for _ in range(8)))
    assert len(set(found)) == 8
