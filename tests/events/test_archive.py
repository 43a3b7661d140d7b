"""What became of messages whose segments are gone: events say what the journal did, and damage to them harms nobody."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from mailcore.envelope import Recipient, Status
from mailcore.log import reader
from mailcore.log.disk import Disk
from mailcore.lookup.answers import History
from mailcore.lookup.archive import Window
from mailcore.lookup.browse import Browser
from mailcore.lookup.history import HistoryReader
from mailcore.lookup.tracing import Walk
from mailcore.queue.records import Place
from tests.events.exported_lives import ExportedLives, unsynced
from tests.lookup.recorded_lives import Life, bounce_of, events_of, many

__all__ = ["unsynced"]
pytestmark = pytest.mark.usefixtures("unsynced")


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[ExportedLives]:
    recorded = ExportedLives(tmp_path)
    yield recorded
    recorded.close()


def delivered(recorded: ExportedLives, **fields: Any) -> Life:
    life = recorded.arrive(**fields)
    life.start()
    life.attempt()
    life.finish()
    return life


def deferred_and_delivered(recorded: ExportedLives) -> Life:
    life = recorded.arrive(
        ["a@example.org", "b@example.org"], helo="\x1b[31m<b>", message_id="<\u202eone@x>", login="who"
    )
    life.start()
    life.attempt(Status.DELIVERED, 0)
    life.attempt(Status.DEFERRED, 1, reply="450 \x00 </script>\r\nlater \u202e")
    recorded.now += 40
    life.replace("retry.300", 1)
    recorded.now += 300
    life.start()
    life.order("retry", why="=1+1", arguments={"until": 7.5, "nested": {"a": [1, None]}})
    life.attempt(Status.DELIVERED, 1)
    life.finish()
    return life


def bounced(recorded: ExportedLives) -> Life:
    life = recorded.arrive(["a@example.org", "nobody@example.org"])
    life.start()
    life.attempt(Status.DELIVERED, 0)
    life.attempt(Status.BOUNCED, 1, reply="550 nobody")
    recorded.now += 1
    (offset,) = recorded.lane("local").write(msgspec.structs.replace(bounce_of(life), arrived_at=recorded.now))
    life.finish(bounce=Place("local", offset))
    return life


def deleted(recorded: ExportedLives) -> Life:
    life = recorded.arrive()
    life.start()
    life.order("delete")
    life.replace("deleted")
    recorded.now += 60
    life.start()
    life.attempt(Status.DELETED)
    life.finish("deleted")
    return life


def expired_in_parts(recorded: ExportedLives) -> Life:
    batch = recorded.lane("incoming.0").write_batch([Recipient(n, f"b{n}@example.org") for n in range(3, 900)])
    life = recorded.arrive(recipients=tuple(many(3)), recipient_count=900, batches=(batch,), sender="")
    life.start()
    for first in range(0, 900, 50):
        life.attempt(Status.EXPIRED, *range(first, first + 50))
    life.finish()
    return life


LIVES = [delivered, deferred_and_delivered, bounced, deleted, expired_in_parts]


def without_places(history: History) -> list[dict[str, Any]]:
    """Events say neither until when a deleted message could have been undone, nor a time beyond that of its retry lane, which
    ``of_lane`` says."""
    unsaid = {("deleted", "due_at")}
    return [
        {name: value for name, value in event.items() if name != "of_lane" and (event.get("lane"), name) not in unsaid}
        for event in events_of(history)
    ]


# -- histories


@pytest.mark.parametrize("live", LIVES)
def test_a_history_is_the_same_from_events_alone(recorded: ExportedLives, live: Any) -> None:
    delivered(recorded)
    life = live(recorded)
    recorded.chatter(2_000)
    before = recorded.history(life.queue_id)
    assert before.complete, before.note
    recorded.export()
    assert recorded.history(life.queue_id) == before
    recorded.forget_all()
    after = recorded.history(life.queue_id)
    assert without_places(after) == without_places(before)
    assert (after.complete, after.note) == (True, "")
    assert after.verdicts_left_out == before.verdicts_left_out


@pytest.mark.parametrize("keep", range(1, 8))
def test_a_history_goes_over_from_events_to_the_journal_anywhere(tmp_path: Path, keep: int) -> None:
    recorded = ExportedLives(tmp_path, journal_segment_bytes=8 << 10)
    life = recorded.arrive(["a@example.org", "b@example.org"])
    life.start()
    for number in range(6):
        recorded.now += 300
        life.attempt(Status.DEFERRED, 0, 1, reply=f"450 {number}")
        life.order("hold", why=f"{number}")
        recorded.chatter(60)
    life.attempt(Status.DELIVERED, 0, 1)
    life.finish()
    assert len(list((recorded.directory / "journal").glob("*.seg"))) > 7
    before = recorded.history(life.queue_id)
    recorded.export()
    recorded.forget("journal", keep)
    recorded.forget("incoming.0")
    after = recorded.history(life.queue_id)
    assert events_of(after) == events_of(before)
    assert after.complete
    recorded.close()


def test_a_segment_that_goes_while_it_is_read_is_read_in_the_events(
    recorded: ExportedLives, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "OPEN_SEGMENTS_MAX", 1)
    life = recorded.arrive()
    life.start()
    for _ in range(4):
        life.attempt(Status.DEFERRED)
        recorded.chatter(800)
    life.attempt()
    life.finish()
    before = recorded.history(life.queue_id)
    recorded.export()
    recorded.forget("incoming.0")
    for steps in range(40):
        world_of_its_own = sorted((recorded.directory / "journal").glob("*.seg"))
        kept = {path: path.read_bytes() for path in world_of_its_own}
        walk = Walk(HistoryReader(recorded.browser, archive=recorded.archive).history(life.queue_id))
        over = any(walk.go(0.0, lambda: 0.0) for _ in range(steps))
        recorded.forget("journal", keep=1)
        history = walk.result if over else recorded.walked(walk)
        assert history is not None
        assert events_of(history) == events_of(before), steps
        for path, data in kept.items():
            path.write_bytes(data)


def test_what_is_in_the_queue_has_its_past_out_of_events(recorded: ExportedLives) -> None:
    life = recorded.arrive(["a@example.org", "b@example.org"])
    life.start()
    life.attempt(Status.DELIVERED, 0)
    life.attempt(Status.DEFERRED, 1)
    life.replace("retry.300", 1)
    recorded.chatter(2_000)
    before = recorded.history(life.queue_id)
    recorded.export()
    recorded.forget("journal")
    recorded.forget("incoming.0")
    after = recorded.history(life.queue_id)
    assert events_of(after) == events_of(before)
    assert after.complete
    assert events_of(after)[1]["verdicts"][0]["address"] == "a@example.org"


def test_added_recipients_have_their_addresses(recorded: ExportedLives) -> None:
    life = recorded.arrive()
    life.start()
    life.order("add_recipients", arguments={"recipients": ["x@example.org", "y@example.org"]})
    life.attempt(Status.DELIVERED, 0, 1, 2)
    life.finish()
    recorded.export()
    recorded.forget_all()
    history = recorded.history(life.queue_id)
    addresses = [verdict["address"] for verdict in events_of(history)[2]["verdicts"]]
    assert addresses == ["user@example.org", "x@example.org", "y@example.org"]
    assert history.complete


def test_a_bounce_has_a_history_of_its_own(recorded: ExportedLives) -> None:
    life = bounced(recorded)
    recorded.now += 86_400 * 2
    recorded.export()
    recorded.forget_all()
    history = recorded.history(f"{life.queue_id}B0")
    assert [event["event"] for event in events_of(history)] == ["accepted"]
    assert events_of(history)[0]["sender"] == ""


def test_what_nobody_exported_is_not_all_known(recorded: ExportedLives) -> None:
    life = recorded.arrive()
    life.start()
    life.attempt(Status.DEFERRED)
    life.replace("retry.300")
    recorded.chatter(2_000)
    recorded.forget("journal", keep=1)  # before anybody kept events
    life.start()
    life.attempt()
    life.finish()
    recorded.export()
    recorded.forget_all()
    history = recorded.history(life.queue_id)
    assert [event["event"] for event in events_of(history)] == ["accepted", "attempt", "finished"]
    assert not history.complete
    assert history.note.startswith("its history is incomplete; ")
    assert "events go back to " in history.note


def test_a_recipient_without_an_end_is_missed(recorded: ExportedLives) -> None:
    life = recorded.arrive(["a@example.org", "b@example.org"])
    life.start()
    life.attempt(Status.DELIVERED, 1)
    life.finish()
    recorded.export()
    recorded.forget_all()
    assert not recorded.history(life.queue_id).complete


def test_of_what_nobody_knows_nothing_is_told(recorded: ExportedLives) -> None:
    delivered(recorded)
    recorded.export()
    recorded.forget_all()
    for queue_id in ("1K0RDGV4BE9ZZ", "0000000000000", "ZZZZZZZZZZZZZ", "no queue id"):
        history = recorded.history(queue_id)
        assert (events_of(history), history.complete) == ([], False)
        assert history.note.startswith(f"nothing is known about {queue_id}")


# -- what is wrong with files


def test_a_damaged_file_is_passed_over_and_said(recorded: ExportedLives) -> None:
    life = delivered(recorded)
    other = delivered(recorded)
    recorded.export()
    recorded.forget_all()
    (journal,) = recorded.events.glob("dt=*/journal.*.parquet")
    good = journal.read_bytes()
    for name, data in {
        "nothing": b"",
        "no file of ours": b"<script>\x1b[31m" * 100,
        "its end is lost": good[: len(good) // 2],
        "its middle is damaged": good[:4] + b"\xff" * (len(good) // 2) + good[4 + len(good) // 2 :],
    }.items():
        journal.write_bytes(data)
        history = recorded.history(life.queue_id)
        assert [event["event"] for event in events_of(history)][:1] == ["accepted"], name
        assert not history.complete
        assert f"not all events could be read: {journal.parent.name}/{journal.name}: " in history.note
        assert recorded.measured(0.0).note
        hits = recorded.search(sender="sender@*")
        assert {hit.queue_id: hit.state for hit in hits} == {life.queue_id: "unknown", other.queue_id: "unknown"}
        assert recorded.note == f"not all events could be read: {history.note.partition('could be read: ')[2]}"
    (arrivals,) = recorded.events.glob("dt=*/incoming.0.*.parquet")
    arrivals.write_bytes(b"PAR1")
    assert recorded.search(sender="sender@*") == []
    assert arrivals.name in recorded.note


def test_a_file_that_goes_while_it_is_wanted_is_said(recorded: ExportedLives, monkeypatch: pytest.MonkeyPatch) -> None:
    life = delivered(recorded)
    recorded.export()
    recorded.forget_all()
    (journal,) = recorded.events.glob("dt=*/journal.*.parquet")
    assert recorded.archive is not None
    files = recorded.archive._files  # type: ignore[attr-defined]
    listed = {day: files.of_day(day) for day in files.days(Window())}
    journal.unlink()
    monkeypatch.setattr(files, "of_day", listed.__getitem__)
    history = recorded.history(life.queue_id)
    assert [event["event"] for event in events_of(history)] == ["accepted"]
    assert f"{journal.name} has gone" in history.note


def test_files_of_a_later_version_and_strange_names_are_left_alone(recorded: ExportedLives) -> None:
    life = delivered(recorded)
    recorded.export()
    recorded.forget_all()
    (journal,) = recorded.events.glob("dt=*/journal.*.parquet")
    table = pq.read_table(journal)
    for name in (".journal.0.parquet", "_journal.0.parquet", "journal.parquet", "journal.x.parquet", "a;b.0.parquet"):
        (journal.parent / name).write_bytes(b"nonsense")
    (recorded.events / "dt=nonsense").mkdir()
    (recorded.events / "dt=2026-11-21x").mkdir()
    assert recorded.history(life.queue_id).complete
    pq.write_table(table.replace_schema_metadata({"waypost.events": "99"}), journal)
    assert "its version is 99" in recorded.history(life.queue_id).note


def test_an_order_whose_arguments_nobody_can_read_is_told(recorded: ExportedLives) -> None:
    life = recorded.arrive()
    life.start()
    life.order("hold", arguments={"deep": json.loads("[" * 50 + "]" * 50), "no number": float("inf")})
    life.attempt()
    life.finish()
    recorded.export()
    recorded.forget_all()
    history = recorded.history(life.queue_id)
    assert history.complete
    assert [event["event"] for event in events_of(history)] == ["accepted", "administrative", "attempt", "finished"]


# -- what it costs


def test_whoever_ends_in_the_middle_leaves_no_file_open(recorded: ExportedLives) -> None:
    life = deferred_and_delivered(recorded)
    recorded.export()
    recorded.forget_all()
    recorded.history(life.queue_id)
    gc.collect()  # what earlier tests left
    before = sorted(os.listdir("/proc/self/fd"))
    reader = HistoryReader(recorded.browser, archive=recorded.archive)
    for steps in range(12):
        walk = Walk(reader.history(life.queue_id))
        any(walk.go(0.0, lambda: 0.0) for _ in range(steps))
        walk.close()
        assert sorted(os.listdir("/proc/self/fd")) == before


def test_without_events_nothing_is_imported_for_them(tmp_path: Path) -> None:
    code = (
        "import sys, time\n"
        "from mailcore.events.read.archive import EventArchive\n"
        "from mailcore.log.disk import Disk\n"
        "from mailcore.lookup.browse import Browser\n"
        "from mailcore.lookup.history import HistoryReader\n"
        "from mailcore.lookup.tracing import Walk\n"
        "browser = Browser(Disk(), sys.argv[1], time.time, time.monotonic)\n"
        "reader = HistoryReader(browser, archive=EventArchive(Disk(), sys.argv[1] + '/events'))\n"
        "walk = Walk(reader.history('1K0RDGV4BE9ZZ'))\n"
        "while not walk.go(1.0, time.monotonic): pass\n"
        "sys.exit('pyarrow' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], timeout=60, check=False).returncode == 0


def test_an_empty_home_knows_nothing(tmp_path: Path) -> None:
    recorded = ExportedLives(tmp_path)
    recorded.browser = Browser(Disk(), str(tmp_path / "nowhere"), lambda: 0.0, lambda: 0.0)
    recorded.export()
    assert recorded.history("1K0RDGV4BE9ZZ").note == "nothing is known about 1K0RDGV4BE9ZZ"
    assert recorded.search(sender="*") == []
    recorded.close()
