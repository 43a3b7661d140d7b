"""Times of deliveries that the journal has no more come out of the events, and are the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mailcore.control.whatif_recent import recent
from mailcore.envelope import Status, Verdict
from mailcore.events.write import files
from mailcore.log.record import RecordType
from mailcore.lookup import service_times
from mailcore.lookup.answers import ServiceTimes
from mailcore.lookup.tracing import Walk
from mailcore.queue.records import Delivery
from mailcore.simulator.measured import Tried
from tests.events.exported_lives import ExportedLives, unsynced

__all__ = ["unsynced"]
pytestmark = pytest.mark.usefixtures("unsynced")

OK = Verdict(0, Status.DELIVERED, "2.0.0", "250 OK")
LATER = Verdict(1, Status.DEFERRED, "4.2.0", "450 later \x00\u202e")
NO = Verdict(2, Status.BOUNCED, "5.1.1", "550 nobody")
FULL = Verdict(0, Status.DEFERRED, "4.7.0", "host mx[192.0.2.1] refused to talk to me: 421 4.7.0 too many connections")
NAMES = ["smtp:a.example", "smtp:<script>", "smtp:[192.0.2.1]:25"]


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[ExportedLives]:
    recorded = ExportedLives(tmp_path, journal_segment_bytes=6 << 10)
    yield recorded
    recorded.close()


def deliver(
    recorded: ExportedLives, *verdicts: Verdict, to: str = NAMES[0], connect_s: float = 0.0, transmit_s: float = 0.5
) -> None:
    delays = (0.0, 0.0, connect_s, transmit_s)
    recorded.say(
        RecordType.DELIVERY, Delivery("1K0RDGV4BE900", 0, verdicts, recorded.now, "mx[::1]:25", "", delays, to)
    )
    recorded.now += 1


def fill(recorded: ExportedLives) -> None:
    for number in range(120):
        deliver(recorded, OK, LATER, NO, to=NAMES[number % 3], connect_s=0.001 * (number + 1))
        if not number % 5:
            deliver(recorded, FULL, to=NAMES[1], connect_s=30.0, transmit_s=0.0)
        if not number % 7:
            deliver(recorded, LATER, LATER, connect_s=0.0, transmit_s=0.0)  # without a try


def comparable(times: ServiceTimes) -> dict[str, Any]:
    assert not times.note
    return times.destinations


def tried(recorded: ExportedLives, since: float) -> dict[str, list[Tried]]:
    found: dict[str, list[Tried]] = recorded.walked(Walk(recent(recorded.browser, NAMES, since, recorded.archive)))
    return found


@pytest.mark.parametrize("rows_max", [pytest.param(2, marks=pytest.mark.long), 20_000])
@pytest.mark.parametrize("keep", [0, 1, 3])
def test_times_are_the_same_wherever_the_journal_begins(
    recorded: ExportedLives, monkeypatch: pytest.MonkeyPatch, keep: int, rows_max: int
) -> None:
    monkeypatch.setattr(files, "ROWS_MAX", rows_max)
    monkeypatch.setattr(service_times, "SAMPLES_MAX", 10_000)  # all of them, which no order changes
    began = recorded.now
    fill(recorded)
    queries = [0.0, began + 40.5, recorded.now - 20.5]
    before = [recorded.measured(since) for since in queries]
    one_by_one = [tried(recorded, since) for since in queries]
    assert before[0].destinations[NAMES[1]].site_failures == 24
    assert before[1].destinations[NAMES[1]].deliveries < before[0].destinations[NAMES[1]].deliveries
    recorded.export()
    assert len(list((recorded.directory / "journal").glob("*.seg"))) > 4
    recorded.forget("journal", keep)
    assert [comparable(recorded.measured(since)) for since in queries] == [comparable(each) for each in before]
    assert [tried(recorded, since) for since in queries] == one_by_one


def test_days_before_are_not_read(recorded: ExportedLives) -> None:
    deliver(recorded, OK, to="smtp:old.example")
    recorded.now += 3 * 86_400
    deliver(recorded, OK)
    recorded.export()
    recorded.forget("journal")
    for old in sorted(recorded.events.glob("dt=*/journal.*"))[:1]:
        old.write_bytes(b"nobody looks")
    times = recorded.measured(recorded.now - 3_600)
    assert (list(times.destinations), times.note, times.unread_files) == ([NAMES[0]], "", 0)
    times = recorded.measured(0.0)
    assert "not all events could be read" in times.note
    assert times.unread_files == 1


def test_who_has_enough_reads_no_further(recorded: ExportedLives, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "ROWS_MAX", 10)
    for _ in range(500):
        deliver(recorded, OK)
    recorded.export()
    recorded.forget("journal")
    walk: Walk[ServiceTimes] = Walk(service_times.measure(recorded.browser, 0.0, 50, recorded.archive))
    times: ServiceTimes = recorded.walked(walk)
    assert 50 <= times.examined < 70


def test_many_recipients_of_one_delivery_are_one(recorded: ExportedLives, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "ROWS_MAX", 3)
    deliver(recorded, OK)
    deliver(recorded, *[OK] * 10, NO)
    deliver(recorded, OK, OK)
    recorded.export()
    recorded.forget("journal")
    row = recorded.measured(0.0).destinations[NAMES[0]]
    assert (row.deliveries, row.recipients, row.bounced) == (3, 14, 1)
