"""What became of messages whose segments are gone: events say what the journal did, and damage to them harms nobody."""

from __future__ import annotations

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
from mailcore.lookup.archive import Window
from mailcore.lookup.browse import Browser
from mailcore.lookup.history import History, HistoryReader
from mailcore.lookup.tracing import Walk
from mailcore.queue.records import Place
from tests.events.exported_lives import KeptWorld, unsynced
from tests.lookup.recorded_lives import Life, bounce_of, many

__all__ = ["unsynced"]
pytestmark = pytest.mark.usefixtures("unsynced")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[KeptWorld]:
    world = KeptWorld(tmp_path)
    yield world
    world.close()


def delivered(world: KeptWorld, **fields: Any) -> Life:
    life = world.arrive(**fields)
    life.start()
    life.attempt()
    life.finish()
    return life


def deferred_and_delivered(world: KeptWorld) -> Life:
    life = world.arrive(["a@example.org", "b@example.org"], helo="\x1b[31m<b>", message_id="<\u202eone@x>", login="who")
    life.start()
    life.attempt(Status.DELIVERED, 0)
    life.attempt(Status.DEFERRED, 1, reply="450 \x00 </script>\r\nlater \u202e")
    world.now += 40
    life.replace("retry.300", 1)
    world.now += 300
    life.start()
    life.order("retry", why="=1+1", arguments={"until": 7.5, "nested": {"a": [1, None]}})
    life.attempt(Status.DELIVERED, 1)
    life.finish()
    return life


def bounced(world: KeptWorld) -> Life:
    life = world.arrive(["a@example.org", "nobody@example.org"])
    life.start()
    life.attempt(Status.DELIVERED, 0)
    life.attempt(Status.BOUNCED, 1, reply="550 nobody")
    world.now += 1
    (offset,) = world.lane("local").write(msgspec.structs.replace(bounce_of(life), arrived_at=world.now))
    life.finish(bounce=Place("local", offset))
    return life


def deleted(world: KeptWorld) -> Life:
    life = world.arrive()
    life.start()
    life.order("delete")
    life.replace("deleted")
    world.now += 60
    life.start()
    life.attempt(Status.DELETED)
    life.finish("deleted")
    return life


def expired_in_parts(world: KeptWorld) -> Life:
    batch = world.lane("incoming.0").write_batch([Recipient(n, f"b{n}@example.org") for n in range(3, 900)])
    life = world.arrive(recipients=tuple(many(3)), recipient_count=900, batches=(batch,), sender="")
    life.start()
    for first in range(0, 900, 50):
        life.attempt(Status.EXPIRED, *range(first, first + 50))
    life.finish()
    return life


LIVES = [delivered, deferred_and_delivered, bounced, deleted, expired_in_parts]


def without_places(history: History) -> list[dict[str, Any]]:
    """Events do not say until when a deleted message could have been undone."""
    return [
        {name: value for name, value in event.items() if (event.get("lane"), name) != ("deleted", "due_at")}
        for event in history.events
    ]


# -- histories


@pytest.mark.parametrize("live", LIVES)
def test_a_history_is_the_same_from_events_alone(world: KeptWorld, live: Any) -> None:
    delivered(world)
    life = live(world)
    world.chatter(2_000)
    before = world.history(life.queue_id)
    assert before.complete, before.note
    world.export()
    assert world.history(life.queue_id) == before
    world.forget_all()
    after = world.history(life.queue_id)
    assert without_places(after) == without_places(before)
    assert (after.complete, after.note) == (True, "")
    assert after.verdicts_left_out == before.verdicts_left_out


@pytest.mark.parametrize("keep", range(1, 8))
def test_a_history_goes_over_from_events_to_the_journal_anywhere(tmp_path: Path, keep: int) -> None:
    world = KeptWorld(tmp_path, journal_segment_bytes=8 << 10)
    life = world.arrive(["a@example.org", "b@example.org"])
    life.start()
    for number in range(6):
        world.now += 300
        life.attempt(Status.DEFERRED, 0, 1, reply=f"450 {number}")
        life.order("hold", why=f"{number}")
        world.chatter(60)
    life.attempt(Status.DELIVERED, 0, 1)
    life.finish()
    assert len(list((world.directory / "journal").glob("*.seg"))) > 7
    before = world.history(life.queue_id)
    world.export()
    world.forget("journal", keep)
    world.forget("incoming.0")
    after = world.history(life.queue_id)
    assert after.events == before.events
    assert after.complete
    world.close()


def test_a_segment_that_goes_while_it_is_read_is_read_in_the_events(
    world: KeptWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "OPEN_SEGMENTS_MAX", 1)
    life = world.arrive()
    life.start()
    for _ in range(4):
        life.attempt(Status.DEFERRED)
        world.chatter(800)
    life.attempt()
    life.finish()
    before = world.history(life.queue_id)
    world.export()
    world.forget("incoming.0")
    for steps in range(40):
        world_of_its_own = sorted((world.directory / "journal").glob("*.seg"))
        kept = {path: path.read_bytes() for path in world_of_its_own}
        walk = Walk(HistoryReader(world.browser, archive=world.archive).history(life.queue_id))
        over = any(walk.go(0.0, lambda: 0.0) for _ in range(steps))
        world.forget("journal", keep=1)
        history = walk.result if over else world.walked(walk)
        assert history is not None
        assert history.events == before.events, steps
        for path, data in kept.items():
            path.write_bytes(data)


def test_what_is_in_the_queue_has_its_past_out_of_events(world: KeptWorld) -> None:
    life = world.arrive(["a@example.org", "b@example.org"])
    life.start()
    life.attempt(Status.DELIVERED, 0)
    life.attempt(Status.DEFERRED, 1)
    life.replace("retry.300", 1)
    world.chatter(2_000)
    before = world.history(life.queue_id)
    world.export()
    world.forget("journal")
    world.forget("incoming.0")
    after = world.history(life.queue_id)
    assert after.events == before.events
    assert after.complete
    assert after.events[1]["verdicts"][0]["address"] == "a@example.org"


def test_added_recipients_have_their_addresses(world: KeptWorld) -> None:
    life = world.arrive()
    life.start()
    life.order("add_recipients", arguments={"recipients": ["x@example.org", "y@example.org"]})
    life.attempt(Status.DELIVERED, 0, 1, 2)
    life.finish()
    world.export()
    world.forget_all()
    history = world.history(life.queue_id)
    addresses = [verdict["address"] for verdict in history.events[2]["verdicts"]]
    assert addresses == ["user@example.org", "x@example.org", "y@example.org"]
    assert history.complete


def test_a_bounce_has_a_history_of_its_own(world: KeptWorld) -> None:
    life = bounced(world)
    world.now += 86_400 * 2
    world.export()
    world.forget_all()
    history = world.history(f"{life.queue_id}B0")
    assert [event["event"] for event in history.events] == ["accepted"]
    assert history.events[0]["sender"] == ""


def test_what_nobody_exported_is_not_all_known(world: KeptWorld) -> None:
    life = world.arrive()
    life.start()
    life.attempt(Status.DEFERRED)
    life.replace("retry.300")
    world.chatter(2_000)
    world.forget("journal", keep=1)  # before anybody kept events
    life.start()
    life.attempt()
    life.finish()
    world.export()
    world.forget_all()
    history = world.history(life.queue_id)
    assert [event["event"] for event in history.events] == ["accepted", "attempt", "finished"]
    assert not history.complete
    assert history.note.startswith("its history is incomplete; ")
    assert "events go back to " in history.note


def test_a_recipient_without_an_end_is_missed(world: KeptWorld) -> None:
    life = world.arrive(["a@example.org", "b@example.org"])
    life.start()
    life.attempt(Status.DELIVERED, 1)
    life.finish()
    world.export()
    world.forget_all()
    assert not world.history(life.queue_id).complete


def test_of_what_nobody_knows_nothing_is_told(world: KeptWorld) -> None:
    delivered(world)
    world.export()
    world.forget_all()
    for queue_id in ("1K0RDGV4BE9ZZ", "0000000000000", "ZZZZZZZZZZZZZ", "no queue id"):
        history = world.history(queue_id)
        assert (history.events, history.complete) == ([], False)
        assert history.note.startswith(f"nothing is known about {queue_id}")


# -- what is wrong with files


def test_a_damaged_file_is_passed_over_and_said(world: KeptWorld) -> None:
    life = delivered(world)
    other = delivered(world)
    world.export()
    world.forget_all()
    (journal,) = world.events.glob("dt=*/journal.*.parquet")
    good = journal.read_bytes()
    for name, data in {
        "nothing": b"",
        "no file of ours": b"<script>\x1b[31m" * 100,
        "its end is lost": good[: len(good) // 2],
        "its middle is damaged": good[:4] + b"\xff" * (len(good) // 2) + good[4 + len(good) // 2 :],
    }.items():
        journal.write_bytes(data)
        history = world.history(life.queue_id)
        assert [event["event"] for event in history.events][:1] == ["accepted"], name
        assert not history.complete
        assert f"not all events could be read: {journal.parent.name}/{journal.name}: " in history.note
        assert world.measured(0.0).note
        hits = world.search(sender="sender@*")
        assert {hit.queue_id: hit.state for hit in hits} == {life.queue_id: "unknown", other.queue_id: "unknown"}
        assert world.note == f"not all events could be read: {history.note.partition('could be read: ')[2]}"
    (arrivals,) = world.events.glob("dt=*/incoming.0.*.parquet")
    arrivals.write_bytes(b"PAR1")
    assert world.search(sender="sender@*") == []
    assert arrivals.name in world.note


def test_a_file_that_goes_while_it_is_wanted_is_said(world: KeptWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    life = delivered(world)
    world.export()
    world.forget_all()
    (journal,) = world.events.glob("dt=*/journal.*.parquet")
    assert world.archive is not None
    files = world.archive._files  # type: ignore[attr-defined]
    listed = {day: files.of_day(day) for day in files.days(Window())}
    journal.unlink()
    monkeypatch.setattr(files, "of_day", listed.__getitem__)
    history = world.history(life.queue_id)
    assert [event["event"] for event in history.events] == ["accepted"]
    assert f"{journal.name} has gone" in history.note


def test_files_of_a_later_version_and_strange_names_are_left_alone(world: KeptWorld) -> None:
    life = delivered(world)
    world.export()
    world.forget_all()
    (journal,) = world.events.glob("dt=*/journal.*.parquet")
    table = pq.read_table(journal)
    for name in (".journal.0.parquet", "_journal.0.parquet", "journal.parquet", "journal.x.parquet", "a;b.0.parquet"):
        (journal.parent / name).write_bytes(b"nonsense")
    (world.events / "dt=nonsense").mkdir()
    (world.events / "dt=2026-11-21x").mkdir()
    assert world.history(life.queue_id).complete
    pq.write_table(table.replace_schema_metadata({"waypost.events": "99"}), journal)
    assert "its version is 99" in world.history(life.queue_id).note


def test_an_order_whose_arguments_nobody_can_read_is_told(world: KeptWorld) -> None:
    life = world.arrive()
    life.start()
    life.order("hold", arguments={"deep": json.loads("[" * 50 + "]" * 50), "no number": float("inf")})
    life.attempt()
    life.finish()
    world.export()
    world.forget_all()
    history = world.history(life.queue_id)
    assert history.complete
    assert [event["event"] for event in history.events] == ["accepted", "administrative", "attempt", "finished"]


# -- what it costs


def test_whoever_ends_in_the_middle_leaves_no_file_open(world: KeptWorld) -> None:
    life = deferred_and_delivered(world)
    world.export()
    world.forget_all()
    world.history(life.queue_id)
    before = sorted(os.listdir("/proc/self/fd"))
    reader = HistoryReader(world.browser, archive=world.archive)
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
    world = KeptWorld(tmp_path)
    world.browser = Browser(Disk(), str(tmp_path / "nowhere"), lambda: 0.0, lambda: 0.0)
    world.export()
    assert world.history("1K0RDGV4BE9ZZ").note == "nothing is known about 1K0RDGV4BE9ZZ"
    assert world.search(sender="*") == []
    world.close()
