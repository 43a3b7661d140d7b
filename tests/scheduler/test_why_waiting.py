"""Why-waiting is exact: lift just the condition it names, and the entry is selected next or the next one named is true.

Each condition is looked up in the model of SCHEDULER_README; it is lifted on a copy of scheduler and model together.
"""

from __future__ import annotations

import copy
import copyreg
import gc
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from mailcore.manager_answers import Reason
from mailcore.scheduler.feedback import Feedback
from tests.scheduler.document.pair import Pair
from tests.scheduler.test_against_document import Histories

# What deepcopy cannot copy by itself: values that do not change, and live views, which are made of their copied dict.
copyreg.pickle(Feedback, lambda feedback: (Feedback, (feedback.number, feedback.kind)))
copyreg.pickle(MappingProxyType, lambda mapping: (MappingProxyType, (dict(mapping),)))
copyreg.pickle(type({}.values()), lambda view: (dict.values, tuple(gc.get_referents(view))))
LIFTS_MAX = 60  # conditions that one recipient can wait for, one after the other, in these small histories
Group = dict[str, Any]


def finish(pair: Pair, wanted: Callable[[Any], bool]) -> bool:
    for entry, _ in list(pair.flights.values()):
        if wanted(entry):
            pair.report(entry)
            return True
    return False


def group_of(pair: Pair, queue_id: str, destination: str) -> Group | None:
    """Why that part of the message waits, or None when none of it does."""
    for group in pair.scheduler.explain(queue_id, pair.now, 1000):
        assert msgspec.to_builtins(msgspec.convert(group, Reason)) == group, "a type that the manager sends has it all"
        if group.get("destination") == destination and group["state"] not in ("delivering", "unread"):
            return group
    return None


def next_of(pair: Pair, transport: str) -> tuple[str, str] | None:
    """What the transport gives next; asked of a copy."""
    pair = copy.deepcopy(pair)
    while (entry := pair.select()) is not None:
        if entry.transport == transport:
            return entry.queue_id, entry.destination
    return None


def is_true(pair: Pair, queue_id: str, group: Group) -> bool:
    """Whether SCHEDULER_README says so, too."""
    model, name, now = pair.model, group["destination"], pair.now
    model.pass_time(now)
    transport = model.transport(name.partition(":")[0])
    destination = model.destination(name)
    match group["state"]:
        case "suspended":
            return now < model.suspended[name]
        case "dead":
            return destination.dead_until is not None
        case "transport dead":
            return transport.dead_until is not None
        case "rate delay":
            return destination.delayed_until is not None and now < destination.delayed_until
        case "transport rate delay":
            return transport.delayed_until is not None and now < transport.delayed_until
        case "window full":
            return destination.busy >= destination.window.concurrency
        case "transport full":
            limit = 1 if transport.value("transport_rate_delay") > 0 else transport.value("process_limit")
            return bool(transport.busy >= limit)
        case "behind" | "next":
            return model.open_to(name, now) and not transport.full(now)
    raise AssertionError(f"a state that nobody knows: {group}")


def lift(pair: Pair, queue_id: str, group: Group) -> None:
    """Takes away the condition, and nothing else that could be left."""
    name, transport = group["destination"], group["destination"].partition(":")[0]
    match group["state"]:
        case "suspended":
            pair.set(name, "suspended_until", None)
        case "dead" | "transport dead" | "rate delay" | "transport rate delay":
            until = group["until"]
            assert until > pair.now
            pair.now = until
        case "window full":
            assert finish(pair, lambda entry: entry.destination == name)
        case "transport full":
            assert finish(pair, lambda entry: entry.transport == transport)
        case "behind":
            in_front = group["job"]
            if in_front == queue_id:  # its own part for another destination has its turn first
                assert next_of(pair, transport) != (queue_id, name)
                entry = pair.select()
                while entry is not None and entry.transport != transport:
                    entry = pair.select()
            else:
                pair.withdraw(in_front)


def is_exact(pair: Pair, queue_id: str, destination: str) -> list[str]:
    """Lifts one condition after the other until the entry is selected; the states that were named."""
    transport = destination.partition(":")[0]
    states: list[str] = []
    for _ in range(LIFTS_MAX):
        group = group_of(pair, queue_id, destination)
        if group is None:  # it was selected on the way, behind another part of its own message
            return states
        assert is_true(pair, queue_id, group), f"not true: {group}"
        states.append(group["state"])
        selected = next_of(pair, transport) == (queue_id, destination)
        assert selected == (group["state"] == "next"), f"selected next is {selected}, and it says {group}"
        if selected:
            return states
        pair = copy.deepcopy(pair)
        lift(pair, queue_id, group)
        following = group_of(pair, queue_id, destination)
        assert following != group, f"lifted, and still there: {group}"
    raise AssertionError(f"never selected: {states}")


class WhyWaiting(Histories):
    @precondition(lambda self: self.messages)
    @rule(data=st.data())
    def ask(self, data: st.DataObject) -> None:
        self.pair.model.pass_time(self.pair.now)
        waiting = {
            (message.queue_id, peer.destination)
            for message in self.pair.model.messages.values()
            for job in message.jobs.values()
            for peer in job.peers
            if peer.recipients
        }
        told = {
            (queue_id, group["destination"])
            for queue_id in self.pair.model.messages
            for group in self.pair.scheduler.explain(queue_id, self.pair.now, 1000)
            if group["state"] not in ("delivering", "unread")
        }
        assert told == waiting
        if waiting:
            is_exact(self.pair, *data.draw(st.sampled_from(sorted(waiting))))


WhyWaiting.TestCase.settings = settings(
    stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
)
TestWhyWaiting = WhyWaiting.TestCase


# -- what is missing for a preemption

NO_WINDOW = {"destination_recipient_limit": 1, "initial_destination_concurrency": 20, "minimum_delivery_slots": 0}


def missing(pair: Pair, queue_id: str) -> tuple[str, str, int | None]:
    group = group_of(pair, queue_id, f"smtp:{queue_id}")
    assert group is not None
    return group["state"], group["job"], group.get("slots_missing")


def test_a_candidate_says_how_many_slots_are_missing_and_goes_when_they_are_there() -> None:
    for cost, loan, discount in ((2, 0, 0), (5, 0, 0), (3, 1, 0), (2, 0, 50), (5, 3, 50)):
        values = {"delivery_slot_cost": cost, "delivery_slot_loan": loan, "delivery_slot_discount": discount}
        pair = Pair({"smtp": NO_WINDOW | values})
        pair.bulk("1", 100)
        pair.bulk("2", 10)
        state, job, slots = missing(pair, "2")
        assert (state, job) == ("behind", "1")
        assert slots
        assert slots > 0
        assert pair.run(slots * cost - 1) == "1" * (slots * cost - 1)
        assert missing(pair, "2")[2] == 1
        assert pair.run(1) == "1"
        group = group_of(pair, "2", "smtp:2")
        assert group is not None
        assert group["state"] == "next"
        assert pair.run(1) == "2"


def test_where_no_preemption_could_help_no_slots_are_missing() -> None:
    pair = Pair({"smtp": NO_WINDOW | {"delivery_slot_cost": 2, "delivery_slot_loan": 0}})
    pair.bulk("1", 10)
    pair.bulk("2", 6)  # 1 never has more than five
    assert missing(pair, "2") == ("behind", "1", None)
    pair.set("smtp", "delivery_slot_cost", 0)
    pair.bulk("3", 1)
    assert missing(pair, "3")[2] is None
