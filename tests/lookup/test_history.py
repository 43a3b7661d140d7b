"""A message's history: all that journal and lanes still hold of it, in order, and whether that is all there was."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from mailcore.envelope import Aside, AsideKind, Recipient, Status, Verdict
from mailcore.log.disk import Disk
from mailcore.log.reader import LaneReader
from mailcore.log.record import RecordType
from mailcore.lookup import history as history_module
from mailcore.lookup import timeline as story_module
from mailcore.lookup.browse import Found
from mailcore.lookup.history import HistoryReader
from mailcore.lookup.tracing import SLACK_S, Walk, open_lane
from mailcore.queue.records import Place, Replaced
from tests.lookup.recorded_lives import DELAYS, RecordedLives, bounce_of, events_of, many


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[RecordedLives]:
    recorded = RecordedLives(tmp_path)
    yield recorded
    recorded.close()


def kinds(recorded: RecordedLives, queue_id: str) -> list[str]:
    return [event["event"] for event in events_of(recorded.history(queue_id))]


def drop_first_segments(recorded: RecordedLives, lane: str, left: int = 1) -> None:
    for path in sorted((recorded.directory / lane).glob("*.seg"))[:-left]:
        path.unlink()
        path.with_suffix(".idx").unlink(missing_ok=True)


def test_a_life_is_told_from_its_beginning_to_its_end(recorded: RecordedLives) -> None:
    life = recorded.arrive(
        ["a@example.org", "b@example.org"], sender="s@example.com", client_address="192.0.2.9", helo="client",
        message_id="<1@x>", login="joe", tls="TLSv1.3", authentication="spf=pass dkim=none arc=none dmarc=pass",
    )  # fmt: skip
    recorded.now += 1
    life.start()
    life.attempt(Status.DELIVERED, 0)
    life.attempt(Status.DEFERRED, 1, reply="450 4.2.0 later")
    life.replace("retry.300", 1)
    recorded.now += 300
    life.start()
    life.attempt(Status.DELIVERED, 1)
    life.finish()
    history = recorded.history(life.queue_id)
    assert history.complete
    assert history.note == ""
    assert history.since is not None
    accepted, first, second, deferred, third, finished = events_of(history)
    assert accepted == {
        "at": recorded.now - 301, "event": "accepted", "sender": "s@example.com", "size_bytes": 1000, "recipients": 2,
        "client_address": "192.0.2.9", "helo": "client", "tls": "TLSv1.3", "login": "joe", "message_id": "<1@x>",
        "origin": "smtp", "authentication": "spf=pass dkim=none arc=none dmarc=pass",
    }  # fmt: skip
    assert first == {
        "at": recorded.now - 300, "event": "attempt", "destination": "smtp:x", "relay": "mx[192.0.2.1]:25", "tls": "",
        "delays": list(DELAYS), "verdicts_left_out": 0, "tls_level": "",
        "verdicts": [
            {"number": 0, "address": "a@example.org", "status": "delivered", "dsn": "2.0.0", "reply": "250 OK"}
        ],
    }  # fmt: skip
    assert [(v["address"], v["status"], v["reply"]) for v in second["verdicts"]] == [
        ("b@example.org", "deferred", "450 4.2.0 later")
    ]
    assert deferred == {
        "at": recorded.now - 300, "event": "deferred_until", "lane": "retry.300", "due_at": recorded.now, "generation": 1,
        "of_lane": False,
    }  # fmt: skip
    assert third["verdicts"][0]["address"] == "b@example.org"
    assert finished == {"at": recorded.now, "event": "finished", "how": "", "bounce": None}


def test_what_an_operator_did_is_told_with_who_and_why(recorded: RecordedLives) -> None:
    life = recorded.arrive()
    life.start()
    life.order("delete", "spam")
    life.replace("deleted")
    recorded.now += 3600
    life.start()
    life.finish("deleted")
    history = recorded.history(life.queue_id)
    assert [event["event"] for event in events_of(history)] == ["accepted", "administrative", "replaced", "finished"]
    order = events_of(history)[1]
    assert (order["operation"], order["who"], order["why"]) == ("delete", "alice (uid 7)", "spam")
    assert events_of(history)[3]["how"] == "deleted"
    assert history.complete


def test_deferred_until_the_time_that_the_list_says(recorded: RecordedLives) -> None:
    """One recipient is held, and another waits longer than the lane in which the message rests."""
    life = recorded.arrive(["c@example.org", "d@example.org"])
    life.start()
    c, d = life.envelope.recipients
    until = recorded.now + 293
    waiting = (
        msgspec.structs.replace(c, aside=Aside(AsideKind.DEFERRED, until)),
        msgspec.structs.replace(d, aside=Aside(AsideKind.HELD)),
    )
    asides = {"deferred": 1, "held": 1}
    life.replace("retry.60", recipients=waiting, aside=asides, due_at=recorded.now + 60, first_due_at=until)
    found = Found(life.lane, life.offset, life.envelope)
    assert recorded.browser.item(found, None).due_at == until
    event = events_of(recorded.history(life.queue_id))[-1]
    assert (event["event"], event["due_at"], event["of_lane"]) == ("deferred_until", until, False)


def test_without_its_envelope_only_the_time_of_the_lane_is_known(recorded: RecordedLives) -> None:
    life = recorded.arrive()
    life.start()
    place = Place("retry.60", 1 << 30)  # nothing is there any more
    recorded.say(RecordType.REPLACED, Replaced(life.queue_id, 0, place, None, recorded.now))
    event = events_of(recorded.history(life.queue_id))[-1]
    assert (event["due_at"], event["of_lane"]) == (recorded.now + 60, True)


def test_what_is_held_and_deleted_is_not_deferred(recorded: RecordedLives) -> None:
    life = recorded.arrive(["c@example.org", "d@example.org"])
    life.start()
    life.replace("retry.60", aside={"deleted": 1, "held": 1}, first_due_at=recorded.now + 60)
    assert kinds(recorded, life.queue_id)[-1] == "replaced"


def test_a_deletion_or_an_expiry_is_no_attempt(recorded: RecordedLives) -> None:
    life = recorded.arrive(["a@example.org", "b@example.org"])
    life.start()
    life.settle(Status.EXPIRED, 0, destination="smtp:x")
    life.order("delete", "spam")
    life.replace("deleted", 1)
    life.start()
    life.settle(Status.DELETED, 1)
    life.finish("deleted")
    events = events_of(recorded.history(life.queue_id))
    assert [event["event"] for event in events] == [
        "accepted", "settled", "administrative", "replaced", "settled", "finished",
    ]  # fmt: skip
    assert [(v["address"], v["status"]) for v in events[4]["verdicts"]] == [("b@example.org", "deleted")]
    assert events[4].keys() == {"at", "event", "destination", "verdicts", "verdicts_left_out"}
    assert [each["destination"] for each in (events[1], events[4])] == ["smtp:x", ""]


def test_a_message_that_only_arrived_is_all_told(recorded: RecordedLives) -> None:
    life = recorded.arrive()
    recorded.arrive()
    history = recorded.history(life.queue_id)
    assert ([event["event"] for event in events_of(history)], history.complete) == (["accepted"], True)


def test_a_message_that_is_being_worked_on_is_all_told(recorded: RecordedLives) -> None:
    life = recorded.arrive()
    life.start()
    life.attempt(Status.DEFERRED)
    history = recorded.history(life.queue_id)
    assert ([event["event"] for event in events_of(history)], history.complete) == (["accepted", "attempt"], True)


def test_a_bounce_is_named(recorded: RecordedLives) -> None:
    life = recorded.arrive()
    life.start()
    life.attempt(Status.BOUNCED, reply="550 no")
    notice = bounce_of(life)
    (offset,) = recorded.lane("local").write(notice)
    life.finish(bounce=Place("local", offset))
    history = recorded.history(life.queue_id)
    assert [event["event"] for event in events_of(history)] == ["accepted", "attempt", "bounce", "finished"]
    assert events_of(history)[2]["queue_id"] == notice.queue_id
    assert events_of(history)[3]["bounce"] == {"lane": "local", "offset": offset}
    assert kinds(recorded, notice.queue_id) == ["accepted"]  # and has a history of its own


def test_of_a_message_nobody_knows_nothing_is_told(recorded: RecordedLives) -> None:
    recorded.chatter(10)
    history = recorded.history("1K0RDGV4BE9ZZ")
    assert (events_of(history), history.complete) == ([], False)
    assert history.note.startswith("nothing is known about 1K0RDGV4BE9ZZ; the journal goes back to 20")


def test_without_a_journal_and_lanes_nothing_is_told(tmp_path: Path) -> None:
    recorded = RecordedLives(tmp_path)
    recorded.close()
    for path in (tmp_path / "journal").glob("*"):
        path.unlink()
    history = recorded.history("1K0RDGV4BE9ZZ")
    assert (events_of(history), history.since, history.note) == ([], None, "nothing is known about 1K0RDGV4BE9ZZ")


def test_a_deleted_part_of_the_journal_is_missed(recorded: RecordedLives) -> None:
    life = recorded.arrive()
    life.start()
    life.attempt(Status.DEFERRED)
    life.replace("retry.300")
    recorded.chatter(2_000)
    life.start()
    life.attempt()
    life.finish()
    assert recorded.history(life.queue_id).complete
    drop_first_segments(recorded, "journal")
    history = recorded.history(life.queue_id)
    assert [event["event"] for event in events_of(history)] == ["accepted", "attempt", "finished"]
    assert not history.complete
    assert history.note.startswith("its history is incomplete; the journal goes back to ")


def test_a_part_of_the_journal_that_is_deleted_meanwhile_is_missed(
    recorded: RecordedLives, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = recorded.arrive()
    life.start()
    recorded.chatter(2_000)
    life.finish()

    @contextlib.contextmanager
    def deleted_meanwhile(disk: Disk, queue_directory: str, lane: str) -> Iterator[LaneReader]:
        with open_lane(disk, queue_directory, lane) as reader:
            assert len(reader.bases) > 1
            drop_first_segments(recorded, lane)
            yield reader

    monkeypatch.setattr(history_module, "open_lane", deleted_meanwhile)
    history = recorded.history(life.queue_id)
    assert history.since is not None
    assert history.note.startswith("its history is incomplete; the journal goes back to ")


def test_a_deferred_message_whose_first_pass_is_forgotten_is_not_all_told(recorded: RecordedLives) -> None:
    life = recorded.arrive()
    life.start()
    life.replace("retry.300")
    recorded.chatter(2_000)
    drop_first_segments(recorded, "journal")
    history = recorded.history(life.queue_id)
    assert ([event["event"] for event in events_of(history)], history.complete) == (["accepted"], False)


def test_a_finished_message_whose_end_is_forgotten_is_not_all_told(recorded: RecordedLives) -> None:
    life = recorded.arrive()
    life.start()
    life.finish()
    recorded.chatter(2_000)
    drop_first_segments(recorded, "journal")
    history = recorded.history(life.queue_id)
    assert ([event["event"] for event in events_of(history)], history.complete) == (["accepted"], False)


def test_without_its_envelope_numbers_have_no_addresses(recorded: RecordedLives) -> None:
    life = recorded.arrive(lane="incoming.7")
    life.start()
    life.attempt()
    life.finish()
    for path in (recorded.directory / "incoming.7").glob("*"):
        path.unlink()
    history = recorded.history(life.queue_id)
    assert [event["event"] for event in events_of(history)] == ["attempt", "finished"]
    assert events_of(history)[0]["verdicts"][0]["address"] == ""
    assert not history.complete
    assert "its envelope is deleted" in history.note


def test_a_start_that_was_stated_anew_does_not_make_it_whole(recorded: RecordedLives) -> None:
    life = recorded.arrive()
    life.start()
    life.attempt(Status.DEFERRED)
    recorded.chatter(2_000)
    life.start(anew=True)
    life.order("hold")
    drop_first_segments(recorded, "journal")
    assert not recorded.history(life.queue_id).complete


def test_an_order_that_was_stated_anew_is_told_once(recorded: RecordedLives) -> None:
    life = recorded.arrive()
    life.start()
    hold = life.order("hold")
    life.start(anew=True)
    life.order_again(hold)
    assert kinds(recorded, life.queue_id) == ["accepted", "administrative"]


def test_several_orders_that_were_stated_anew_are_told_once_and_in_order(recorded: RecordedLives) -> None:
    life = recorded.arrive()
    life.start()
    orders = []
    for operation in ("hold", "release", "retry"):
        recorded.now += 1
        orders.append(life.order(operation))
    life.start(anew=True)
    for change in orders:
        life.order_again(change)
    operations = [event["operation"] for event in events_of(recorded.history(life.queue_id))[1:]]
    assert operations == ["hold", "release", "retry"]


def test_what_follows_a_finish_that_was_not_believed_is_told(recorded: RecordedLives) -> None:
    life = recorded.arrive()
    life.start()
    life.attempt(Status.BOUNCED)
    life.finish(bounce=Place("local", 4096))
    recorded.chatter(100)
    life.start(anew=True, refused=(Verdict(0, Status.BOUNCED, "5.0.0", "550 no"),))
    life.finish(bounce=Place("local", 5096))
    assert kinds(recorded, life.queue_id) == ["accepted", "attempt", "bounce", "finished", "bounce", "finished"]


def test_segments_that_ended_before_it_came_are_not_read_nor_what_follows_its_end(recorded: RecordedLives) -> None:
    recorded.chatter(3_000)
    recorded.now += 10 * SLACK_S
    recorded.chatter(1_000)
    life = recorded.arrive()
    life.start()
    life.attempt()
    life.finish()
    recorded.now += 10 * SLACK_S
    recorded.chatter(10_000)
    history = recorded.history(life.queue_id)
    assert history.complete
    total = sum(path.stat().st_size for path in (recorded.directory / "journal").glob("*.seg"))
    assert history.examined < total / 4


def test_a_journal_too_long_to_read_is_said_to_be(recorded: RecordedLives) -> None:
    life = recorded.arrive()
    life.start()
    recorded.chatter(5_000)
    walk = Walk(HistoryReader(recorded.browser, trace_bytes_max=100_000).history(life.queue_id))
    history = recorded.walked(walk)
    assert (history.complete, history.note) == (False, "the journal is too long to be read to its end")


@pytest.mark.parametrize("before", range(0, 300, 7))
def test_it_is_found_wherever_its_records_lie_in_what_is_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    monkeypatch.setattr("mailcore.lookup.tracing.READ_BYTES", 256)
    recorded = RecordedLives(tmp_path)
    other = recorded.arrive()
    other.attempt(reply="x" * before)
    life = recorded.arrive()
    life.start()
    life.order("add_recipients")
    life.order("retry")
    life.attempt()
    life.finish()
    assert kinds(recorded, life.queue_id) == ["accepted", "administrative", "administrative", "attempt", "finished"]
    recorded.close()


def test_replies_full_of_its_queue_id_are_no_records_of_it(recorded: RecordedLives) -> None:
    life = recorded.arrive()
    life.start()
    hostile = recorded.arrive()
    hostile.start()
    hostile.attempt(reply="250 " + life.queue_id * 70)
    forged = b"\x4d\x00\x06L" + b"\x20\x00\x00\x00" + b"\x00" * 4 + b"\x95\xad" + life.queue_id.encode()
    hostile.attempt(reply="250 " + forged.decode("latin-1") * 20)
    life.attempt(reply="250 \x1b[31m\x00 </script>\ufffd")
    life.finish()
    history = recorded.history(life.queue_id)
    assert [event["event"] for event in events_of(history)] == ["accepted", "attempt", "finished"]
    assert events_of(history)[1]["verdicts"][0]["reply"] == "250 \x1b[31m\x00 </script>\ufffd"


def test_damage_in_the_journal_costs_what_it_covers(recorded: RecordedLives) -> None:
    life = recorded.arrive()
    life.start()
    at = recorded.journal.end
    life.attempt()
    life.finish()
    (segment,) = (recorded.directory / "journal").glob("*.seg")
    data = bytearray(segment.read_bytes())
    data[at + 20] ^= 0xFF
    segment.write_bytes(bytes(data))
    assert kinds(recorded, life.queue_id) == ["accepted", "finished"]


def test_an_answer_is_bounded(recorded: RecordedLives, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(story_module, "EVENTS_MAX", 6)
    monkeypatch.setattr(story_module, "VERDICTS_MAX", 25)
    life = recorded.arrive(recipients=tuple(many(100)))
    life.start()
    for first in range(0, 100, 10):
        life.attempt(Status.DELIVERED, *range(first, first + 10), reply="250 " + "y" * 5_000)
    life.finish()
    history = recorded.history(life.queue_id)
    attempts = [event for event in events_of(history) if event["event"] == "attempt"]
    assert [len(event["verdicts"]) for event in attempts] == [10, 10, 5, 0, 0, 0]
    assert [event["verdicts_left_out"] for event in attempts] == [0, 0, 5, 10, 10, 10]
    assert (history.events_left_out, history.verdicts_left_out) == (4, 75)
    assert events_of(history)[-1]["event"] == "finished"
    assert len(attempts[0]["verdicts"][0]["reply"]) == 1_000


def test_addresses_in_recipients_records_are_found(recorded: RecordedLives) -> None:
    lane = recorded.lane("incoming.0")
    batch = lane.write_batch([Recipient(number, f"b{number}@example.org") for number in range(1, 900)])
    life = recorded.arrive(recipients=(Recipient(0, "a@example.org"),), recipient_count=900, batches=(batch,))
    life.start()
    life.attempt(Status.DELIVERED, 0, 450)
    verdicts = events_of(recorded.history(life.queue_id))[1]["verdicts"]
    assert [verdict["address"] for verdict in verdicts] == ["a@example.org", "b450@example.org"]


def test_whoever_ends_in_the_middle_leaves_no_file_open(recorded: RecordedLives) -> None:
    life = recorded.arrive()
    life.start()
    recorded.chatter(5_000)
    gc.collect()  # what earlier tests left
    before = sorted(os.listdir("/proc/self/fd"))
    for steps in range(8):
        walk = Walk(HistoryReader(recorded.browser).history(life.queue_id))
        for _ in range(steps):
            assert not walk.go(0.0, lambda: 0.0)
        walk.close()
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_a_list_in_an_order_is_cut(recorded: RecordedLives) -> None:
    life = recorded.arrive()
    life.start()
    life.order("add_recipients", arguments={"recipients": [f"u{n}@example.org" for n in range(1_000)], "until": 7.0})
    arguments = events_of(recorded.history(life.queue_id))[1]["arguments"]
    assert (len(arguments["recipients"]), arguments["until"]) == (10, 7.0)
    assert events_of(recorded.history(life.queue_id))[1]["recipients"] == 1_000


def test_an_order_in_several_records_names_the_recipients_of_all(recorded: RecordedLives) -> None:
    life = recorded.arrive()
    life.start()
    life.order("hold", arguments={"numbers": [[0, 999]]})
    life.order("hold", arguments={"numbers": [[2_000, 2_004]]})
    (order,) = events_of(recorded.history(life.queue_id))[1:]
    assert (order["event"], order["recipients"]) == ("administrative", 1_005)
