"""What the journal says of each message, record by record."""

from __future__ import annotations

import itertools

import msgspec

from mailcore.envelope import Status, Verdict
from mailcore.log.record import GARBAGE, Record, RecordType
from mailcore.queue.fold import Folded, Known, Stage, fold
from mailcore.queue.records import Administrative, Delivery, Finish, Passed, Place, Replaced, Start, encode
from tests.lookup.sample_messages import envelope

TYPES = {
    Start: RecordType.START,
    Delivery: RecordType.DELIVERY,
    Replaced: RecordType.REPLACED,
    Finish: RecordType.FINISH,
    Administrative: RecordType.ADMINISTRATIVE,
    Passed: RecordType.PASSED,
}
Body = Start | Delivery | Replaced | Finish | Administrative | Passed


def folded(*bodies: Body, counted_to: int = 0) -> Folded:
    """Records at offsets 0, 100, 200, ..."""
    return fold(
        [Record(n * 100, TYPES[type(body)], True, encode(body), n * 100 + 100) for n, body in enumerate(bodies)],
        counted_to,
    )


def known(*bodies: Body) -> Known:
    return folded(*bodies).messages["M"]


def start(generation: int = 0, offset: int = 64, lane: str = "incoming.0", **fields: object) -> Start:
    return msgspec.structs.replace(Start("M", generation, Place(lane, offset), 3), **fields)


def delivery(generation: int = 0, **statuses: Status) -> Delivery:
    """``r0=Status.DELIVERED``."""
    verdicts = tuple(Verdict(int(name[1:]), status, "2.0.0", "text") for name, status in statuses.items())
    return Delivery("M", generation, verdicts, 0.0)


def test_a_started_message_is_being_worked_on() -> None:
    message = known(start(floor=32))
    assert (message.stage, message.place, message.recipients, message.floor) == (
        Stage.WORKING,
        Place("incoming.0", 64),
        3,
        32,
    )


def test_recipients_with_a_final_verdict_are_done_and_the_refused_are_owed_a_bounce() -> None:
    message = known(
        start(), delivery(r0=Status.DELIVERED, r1=Status.DEFERRED), delivery(r1=Status.BOUNCED, r2=Status.EXPIRED)
    )
    assert message.done == {0, 1, 2}
    assert [verdict.number for verdict in message.owed] == [1, 2]


def test_a_success_that_its_sender_asked_to_hear_of_is_owed_a_report_with_its_host_and_time() -> None:
    relayed = Verdict(0, Status.DELIVERED, "2.0.0", "250 Ok", "mx.example[192.0.2.1]")
    silent = Verdict(1, Status.DELIVERED, "2.0.0", "250 Ok")
    message = known(start(), Delivery("M", 0, (relayed, silent), 1234.5, "mx.example[192.0.2.1]:25"))
    assert message.done == {0, 1}
    assert message.owed == [msgspec.structs.replace(relayed, at=1234)]
    again = known(start(), start(done=(0, 1), owed=tuple(message.owed)))
    assert again.owed == message.owed, "what is restated keeps both"
    own = known(start(), Delivery("M", 0, (Verdict(0, Status.EXPIRED, "4.4.7", "x", at=99),), 1234.5, "none"))
    assert [verdict.at for verdict in own.owed] == [99], "an end of ours is no attempt"


def test_a_verdict_read_twice_counts_once() -> None:
    message = known(start(), delivery(r1=Status.BOUNCED), delivery(r1=Status.BOUNCED))
    assert len(message.owed) == 1


def test_done_adds_up_over_generations_and_what_a_bounce_was_written_for_does_not() -> None:
    message = known(
        start(),
        delivery(r0=Status.DELIVERED, r1=Status.BOUNCED),
        Replaced("M", 0, Place("retry.1", 64), Place("local", 64)),
        start(1, 64, "retry.1"),
        delivery(1, r2=Status.DELIVERED),
    )
    assert (message.generation, message.done, message.done_before, message.owed) == (1, {2}, {0, 1}, [])
    assert (message.stage, message.replacement, message.bounce) == (Stage.WORKING, None, None)
    assert message.older == [(Place("incoming.0", 64), GARBAGE)]


def _anew(order: Administrative) -> Administrative:
    return msgspec.structs.replace(order, anew=True)


def test_orders_count_one_after_the_other_until_the_message_is_replaced() -> None:
    hold = Administrative("hold", "M", "who", "why", 0.0, {"numbers": [[1, 1]]})
    delete = Administrative("delete", "M", "who", "why", 0.0)
    assert known(start(), hold, delete).orders == [hold, delete]
    replaced = Replaced("M", 0, Place("hold", 64))
    assert known(start(), hold, replaced).stage is Stage.REPLACED
    assert known(start(), hold, replaced, start(1, 64, "hold")).orders == []


def test_orders_are_neither_lost_nor_doubled_by_a_start_that_is_written_again() -> None:
    hold, delete = (Administrative(operation, "M", "who", "why", 0.0) for operation in ("hold", "delete"))
    again = [_anew(hold), _anew(delete)]
    assert known(start(), hold, start()).orders == [hold], "a crash kept the START and lost what followed it"
    assert known(start(), hold, delete, start(), again[0]).orders == [again[0], delete]
    assert known(start(), hold, delete, start(), *again, start(), *again).orders == again
    assert known(start(), *again).orders == again, "the records before it are deleted"
    assert known(start(), *again, hold).orders == [*again, hold]


def test_orders_are_neither_lost_nor_doubled_whichever_of_the_records_written_again_a_crash_keeps() -> None:
    """A crash may keep the last block of a file and lose those before it, and so may one in the recovery from it."""
    orders = [
        Administrative(operation, "M", "operator", "because", float(at), {"numbers": [[1, 1]]})
        for at, operation in enumerate(("hold", "release", "delay"))
    ]
    again: list[Body] = [start(), *map(_anew, orders)]
    late = Administrative("reroute", "M", "operator", "because", 9.0)
    some = [kept for number in range(5) for kept in itertools.combinations(range(4), number)]
    for first, second in itertools.product(some, some):
        found = known(start(), *orders, *(again[at] for at in first), *(again[at] for at in second))
        assert [order.operation for order in found.orders] == ["hold", "release", "delay"], (first, second)
        found = known(*again, *(again[at] for at in first), late, *(again[at] for at in second))
        assert [order.operation for order in found.orders] == ["hold", "release", "delay", "reroute"], (first, second)


def test_deleted_recipients_count_as_deleted_until_their_deletion_is_permanent() -> None:
    assert known(start(deleted=2)).remaining == 1
    permanent = known(start(deleted=2), delivery(r0=Status.DELETED))
    assert (permanent.deleted, permanent.remaining) == (1, 1)
    assert known(start(deleted=2), delivery(r0=Status.DELETED), start(deleted=1, done=(0,))).remaining == 1


def test_what_ends_another_generation_ends_nothing() -> None:
    assert known(start(1), Finish("M", 0)).stage is Stage.WORKING
    assert known(start(1), Replaced("M", 2, Place("retry.1", 64))).stage is Stage.WORKING
    assert known(start(1), Finish("M", 1, Place("local", 64))).stage is Stage.FINISHED


def test_a_message_stated_anew_keeps_what_is_done_and_owed() -> None:
    owed = Verdict(1, Status.BOUNCED, "5.1.1", "no")
    message = known(start(done=(0,), owed=(owed,)))
    assert (message.done, message.owed) == ({0, 1}, [owed])
    again = known(start(), delivery(r1=Status.BOUNCED), start(done=(0, 1), owed=(owed,)))
    assert [verdict.number for verdict in again.owed] == [1]


def test_records_of_messages_without_a_start_are_of_the_time_before() -> None:
    assert folded(delivery(r0=Status.DELIVERED), Finish("M", 0), Administrative("set", "", "", "", 0.0)).messages == {}


def test_every_position_that_is_named_is_known() -> None:
    found = folded(
        start(),
        Replaced("M", 0, Place("retry.1", 640), Place("local", 64)),
        Finish("N", 0, Place("local", 320)),
        Replaced("O", 0, Place("retry.1", 100)),
    )
    assert found.named == {"incoming.0": 64, "retry.1": 640, "local": 320}
    assert found.end == 400


def test_starts_behind_the_last_counts_took_their_messages_out_of_them() -> None:
    bodies = [start(resting={"smtp:a": 3}), start(1, 64, "retry.1", resting={"smtp:b": 2}), start(2, 64, "retry.2")]
    assert folded(*bodies, counted_to=100).taken == [(Place("retry.1", 64), 3, {"smtp:b": 2})]


def test_what_two_deliveries_said_does_not_depend_on_their_order() -> None:
    some = [delivery(r0=Status.DELIVERED), delivery(r1=Status.BOUNCED), delivery(r2=Status.DEFERRED)]
    outcomes = {frozenset(known(start(), *order).done) for order in itertools.permutations(some)}
    assert outcomes == {frozenset({0, 1})}


def test_a_message_that_was_passed_on_is_counted_once_and_never_worked_on() -> None:
    verdicts = (Verdict(0, Status.DELIVERED, "2.0.0", ""), Verdict(1, Status.DELIVERED, "2.0.0", ""))
    passed = Passed("P", envelope(["a@example.org", "b@example.org"], queue_id="P"), Delivery("P", 0, verdicts, 1.0))
    found = folded(passed, passed, start(), counted_to=100)  # the first is below the counts
    assert list(found.messages) == ["M"]
    assert (found.passed, found.verdicts) == ((1, 2), {Status.DELIVERED: 2})
    assert found.named == {"incoming.0": 64}
