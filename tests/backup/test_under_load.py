"""A backup of a queue that is hard at work: segments begin, fill and go while it is copied."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mailcore.lab.lab import Lab
from tests.backup.place import backed_up, destroyed_and_restored
from tests.backup.test_snapshot import damaged_in
from tests.running.running_core import DATA, Sections, recipients_of, running

BUSY: Sections = {
    "queue": {
        "segment_bytes": 64 << 10,
        "checkpoint_interval_s": 0.05,
        "inline_limit": 2 << 10,
        "retry_ladder_s": [1, 600],
    },
    "receiver": {"processes": 2},
}
BIG = DATA + b"x" * 70 + b"\r\n" * 2_000
SENDERS = 6
EACH = 60


@pytest.mark.long
async def test_what_was_accepted_before_the_backup_is_delivered_by_then_or_in_it(tmp_path: Path) -> None:
    async with Lab(["slow(0.4):127.0.0.1:0"]) as lab, running(tmp_path, lab, BUSY) as core:
        accepted: set[str] = set()

        async def sender(number: int) -> None:
            for message in range(EACH):
                address = f"r{number}.{message}@example.org"
                data = BIG if message % 3 == 0 else DATA
                await asyncio.to_thread(core._send, (address,), "author@sender.example", data)
                accepted.add(address)

        async with asyncio.TaskGroup() as load:
            for number in range(SENDERS):
                load.create_task(sender(number))
            await core.eventually(lambda: asyncio.sleep(0, len(accepted) >= SENDERS * EACH // 4), "some mail to be in")
            before = set(accepted)
            path = await backed_up(core, "--queue")
            during = set(accepted)
            by_then = set(recipients_of(lab.messages))
            await lab.hops[0].set_behaviour("accept")
        assert len(during) > len(before), "nothing was going on while the backup was made"
        await core.until_empty()  # of the old core
        arrived = recipients_of(lab.messages)
        assert set(arrived) == accepted
        await destroyed_and_restored(core, path)
        await core.start()

        async def only_held() -> bool:
            size = await core.size()
            return set(size["lanes"]) <= {"hold"} and not (await core.ask("state"))["active_messages"]

        await core.eventually(only_held, "everything to be held")
        held = {address for item in await core.listed() for address in item["recipients"]}
        assert len(lab.messages) == len(arrived)
        assert before - by_then <= held <= accepted
        assert held
        assert not damaged_in(core.home)
