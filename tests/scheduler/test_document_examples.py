"""The sequences and the tree that SCHEDULER_README tells, from the scheduler and the model of SCHEDULER_README alike."""

from __future__ import annotations

import pytest

from mailcore.scheduler.entry import Entry
from tests.scheduler.document.pair import Pair

NO_WINDOW = {"destination_recipient_limit": 1, "initial_destination_concurrency": 20}


def sequence(sizes: list[int], **parameters: int) -> str:
    """Messages 1, 2, ... of so many recipients; in which order their entries are given to deliveries."""
    pair = Pair({"smtp": NO_WINDOW | parameters})
    for number, size in enumerate(sizes, 1):
        pair.bulk(str(number), size)
    return pair.run()


def test_preemption_when_all_slots_are_accumulated() -> None:
    order = sequence([10, 2, 2], delivery_slot_cost=2, delivery_slot_loan=0, delivery_slot_discount=0)
    assert order == "11112211113311"


def test_preemption_when_half_of_the_slots_are_accumulated() -> None:
    order = sequence([10, 2, 2], delivery_slot_cost=2, delivery_slot_loan=0, delivery_slot_discount=50)
    assert order == "11221111331111"


def test_one_of_four_and_four_of_one() -> None:
    parameters = {"delivery_slot_cost": 2, "delivery_slot_loan": 0, "delivery_slot_discount": 0}
    assert sequence([4, 1, 1, 1, 1], minimum_delivery_slots=0, **parameters) == "11211345"
    assert sequence([4, 1, 1, 1, 1], minimum_delivery_slots=3, **parameters) == "11112345"


@pytest.mark.parametrize("cost", [0, 1])
def test_a_cost_below_two_is_first_come_first_served(cost: int) -> None:
    order = sequence([4, 1, 1], delivery_slot_cost=cost, delivery_slot_loan=9, minimum_delivery_slots=0)
    assert order == "111123"


def test_a_loan_lets_the_small_ones_go_first_but_they_are_paid_for() -> None:
    # With three slots lent message 2 goes after one entry of the first; then its price of four has to be accumulated.
    order = sequence([10, 2, 2], delivery_slot_cost=2, delivery_slot_loan=3, delivery_slot_discount=0)
    assert order == "12211113311111"


def test_the_bulk_message_is_preempted_and_what_preempts_it_as_well() -> None:
    # One of a thousand, one of a hundred, one of ten: the last slips past both.
    pair = Pair({"smtp": NO_WINDOW | {"delivery_slot_loan": 0, "delivery_slot_discount": 0}})
    for queue_id, size in (("a", 1000), ("b", 100)):
        pair.bulk(queue_id, size)
    order = pair.run(500 + 50)
    assert order == "a" * 500 + "b" * 50
    pair.bulk("c", 10)
    assert pair.run() == "c" * 10 + "b" * 50 + "a" * 500


def test_the_one_that_waits_longest_for_its_size_is_the_candidate_even_if_it_cannot_go_yet() -> None:
    # Eight entries of "1" could carry "2" (three) as well as "3" (one); "2" waits so much longer that "3" has to wait.
    pair = Pair({"smtp": NO_WINDOW | {"delivery_slot_cost": 2, "delivery_slot_loan": 0, "delivery_slot_discount": 0}})
    pair.bulk("1", 12)
    pair.bulk("2", 3)
    pair.now += 100.0
    pair.bulk("3", 1)
    assert pair.run() == "1111112221131111"


def test_peers_of_a_job_take_turns_by_destination() -> None:
    pair = Pair({"smtp": NO_WINDOW})
    pair.admit("1", *["smtp:a"] * 4, *["smtp:b"] * 2, "smtp:c")
    order = []
    while (entry := pair.select()) is not None:
        order.append(entry.destination[-1])
    assert "".join(order) == "abcabaa"


def test_transports_take_turns() -> None:
    pair = Pair({"smtp": NO_WINDOW, "bulk": NO_WINDOW, "relay": NO_WINDOW})
    for name in ("smtp", "bulk", "relay"):
        pair.bulk(name[0], 3, transport=name)
    order = pair.run()
    assert sorted(order[:3]) == ["b", "r", "s"]
    assert order == order[:3] * 3


# -- the tree of jobs 1 to 8


class Tree:
    """Eight messages; each has its own destination, which is shut to block it and opened to unblock it."""

    def __init__(self) -> None:
        self.pair = Pair(
            {
                "smtp": NO_WINDOW
                | {"delivery_slot_cost": 2, "delivery_slot_loan": 0, "delivery_slot_discount": 0}
                | {"minimum_delivery_slots": 0, "process_limit": 1000}
            }
        )

    def block(self, *queue_ids: str) -> None:
        for queue_id in queue_ids:
            self.pair.set(f"smtp:{queue_id}", "suspended_until", self.pair.now + 1e6)

    def unblock(self, *queue_ids: str) -> None:
        for queue_id in queue_ids:
            self.pair.set(f"smtp:{queue_id}", "suspended_until", None)

    def give(self, queue_id: str, times: int) -> None:
        for _ in range(times):
            entry = self.pair.select()
            assert isinstance(entry, Entry)
            assert entry.queue_id == queue_id
            self.pair.report(entry)

    def grow(self) -> None:
        pair = self.pair
        for queue_id, size in zip("12345678", (100, 50, 50, 20, 50, 5, 3, 3), strict=True):
            pair.bulk(queue_id, size)
            pair.now += 1.0
        self.block(*"235678")
        self.give("1", 40)
        self.give("4", 6)  # 20 entries of 4 are paid for by 40 of 1
        assert pair.job_list() == list("41235678")
        self.unblock("7")
        self.give("7", 1)
        assert pair.job_list() == list("74123568")
        self.block("7")
        self.give("4", 6)
        self.unblock("8")
        self.give("8", 1)
        assert pair.job_list() == list("78412356")
        self.block("8")
        self.give("4", 8)  # completes: its children live on without it
        assert pair.job_list() == list("7812356")
        self.block("1", "2")
        self.unblock("3")
        self.give("3", 10)
        self.unblock("6")
        self.give("6", 1)


def test_the_tree_of_jobs_gives_the_list_of_the_document() -> None:
    tree = Tree()
    tree.grow()
    assert tree.pair.job_list() == list("7812635")


def test_the_tree_of_jobs_is_delivered_in_the_order_of_the_list_however_it_is_unblocked() -> None:
    tree = Tree()
    tree.grow()
    tree.unblock(*"12578")
    for _ in range(15):  # nobody can preempt any more: the rest goes out in the list's order
        tree.pair.set("smtp", "delivery_slot_cost", 0)
    order = tree.pair.run()
    assert order == "77" + "88" + "1" * 60 + "2" * 50 + "6666" + "3" * 40 + "5" * 50


def test_children_whose_parent_has_ended_are_adopted_and_cost_who_adopts_them_nothing() -> None:
    tree = Tree()
    tree.grow()
    tree.pair.agree()  # 7 and 8 preempted 4, which is gone: now they are children of 1
    tree.pair.withdraw("7")  # two of its three slots are not used: they were 4's
    tree.pair.agree()


def test_slots_that_a_job_does_not_use_go_back_to_the_one_it_preempted() -> None:
    pair = Pair({"smtp": NO_WINDOW | {"delivery_slot_cost": 2, "delivery_slot_loan": 0, "delivery_slot_discount": 0}})
    pair.bulk("1", 30)
    pair.bulk("2", 5)
    assert pair.run(11) == "1" * 10 + "2"
    pair.withdraw("2")
    pair.bulk("3", 4)
    assert pair.run(5) == "33331"  # five slots less the one that was used


def test_all_jobs_of_a_destination_are_unblocked_at_once_and_go_out_first_come_first_served() -> None:
    pair = Pair({"smtp": NO_WINDOW | {"destination_concurrency_limit": 1, "delivery_slot_cost": 0}})
    pair.bulk("0", 1, "busy")
    first = pair.select()
    assert first is not None
    for queue_id in "1234":
        pair.bulk(queue_id, 1, "busy")
    pair.bulk("5", 2, "free")
    assert pair.run() == "55"
    pair.report(first)
    assert pair.run() == "1234"


def test_all_jobs_of_a_destination_are_candidates_again_at_once() -> None:
    pair = Pair({"smtp": NO_WINDOW | {"delivery_slot_cost": 2, "delivery_slot_loan": 0, "delivery_slot_discount": 0}})
    pair.bulk("1", 20)
    for queue_id in "234":
        pair.bulk(queue_id, 1, "shut")
    pair.set("smtp:shut", "suspended_until", 1e9)
    order = ""
    for _ in range(8):  # deliveries that do not end, so that it is not these which unblock others
        entry = pair.select()
        assert entry is not None
        order += entry.queue_id
    pair.set("smtp:shut", "suspended_until", None)
    for _ in range(4):
        entry = pair.select()
        assert entry is not None
        order += entry.queue_id
    assert order == "1" * 8 + "2341"


def test_a_blocked_job_is_no_candidate() -> None:
    pair = Pair({"smtp": NO_WINDOW | {"delivery_slot_cost": 2, "delivery_slot_loan": 3}})
    pair.bulk("1", 20)
    pair.bulk("2", 1)
    pair.bulk("3", 2)
    pair.set("smtp:2", "suspended_until", 1e9)
    assert pair.run(3) == "133"


def test_a_job_that_preempted_is_preempted_with_what_it_accumulates_itself() -> None:
    # Without blockers the list is a stack: the last that preempted is delivered, then the one below it.
    pair = Pair({"smtp": NO_WINDOW | {"delivery_slot_cost": 2, "delivery_slot_loan": 0, "delivery_slot_discount": 0}})
    pair.bulk("1", 100)
    pair.bulk("4", 20)
    assert pair.run(50) == "1" * 40 + "4" * 10
    pair.bulk("7", 3)
    assert pair.run() == "777" + "4" * 10 + "1" * 60
