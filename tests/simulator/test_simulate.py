"""The simulation: it balances, it repeats itself, it ends, and the scheduler in it does what it is known for."""

from __future__ import annotations

import pytest

from mailcore.simulator.backlog import Backlog
from mailcore.simulator.outcome import Outcome
from mailcore.simulator.queued import QueuedMail
from mailcore.simulator.scenario import Change, Scenario
from mailcore.simulator.simulate import simulate
from tests.answers import size as live_size
from tests.simulator.sample_queue import A, B, chances, hop, listed, mail, ran, scenario

FEEDBACK = "destination_concurrency_{}_feedback"
ROUGH = {
    "": hop("lognormal(0.2, 1)", deferred_share=0.1, bounced_share=0.02),
    A: hop("exponential(0.5)", processes=3, listen=2, connect_s=0.01),
    B: hop(0.3, dead=((20.0, 90.0),), dead_how="silent", rate_recipients=100),
}
MIXED = (
    mail({A: 1, B: 1, "smtp:c.example": 2}, "lognormal(1, 4)", messages=200, age_s=30, spread=True),
    mail({A: 3, B: 1}, messages=50, deferred_s=100),
    mail({A: 1, B: 2, "smtp:c.example": 1}, "lognormal(1, 9)", per_s=3, to_s=120),
    listed(1500, A, at_s=10),
)


def rough(seed: int = 1, **values: object) -> Outcome:
    return ran(*MIXED, hops=ROUGH, seed=seed, **values)


def balanced(outcome: Outcome) -> bool:
    waiting = outcome.recipients_in - outcome.delivered - outcome.bounced
    series, destinations = outcome.series, outcome.destinations
    return (
        outcome.waiting == waiting == outcome.deferred_waiting + outcome.untried
        and sum(series.delivered) == outcome.delivered == sum(each.delivered for each in destinations)
        and sum(series.bounced) == outcome.bounced == sum(each.bounced for each in destinations)
        and sum(series.deferred) == outcome.deferrals == sum(each.deferred for each in destinations)
        and sum(each.entries for each in destinations) == outcome.entries
    )


@pytest.mark.parametrize("seed", range(5))
def test_every_recipient_is_delivered_bounced_or_waiting(seed: int) -> None:
    for until_s in (0.5, 15.0, 60.0, 400.0, 432_000.0):
        assert balanced(rough(seed, until_s=until_s)), f"seed {seed}, until {until_s}"
    drained = rough(seed)
    assert (drained.end, drained.waiting) == ("drained", 0)
    assert drained.messages_in == drained.messages_finished
    assert drained.deferrals_untried > 0


def test_the_same_seed_gives_the_same_outcome_and_another_one_another() -> None:
    assert rough(7) == rough(7)
    assert rough(7) != rough(8)


def test_mail_is_the_same_whatever_the_parameters() -> None:
    narrow = rough(transport={"destination_concurrency_limit": 2})
    assert narrow.recipients_in == rough().recipients_in
    assert narrow.series.arrived == rough().series.arrived
    assert narrow.drained_s != rough().drained_s


def test_one_message_takes_as_long_as_its_delivery() -> None:
    outcome = ran(listed(1), hops={"": hop(2, connect_s=0.5)})
    assert (outcome.end, outcome.simulated_s, outcome.drained_s, outcome.entries) == ("drained", 2.5, 2.5, 1)
    (delay,) = outcome.delays
    assert (delay.recipients, delay.messages, delay.max_s) == ("1", 1, 2.5)
    assert delay.p50_s == pytest.approx(2.5, rel=0.03)


def test_a_window_keeps_a_destination_to_its_share() -> None:
    limits = {"initial_destination_concurrency": 2, "destination_concurrency_limit": 2}
    outcome = ran(listed(100), transport=limits | {"destination_recipient_limit": 10})
    assert outcome.simulated_s == 5.0  # ten deliveries of a second, two at once
    (destination,) = outcome.destinations
    assert destination.concurrency_max == 2
    assert destination.concurrency_mean == pytest.approx(2, abs=0.2)


def test_deliverers_are_a_bound_for_all() -> None:
    outcome = ran(listed(30), listed(30, B), client={"concurrency": 3}, transport={"destination_recipient_limit": 10})
    assert outcome.simulated_s == 2.0
    assert max(outcome.series.in_flight) <= 3


def test_a_kept_connection_saves_the_time_to_connect() -> None:
    one_at_a_time = {"destination_concurrency_limit": 1, "destination_recipient_limit": 1}
    hops = {"": hop(1, connect_s=1)}
    anew = ran(listed(10, count=1), hops=hops, transport=one_at_a_time | {"destination_recipient_limit": 2})
    kept = ran(
        listed(10),
        hops=hops,
        transport=one_at_a_time | {"destination_recipient_limit": 2},
        client={"connection_idle_s": 2},
    )
    assert (anew.simulated_s, kept.simulated_s) == (10.0, 6.0)


def test_who_waits_gets_the_process_of_a_kept_connection_when_it_is_closed() -> None:
    two = {"destination_recipient_limit": 2}
    outcome = ran(listed(4), hops={"": hop(1, processes=1)}, transport=two, client={"connection_idle_s": 2})
    assert outcome.simulated_s == 4.0  # the first is served for 1 s and kept for 2


def test_what_was_deferred_comes_back_after_its_retry_interval() -> None:
    outcome = ran(listed(4), hops={"": hop(1, rate_recipients=2, rate_period_s=100)})
    assert (outcome.deferrals, outcome.delivered, outcome.site_failures) == (2, 4, 0)
    assert outcome.simulated_s == 302.0  # 1 s, 300 s of minimal_backoff_time, 1 s
    first_only = ran(listed(4), hops={"": hop(1, rate_recipients=2, rate_period_s=100)}, first_attempts_only=True)
    assert (first_only.end, first_only.waiting, first_only.deferred_waiting) == ("drained", 2, 2)
    assert first_only.first_deferred_share == 0.5


def test_what_is_too_old_is_bounced() -> None:
    outcome = ran(listed(1), hops={"": hop(deferred_share=1)}, parameters={"maximal_queue_lifetime": 1000})
    assert (outcome.delivered, outcome.bounced, outcome.end) == (0, 1, "drained")
    assert 1000 <= outcome.simulated_s < 2000


def test_mail_of_a_dead_destination_is_deferred_without_a_try_until_it_is_tried_again() -> None:
    outcome = ran(listed(1, count=50), listed(1, at_s=100), hops={"": hop(0.1, dead=((0, 200),))})
    (destination,) = outcome.destinations
    assert outcome.entries < 50 + 50  # after the first cohort nobody tries
    assert destination.untried == outcome.deferrals_untried >= 40
    start, end = destination.dead[0]
    assert start == 0
    assert end >= 300  # minimal_backoff_time
    assert destination.dead_s == sum(end - start for start, end in destination.dead)
    assert (outcome.delivered, outcome.end) == (51, "drained")


def test_a_refusal_of_recipients_is_no_failure_of_the_site() -> None:
    outcome = ran(listed(1, count=100), hops={"": hop(0.1, deferred_share=0.5)})
    assert (outcome.site_failures, outcome.destinations[0].dead, outcome.deferrals_untried) == (0, [], 0)
    assert outcome.deferrals > 50


def test_new_and_deferred_mail_take_turns_into_a_full_active_set() -> None:
    old = mail({A: 1}, messages=500, deferred_s=0.001, age_s=1)
    new = mail({B: 1}, messages=500)
    outcome = ran(new, old, parameters={"message_active_limit": 10}, until_s=15.0)
    done = {each.name: each.delivered for each in outcome.destinations}
    assert max(outcome.series.active_messages) <= 10
    assert done[A] > 40
    assert done[B] > 40


def test_a_big_message_is_read_in_batches_and_small_ones_pass_it() -> None:
    small = listed(1, at_s=1, count=60, every_s=1)
    big = listed(20_000)
    limits = {"message_recipient_limit": 1000}
    outcome = ran(big, small, parameters=limits, transport={"recipient_limit": 500, "destination_concurrency_limit": 5})
    kinds = {each.recipients: each for each in outcome.delays}
    assert kinds["1"].max_s is not None
    assert kinds[">1000"].max_s is not None
    assert kinds["1"].max_s < kinds[">1000"].max_s / 5
    assert (outcome.delivered, outcome.end) == (20_060, "drained")


def test_a_destination_per_recipient_is_counted_under_its_next_hop() -> None:
    outcome = ran(listed(30, count=2), transport={"destination_recipient_limit": 1})
    (destination,) = outcome.destinations
    assert (destination.name, destination.delivered, destination.entries) == (A, 60, 60)
    assert destination.concurrency_max > 20  # each recipient has a window of its own


def test_a_parameter_set_at_a_time_holds_from_then_on_and_for_as_long_as_was_said() -> None:
    values = {
        "initial_destination_concurrency": 10,
        "destination_concurrency_limit": 10,
        "destination_recipient_limit": 2,
    }
    half = Change(at_s=30, until_s=60, scope=A, parameter="destination_concurrency_limit", value=5)
    outcome = ran(listed(2000), transport=values, changes=(half,))
    (destination,) = outcome.destinations
    busy = dict(zip(outcome.series.at_s, destination.busy, strict=True))
    assert (busy[30], busy[50], busy[90]) == (10, 5, 10)
    limit = dict(zip(outcome.series.at_s, destination.limit, strict=True))
    assert (limit[29], limit[50], limit[70]) == (10, 5, 10)


def test_a_change_the_scheduler_does_not_allow_is_refused() -> None:
    with pytest.raises(ValueError, match="destination_concurrency_limit"):
        ran(listed(), changes=(Change(scope=A, parameter="destination_concurrency_limit", value=0),))


def test_a_suspended_destination_waits_and_the_simulation_says_that_nothing_more_can_happen() -> None:
    for_ever = Change(scope=A, parameter="suspended_until", value=float("inf"))
    outcome = ran(listed(3), listed(1, B), changes=(for_ever,))
    assert (outcome.end, outcome.delivered, outcome.untried) == ("nothing more can happen", 1, 3)
    a_while = Change(scope=A, parameter="suspended_until", value=50.0)
    assert ran(listed(3), changes=(a_while,)).simulated_s == 51.0


def test_it_ends_at_its_time_and_after_its_events() -> None:
    endless = mail({A: 1}, per_s=10)
    outcome = ran(endless, until_s=100.0)
    assert (outcome.end, outcome.simulated_s) == ("until_s", 100.0)
    assert 900 < outcome.messages_in < 1100
    bounded = ran(endless, events_max=500)
    assert (bounded.end, bounded.events) == ("events_max", 501)
    assert balanced(bounded)


def test_no_mail_at_all_is_drained_at_once() -> None:
    outcome = simulate(Scenario(), chances(1))
    assert (outcome.end, outcome.recipients_in, outcome.simulated_s) == ("drained", 0, 0.0)


def test_the_summary_of_a_live_queue_drains() -> None:
    size = {
        "lanes": {
            "incoming.0": {"messages": 20, "recipients": 30},
            "retry.300": {"messages": 10, "recipients": 10},
            "hold": {"messages": 5, "recipients": 5},
        },
        "destinations": {A: 25, B: 10, "": 10},
    }
    backlog = Backlog(queued=QueuedMail.of(live_size(**size)))
    outcome = simulate(Scenario(backlog=backlog, next_hops={"": hop()}), chances(1))
    assert (outcome.messages_in, outcome.recipients_in, outcome.end) == (30, 40, "drained")
    assert outcome.drained_s == outcome.simulated_s
    assert outcome.simulated_s > 250  # the retry lane comes due evenly


@pytest.mark.parametrize("servers", [8, 16])
def test_one_bad_server_of_k_stops_a_window_of_1_n_near_k_and_not_one_of_1_4(servers: int) -> None:
    """ "Limitations of less-than-1 per delivery feedback", SCHEDULER_README."""

    def widest(feedback: str) -> float:
        values: dict[str, float | str] = {
            "destination_concurrency_limit": 100,
            "destination_recipient_limit": 2,
            "destination_concurrency_failed_cohort_limit": 10,
            FEEDBACK.format("positive"): feedback,
            FEEDBACK.format("negative"): feedback,
        }
        server = hop("exponential(1)", connect_s=0.05, servers=servers, servers_bad=1, balancing="round robin")
        changes = tuple(Change(scope="smtp", parameter=name, value=value) for name, value in values.items())
        outcome = ran(listed(10_000), hops={"": server}, changes=changes, first_attempts_only=True)
        assert outcome.first_deferred_share == pytest.approx(1 / servers, rel=0.05)
        return outcome.destinations[0].concurrency_max

    assert servers / 2 <= widest("1/concurrency") <= servers + 1
    assert widest("0.25") == 100


def test_backoff_times_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="backoff"):
        simulate(scenario(listed(), changes=(Change(parameter="maximal_backoff_time", value=1),)), chances(1))
