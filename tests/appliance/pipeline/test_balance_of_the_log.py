"""From the log to the balance: lanes written record by record, exported by the real export, counted by real cuts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from appliance.pipeline.balance import UNBALANCED, Balance
from appliance.pipeline.build_day import ReportBuilder
from appliance.pipeline.cuts import cuts_in, ends
from appliance.pipeline.days import Day
from mailcore.envelope import Status
from mailcore.events.write.cutoff import take_cut
from mailcore.log.record import RecordType
from mailcore.queue.lanes import JOURNAL
from mailcore.queue.records import Administrative, Finish, Place, Start, encode
from tests.events.lanes import DAY, Lanes

TODAY = Day(datetime.fromtimestamp(DAY, UTC).date(), "UTC")
A, B, C = "0EXPR000000A0", "0EXPR000000B0", "0EXPR000000C0"


class ExportedLanes(Lanes):
    def begin(self, queue_id: str, place: int, recipients: int, generation: int = 0) -> None:
        body = Start(queue_id, generation, Place("incoming.0", place), recipients)
        self.writer(JOURNAL).append(RecordType.START, encode(body))

    def finish(self, queue_id: str) -> None:
        self.writer(JOURNAL).append(RecordType.FINISH, encode(Finish(queue_id, 0, at=DAY + 40)))

    def add(self, queue_id: str, *addresses: str) -> None:
        body = Administrative("add_recipients", queue_id, "root", "", DAY + 25, {"recipients": list(addresses)})
        self.writer(JOURNAL).append(RecordType.ADMINISTRATIVE, encode(body))

    def through(self, queue_id: str, *statuses: Status) -> None:
        """Accepted, and tried once."""
        self.begin(queue_id, self.accept(queue_id, len(statuses)), len(statuses))
        self.deliver(queue_id, *statuses)
        if Status.DEFERRED not in statuses:
            self.finish(queue_id)

    def cut(self, at: float) -> int:
        self.covered(at=at)
        export = self.export()
        with export.locked(0):
            return take_cut(export, at)[0].checksum


@pytest.fixture
def exported(tmp_path: Path) -> ExportedLanes:
    """Three messages of two recipients each: two are over, of one a recipient is left and one was added."""
    exported = ExportedLanes(tmp_path, segment_bytes=1 << 20)
    exported.accept("0EXPR000000000", 4)  # queued all the day
    exported.cut(DAY)
    exported.through(A, Status.DELIVERED, Status.BOUNCED)
    exported.through(B, Status.DELIVERED, Status.DELIVERED)
    exported.through(C, Status.DELIVERED, Status.DEFERRED)
    exported.add(C, "late@example.org")
    exported.cut(DAY + 86_400)
    exported.close()
    return exported


def lose(events: Path, lane: str, lost: Callable[[dict[str, Any]], bool]) -> None:
    """Rows out of the event files of a lane; what these say of themselves stays."""
    gone = 0
    for path in events.glob(f"dt=*/{lane}.*.parquet"):
        table = pq.ParquetFile(path).read()
        kept = [not lost(row) for row in table.to_pylist()]
        gone += kept.count(False)
        pq.write_table(table.filter(pa.array(kept)), path, compression="zstd")
    assert gone


def told(builder: ReportBuilder, exported: ExportedLanes) -> Balance:
    cuts, unreadable = cuts_in(exported.events)
    assert unreadable == []
    return replace(builder, events=exported.events)._balance(*ends(cuts, TODAY), TODAY.partitions())


def test_it_balances_message_by_message(builder: ReportBuilder, exported: ExportedLanes) -> None:
    found = told(builder, exported)
    assert found.words == "It balances."
    assert (found.queued_at_start, found.accepted, found.queued_at_end) == (4, 7, 6)
    assert found.message_by_message is True


def test_the_acceptance_of_one_message_and_the_ends_of_another_are_gone(
    builder: ReportBuilder, exported: ExportedLanes
) -> None:
    lose(exported.events, "incoming.0", lambda row: row["queue_id"] == A)
    lose(exported.events, "journal", lambda row: row["kind"] == "attempt" and row["queue_id"] == B)
    found = told(builder, exported)
    assert (found.state, found.difference, found.message_by_message) == (UNBALANCED, 0, False)
    assert [each.queue_id for each in found.suspects] == [A, B]
    assert "not for the same messages" in found.words
