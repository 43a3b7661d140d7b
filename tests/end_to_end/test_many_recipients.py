"""A message to thousands of recipients, killed at random points: who is recorded as done gets it never again."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from mailcore.envelope import Status
from mailcore.lab.lab import Lab
from mailcore.log.disk import Disk
from mailcore.log.reader import LaneReader
from mailcore.log.record import RecordType
from mailcore.log.segment import Damage
from mailcore.queue.lanes import JOURNAL
from mailcore.queue.records import decode_delivery
from tests.end_to_end.appliance import Appliance
from tests.end_to_end.judge import judged
from tests.ledger.client import LoadClient
from tests.ledger.corpus import Message
from tests.ledger.ledger import Ledger

TRANSACTION = 50  # destination_recipient_limit
WINDOW = 5


def recorded_as_done(appliance: Appliance) -> set[int]:
    """Recipients' numbers in the DELIVERY records of the journal, read while nothing runs."""
    damages: list[Damage] = []
    reader = LaneReader(Disk(), str(appliance.home / "queue" / JOURNAL), damages.append)
    try:
        return {
            verdict.number
            for record in reader.records(0)
            if record.type == RecordType.DELIVERY
            for verdict in decode_delivery(record.body).verdicts
            if verdict.status is Status.DELIVERED
        }
    finally:
        reader.close()


@pytest.mark.parametrize(
    ("recipient_count", "kills"),
    [
        pytest.param(1_500, 4, id="short"),
        pytest.param(10_000, 20, id="long", marks=pytest.mark.long),
    ],
)
async def test_nobody_recorded_as_done_gets_it_again(recipient_count: int, kills: int, tmp_path: Path) -> None:
    chance = random.Random(3)
    ledger = Ledger()
    recipients = tuple(f"r{number}@many.example" for number in range(recipient_count))
    message = Message(0, "plain", 5_000, recipients, eight_bit=False, seed=3)
    step = (recipient_count - 500) // (kills + 1)  # of room; what is on its way at a kill arrives beyond the point
    points = [number * step + chance.randrange(step) for number in range(1, kills + 1)]
    recorded: list[tuple[int, set[str]]] = []  # arrivals before the restart, who was recorded as done then
    async with Lab(["slow(0.2):127.0.0.1:0"]) as lab:
        hop = lab.hops[0]
        appliance = Appliance(
            tmp_path,
            {"*": "smtp:[{}]:{}".format(*hop.address)},
            {
                "receiver": {"recipient_limit": recipient_count},
                "transports.smtp": {
                    "destination_concurrency_limit": WINDOW,
                    "destination_recipient_limit": TRANSACTION,
                },
            },
        )
        try:
            await appliance.start()
            await LoadClient(appliance.address, ledger, sessions=1, pipelining=True).send([message])
            assert ledger.acknowledged_recipients == recipient_count
            for point in points:
                await appliance.until(lambda at=point: len(arrived(lab)) >= at, f"{point} recipients")  # type: ignore[misc]
                appliance.kill_all()
                assert len(arrived(lab)) < recipient_count, "the kill came too late: a test of nothing"
                done = {f"r{number}@many.example" for number in recorded_as_done(appliance)}
                assert done <= arrived(lab)
                if recorded:  # older segments of the journal may be gone
                    done |= recorded[-1][1]
                recorded.append((len(hop.messages), done))
                appliance.launch()
            await appliance.ready()
            comparison = await judged(appliance, ledger, lab)
        finally:
            appliance.stop()
    assert not comparison.lost, comparison
    for before, done in recorded:
        again = done & {each for arrival in hop.messages[before:] for each in arrival.recipients}
        assert not again, f"{len(again)} recipients got it after their delivery was on disk: {sorted(again)[:5]}"
    assert comparison.repeated <= kills * WINDOW


def arrived(lab: Lab) -> set[str]:
    return {each for arrival in lab.hops[0].messages for each in arrival.recipients}
