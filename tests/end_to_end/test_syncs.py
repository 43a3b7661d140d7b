"""What a transaction costs in syncs, counted from outside by strace."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from mailcore.lab.lab import Lab
from tests.end_to_end.appliance import Appliance
from tests.ledger.client import LoadClient
from tests.ledger.corpus import Message
from tests.ledger.ledger import Ledger

RECIPIENTS = 50


async def durable(appliance: Appliance) -> int:
    """How far the journal is synced."""
    async with appliance.client() as client:
        return int((await client.call("state"))["journal"]["durable"])


async def sent_and_synced(appliance: Appliance, client: LoadClient, message: Message) -> None:
    """Returns when it is delivered and the journal has synced the record of that, a moment after the queue is empty."""
    before = await durable(appliance)
    await client.send([message])
    await appliance.until_empty()

    async def synced() -> bool:
        return await durable(appliance) > before

    await appliance.until(synced, "the journal's sync")


async def test_a_transaction_of_fifty_recipients_is_received_with_one_sync_and_recorded_with_one(
    tmp_path: Path,
) -> None:
    ledger = Ledger()
    trace = tmp_path / "trace"
    async with Lab(["accept:127.0.0.1:0"]) as lab:
        hop = lab.hops[0]
        # Checkpoints and the ballast have syncs of their own: none may fall into the count.
        sections = {"queue": {"checkpoint_interval_s": 60, "reserve_bytes": 0, "reserve_inodes": 0}}
        appliance = Appliance(tmp_path, {"*": "smtp:[{}]:{}".format(*hop.address)}, sections)
        client = LoadClient(appliance.address, ledger, sessions=1)
        try:
            await appliance.start()
            first = Message(0, "plain", 1_000, ("first@sync.example",), eight_bit=False, seed=1)
            await sent_and_synced(appliance, client, first)  # the segments are there now
            pids = appliance.processes()
            strace = await asyncio.create_subprocess_exec(
                *("strace", "-f", "-y", "-e", "trace=fsync,fdatasync", "-o", str(trace)),
                *("-p", str(pids["receiver.0"]), "-p", str(pids["manager"])),
                stderr=asyncio.subprocess.PIPE,
            )
            assert strace.stderr is not None
            for _ in range(2):
                assert b"attached" in await strace.stderr.readline()
            everybody = tuple(f"r{number}@sync.example" for number in range(RECIPIENTS))
            message = Message(1, "plain", 1_000, everybody, eight_bit=False, seed=2)
            await sent_and_synced(appliance, client, message)
            strace.send_signal(signal.SIGINT)
            await strace.communicate()
        finally:
            appliance.stop()
    assert [len(arrival.recipients) for arrival in hop.messages] == [1, RECIPIENTS]
    syncs = [line for line in trace.read_text().splitlines() if "sync(" in line and "resumed" not in line]
    assert sum("/incoming.0/" in line for line in syncs) == 1, syncs
    assert sum("/journal/" in line for line in syncs) == 1, syncs
    assert len(syncs) == 2, syncs
