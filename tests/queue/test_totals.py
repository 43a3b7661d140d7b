"""Totals over a restart are continued exactly, or begin again and say why."""

from __future__ import annotations

import msgspec
import pytest

from mailcore.balance import difference
from mailcore.envelope import Origin, Status, Verdict
from mailcore.log.disk import Disk
from mailcore.log.positions import LanePosition, RestartPositions, Totals, read_positions, write_positions
from mailcore.queue.fold import Folded, Stage
from mailcore.queue.lanes import DELETED
from mailcore.queue.records import Delivery, Finish, Passed
from mailcore.queue.sizes import Sizes
from mailcore.queue.totals import terms, totals_at_start
from tests.lookup.sample_messages import envelope
from tests.queue.test_fold import folded, start

BEFORE = Totals(
    100.0, "", (1, 2), {Origin.SMTP: (5, 10)}, finished=2, by_status={Status.DELIVERED: 3, Status.DEFERRED: 9},
)  # fmt: skip
NOW = 900.0


def stored(totals: Totals | None = BEFORE, sequence: int = 7, journal_end: int = 200) -> RestartPositions:
    return RestartPositions(sequence, 1.0, {}, 0, journal_end, totals=totals)


def sizes(messages: int, recipients: int) -> Sizes:
    made = Sizes(10)
    made.arrive("incoming.0", messages, recipients)
    return made


def verdicts(*statuses: Status, first: int = 0) -> Delivery:
    return Delivery("M", 0, tuple(Verdict(first + at, status, "", "") for at, status in enumerate(statuses)), 0.0)


def at_start(journal: Folded, there: Sizes, **given: object) -> tuple[Totals, bool]:
    asked = {"believed": True, "restored_at": 0.0} | given
    finished = [known for known in journal.messages.values() if known.stage is Stage.FINISHED]
    positions = asked.pop("stored", stored())
    return totals_at_start(positions, journal, finished, there, NOW, **asked)  # type: ignore[arg-type]


def test_verdicts_and_ends_above_the_place_that_is_counted_are_added_once() -> None:
    journal = folded(
        start(recipients=6), verdicts(Status.DELIVERED),  # below 200: counted
        verdicts(Status.DELIVERED, Status.DEFERRED, Status.BOUNCED, first=1), verdicts(Status.EXPIRED, first=2),
        verdicts(Status.DELIVERED, first=1),  # for the second time
        start(recipients=6, done=(0, 1, 3)),  # restated
        Finish("M", 0, None, 0.0),
        counted_to=200,
    )  # fmt: skip
    totals, continued = at_start(journal, sizes(3, 6))
    assert continued
    assert totals.by_status == {
        Status.DELIVERED: 4, Status.DEFERRED: 10, Status.BOUNCED: 1, Status.EXPIRED: 1, Status.DELETED: 0,
    }  # fmt: skip
    assert (totals.finished, totals.since) == (3, 100.0)
    assert all(difference(scope, amounts) == 0 for scope, amounts in terms(totals, (3, 6)).items())


def test_mail_that_was_passed_on_is_in_and_out_at_once() -> None:
    verdicts = (Verdict(0, Status.DELIVERED, "2.0.0", ""), Verdict(1, Status.DELIVERED, "2.0.0", ""))
    passed = Passed("P", envelope(["a@example.org", "b@example.org"], queue_id="P"), Delivery("P", 0, verdicts, 1.0))
    totals, continued = at_start(folded(passed, counted_to=0), sizes(4, 9))
    assert continued
    assert totals.accepted == {Origin.SMTP: (6, 12)}
    assert (totals.finished, totals.by_status[Status.DELIVERED]) == (3, 5)
    assert all(difference(scope, amounts) == 0 for scope, amounts in terms(totals, (4, 9)).items())


def test_mail_in_a_receivers_lane_that_the_journal_proves_is_accepted() -> None:
    totals, continued = at_start(Folded(), sizes(6, 12), arrived=(2, 3))
    assert continued
    assert totals.accepted == {Origin.SMTP: (7, 13)}
    assert all(difference(scope, amounts) == 0 for scope, amounts in terms(totals, (6, 12)).items())


@pytest.mark.parametrize(("lane", "end"), [(DELETED, 100), ("incoming.0", 300)])
def test_an_end_that_is_counted_is_not_counted_again(lane: str, end: int) -> None:
    """That of a deleted message was counted with its deletion."""
    journal = folded(start(lane=lane), Finish("M", 0, None, 0.0), counted_to=end)
    totals, continued = at_start(journal, sizes(4, 9), stored=stored(journal_end=end))
    assert continued
    assert totals.finished == 2


def test_mail_that_was_set_aside_still_counts_as_queued() -> None:
    there = sizes(3, 7)
    _, continued = at_start(Folded(), there, stored=stored(msgspec.structs.replace(BEFORE, lost=(1, 2))))
    assert continued
    assert there.lost == [1, 2]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"believed": False}, "damaged"),
        ({"restored_at": 500.0}, "restored from a backup"),
        ({"stored": stored(None)}, "earlier version"),
        ({"stored": stored(None, sequence=0)}, "lost"),
        ({"stored": RestartPositions(0, 1.0, {}, 0, 0)}, ""),
    ],
)
def test_totals_that_cannot_be_known_begin_again_and_say_why(given: dict[str, object], words: str) -> None:
    totals, continued = at_start(Folded(), sizes(4, 9), **given)
    assert not continued
    assert words in totals.note
    assert bool(words) is bool(totals.note)
    assert totals == Totals(NOW, totals.note, (4, 9))
    assert all(difference(scope, amounts) == 0 for scope, amounts in terms(totals, (4, 9)).items())


def test_totals_that_do_not_fit_the_queue_begin_again_and_say_by_how_much() -> None:
    totals, continued = at_start(Folded(), sizes(4, 8))
    assert not continued
    assert totals.note == "the counts before did not fit the queue: a difference of 1 recipients"
    assert totals.at_start == (4, 8)


def test_a_restore_counts_once() -> None:
    assert at_start(Folded(), sizes(4, 9), restored_at=99.0)[1]


class Older(msgspec.Struct, frozen=True, array_like=True):
    """The restart positions of a version that keeps no totals."""

    sequence: int
    written_at: float
    lanes: dict[str, LanePosition]
    suffix: int
    journal_end: int
    counts: dict[str, tuple[int, int]] = {}
    destinations: dict[str, int] = {}
    other_destinations: int = 0
    aside: bool = False


def test_totals_are_read_as_written_and_an_older_version_ignores_them(tmp_path: object) -> None:
    write_positions(Disk(), str(tmp_path), stored())
    read = read_positions(Disk(), str(tmp_path))
    assert read is not None
    assert read.totals == BEFORE
    older = msgspec.msgpack.decode(msgspec.msgpack.encode(stored()), type=Older)
    assert (older.sequence, older.journal_end) == (7, 200)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(older), type=RestartPositions).totals is None
