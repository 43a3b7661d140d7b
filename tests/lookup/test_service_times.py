"""Times of deliveries come out of the journal's end, whatever its size and whatever else lies in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from mailcore.envelope import Status, Verdict
from mailcore.log.disk import Disk
from mailcore.log.record import RecordType
from mailcore.lookup import service_times
from mailcore.lookup.answers import ServiceTimes
from mailcore.lookup.browse import Browser
from mailcore.lookup.service_times import measure
from mailcore.lookup.tracing import Walk
from mailcore.queue.records import Delivery, encode
from tests.lookup.sample_messages import NOW, Lane

OK = Verdict(0, Status.DELIVERED, "2.0.0", "250 OK")
LATER = Verdict(1, Status.DEFERRED, "4.2.0", "450 later")
NO = Verdict(2, Status.BOUNCED, "5.1.1", "550 nobody")


class Journal(Lane):
    def __init__(self, queue_directory: Path, segment_bytes: int = 1 << 20) -> None:
        super().__init__(queue_directory, "journal", segment_bytes)
        self.browser = Browser(Disk(), str(queue_directory), lambda: NOW, lambda: 0.0)

    def delivered(
        self,
        *verdicts: Verdict,
        at: float = NOW,
        connect_s: float = 0.0,
        transmit_s: float = 0.1,
        to: str = "smtp:example.org",
    ) -> None:
        delivery = Delivery("1K0RDGV4BE900", 0, verdicts, at, "mx[::1]:25", "", (0.0, 0.0, connect_s, transmit_s), to)
        self.writer.append(RecordType.DELIVERY, encode(delivery))

    def measured(self, since: float = NOW - 3600, records_max: int = 1_000_000) -> ServiceTimes:
        self.writer.sync()
        walk = Walk(measure(self.browser, since, records_max))
        while not walk.go(0.0, lambda: 0.0):
            pass
        assert walk.result is not None
        return walk.result


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal(tmp_path)
    yield journal
    journal.close()


def test_deliveries_are_told_apart(journal: Journal) -> None:
    journal.delivered(OK, LATER, NO, connect_s=0.5, transmit_s=0.2)
    journal.delivered(OK, transmit_s=0.1)
    journal.delivered(LATER, connect_s=30.0, transmit_s=0.0)  # no host talked to us
    journal.delivered(LATER, connect_s=0.0, transmit_s=0.0)  # deferred without a try
    journal.delivered(OK, to="smtp:example.net")
    measured = journal.measured()
    assert msgspec.to_builtins(measured.destinations["smtp:example.org"]) == {
        "deliveries": 3,
        "recipients": 4,
        "connect_s": [0.5],
        "transmit_s": [0.1, 0.2],
        "new_connections": 1,
        "site_failures": 1,
        "deferred": 1,
        "bounced": 1,
        "replies": [
            {"at": NOW, "reply": "450 later", "status": "deferred", "dsn": "4.2.0", "times": 2},
            {"at": NOW, "reply": "550 nobody", "status": "bounced", "dsn": "5.1.1", "times": 1},
        ],
    }
    assert measured.destinations["smtp:example.net"].deliveries == 1
    assert measured.examined == 5


def test_an_empty_journal_has_measured_nothing(tmp_path: Path) -> None:
    walk = Walk(measure(Browser(Disk(), str(tmp_path), lambda: NOW, lambda: 0.0), 0.0, 10))
    assert walk.go(1.0, lambda: 0.0)
    assert walk.result is not None
    assert (walk.result.destinations, walk.result.examined) == ({}, 0)


@pytest.mark.parametrize("piece_bytes", [50, 300, 4_096, 1 << 20])
def test_every_record_counts_once_wherever_pieces_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece_bytes: int
) -> None:
    monkeypatch.setattr(service_times, "PIECE_BYTES", piece_bytes)
    journal = Journal(tmp_path, 64 << 10)
    for number in range(1_500):
        journal.delivered(OK, transmit_s=1 + number)
    measured = journal.measured()
    assert len(list(journal.directory.glob("*.seg"))) > 2
    assert (measured.examined, measured.destinations["smtp:example.org"].deliveries) == (1_500, 1_500)
    journal.close()


def test_the_newest_are_read_and_old_ones_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_times, "PIECE_BYTES", 4_096)
    journal = Journal(tmp_path, 64 << 10)
    for number in range(5_000):
        journal.delivered(OK, at=NOW - 5_000 + number)
    measured = journal.measured(since=NOW - 100)
    assert measured.destinations["smtp:example.org"].deliveries == 100
    assert measured.examined < 300
    measured = journal.measured(since=0.0, records_max=500)
    assert 500 <= measured.destinations["smtp:example.org"].deliveries < 600
    journal.close()


def test_what_is_kept_is_bounded(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_times, "DESTINATIONS_MAX", 3)
    for number in range(1_000):
        journal.delivered(
            OK, Verdict(1, Status.DEFERRED, "4.0.0", f"450 {number}" + "x" * 600), at=NOW - 1_000 + number,
            connect_s=0.001 * number + 0.001, transmit_s=1.0, to=f"smtp:d{number % 5}.example",
        )  # fmt: skip
    measured = journal.measured()
    assert (len(measured.destinations), measured.destinations_left_out) == (3, 2)
    for row in measured.destinations.values():
        assert (row.deliveries, len(row.connect_s), len(row.replies)) == (200, 200, 5)
        assert row.connect_s == sorted(row.connect_s)
        assert len(row.replies[0].reply) == 500
        ats = [reply.at for reply in row.replies]
        assert ats == sorted(ats, reverse=True)
        assert ats[-1] >= NOW - 30  # the newest five of each


def test_damage_is_stepped_over(journal: Journal) -> None:
    for number in range(100):
        journal.delivered(OK, transmit_s=1 + number)
    journal.writer.sync()
    (segment,) = journal.directory.glob("*.seg")
    data = bytearray(segment.read_bytes())
    data[5_000:5_010] = b"\xff" * 10
    segment.write_bytes(bytes(data))
    assert journal.measured().destinations["smtp:example.org"].deliveries in (98, 99)
