"""A next hop: who is served, who waits, who is refused, and when each ends."""

from __future__ import annotations

import math
import random

import pytest

from mailcore.simulator.next_hop import NextHop
from mailcore.simulator.site import Client, Flight, Site
from tests.simulator.sample_queue import hop


def site_of(model: NextHop, **client: float) -> Site:
    return Site(model, Client(**({"connection_idle_s": 0.0} | client)), random.Random(1))  # type: ignore[arg-type]


def begun(site: Site, now: float, recipients: int = 1) -> tuple[Flight, float | None]:
    flight = Flight(recipients)
    return flight, site.begin(flight, now)


def test_a_delivery_takes_connection_transaction_and_recipients() -> None:
    site = site_of(hop(1, connect_s=0.5))
    assert begun(site, 10.0)[1] == 11.5
    by_recipient = site_of(NextHop(recipient_s=hop(2).transaction_s, transaction_s=hop(1).transaction_s))
    assert begun(by_recipient, 0.0, recipients=3)[1] == 7.0


def test_who_finds_no_process_waits_and_is_served_in_turn() -> None:
    site = site_of(hop(1, processes=1, listen=2))
    first, ends = begun(site, 0.0)
    (second, none), (third, neither) = begun(site, 0.1), begun(site, 0.2)
    assert (ends, none, neither, site.busy) == (1.0, None, None, 1)
    site.end(first, 1.0)
    assert site.started == [(2.0, second)]
    site.started.clear()
    site.end(second, 2.0)
    assert site.started == [(3.0, third)]
    assert (site.busy, third.failure) == (1, "")


@pytest.mark.parametrize(("listen_full", "seconds"), [("dropped", 30.0), ("accepted", 300.0)])
def test_beyond_the_listen_queue_a_connection_times_out(listen_full: str, seconds: float) -> None:
    site = site_of(hop(1, processes=1, listen=1, listen_full=listen_full))
    begun(site, 0.0)
    begun(site, 0.0)
    third, ends = begun(site, 5.0)
    assert (ends, bool(third.failure), third.holds) == (5.0 + seconds, True, False)
    site.end(third, 5.0 + seconds)
    assert (site.busy, site.started) == (1, [])


def test_who_waits_too_long_for_the_greeting_fails() -> None:
    site = site_of(hop(1000, processes=1, listen=5))
    begun(site, 0.0)
    waiting = begun(site, 10.0)[0]
    later = begun(site, 20.0)[0]
    assert site.wake_at() == 310.0
    site.expire(310.0)
    assert site.started == [(310.0, waiting)]
    assert "greeting" in waiting.failure
    assert (site.wake_at(), later.failure) == (320.0, "")


def test_the_limiter_answers_421_at_once_and_takes_no_process() -> None:
    site = site_of(hop(1, processes=10, connections_max=2))
    flights = [begun(site, 0.0) for _ in range(3)]
    assert [ends for _, ends in flights] == [1.0, 1.0, 0.0]
    assert flights[2][0].failure.startswith("421")
    site.end(flights[2][0], 0.0)
    assert site.busy == 2
    site.end(flights[0][0], 1.0)
    assert begun(site, 1.0)[0].failure == ""


def test_a_rate_limit_defers_recipients_or_ends_the_connection() -> None:
    soft = site_of(hop(1, rate_recipients=5, rate_period_s=60))
    assert [begun(soft, at, 3)[0].deferred for at in (0.0, 1.0, 2.0, 60.0)] == [0, 1, 3, 0]
    hard = site_of(hop(1, rate_recipients=5, rate_period_s=60, rate_reply="421"))
    flights = [begun(hard, at, 5)[0] for at in (0.0, 1.0, 61.0)]
    assert [bool(flight.failure) for flight in flights] == [False, True, False]


def test_shares_of_recipients_are_refused() -> None:
    site = site_of(hop(1, deferred_share=0.3, bounced_share=0.1))
    flight = begun(site, 0.0, 10_000)[0]
    assert flight.deferred == pytest.approx(3000, rel=0.1)
    assert flight.bounced == pytest.approx(1000, rel=0.1)


@pytest.mark.parametrize("balancing", ["random", "round robin"])
def test_bad_servers_drop_their_share_of_connections(balancing: str) -> None:
    site = site_of(hop(1, servers=4, servers_bad=1, balancing=balancing))
    failed = [bool(begun(site, float(at))[0].failure) for at in range(1000)]
    assert sum(failed) == pytest.approx(250, rel=0.15 if balancing == "random" else 0)


@pytest.mark.parametrize(("how", "seconds"), [("refused", 0.2), ("silent", 30.0)])
def test_a_dead_site_is_reached_by_nobody(how: str, seconds: float) -> None:
    site = site_of(hop(1, connect_s=0.2, dead=((10.0, 20.0),), dead_how=how), connection_idle_s=60)
    alive, ends = begun(site, 0.0)
    assert ends == 1.2
    site.end(alive, 1.2)
    dead, ends = begun(site, 10.0)
    assert (ends, bool(dead.failure)) == (10.0 + seconds, True)
    assert begun(site, 20.0)[1] == 21.2  # a connection of its own: the kept one is gone


def test_a_kept_connection_is_used_again_until_it_is_closed() -> None:
    site = site_of(hop(1, connect_s=0.5, processes=1), connection_idle_s=2, connection_uses_max=2)
    first = begun(site, 0.0)[0]
    site.end(first, 1.5)
    assert (site.busy, len(site.idle)) == (1, 1)
    second, ends = begun(site, 2.0)
    assert (ends, second.uses) == (3.0, 1)
    site.end(second, 3.0)  # used as often as it may be
    assert (site.busy, len(site.idle)) == (0, 0)
    third = begun(site, 3.0)[0]
    site.end(third, 4.5)
    assert begun(site, 7.0)[1] == 8.5  # it was closed at 6.5


def test_a_kept_connection_gives_its_process_to_who_waits_when_it_is_closed() -> None:
    site = site_of(hop(1, processes=2, listen=5), connection_idle_s=2)
    first, _ = begun(site, 0.0)
    begun(site, 0.0)
    waiting, none = begun(site, 0.0)
    assert none is None
    site.end(first, 1.0)
    assert (site.started, site.wake_at()) == ([], 3.0)
    site.expire(3.0)
    assert site.started == [(4.0, waiting)]


def test_without_anybody_waiting_it_never_needs_to_be_woken() -> None:
    site = site_of(hop(1, processes=2), connection_idle_s=2)
    site.end(begun(site, 0.0)[0], 1.0)
    assert site.wake_at() == math.inf


@pytest.mark.parametrize("values", [{"servers": 2, "servers_bad": 3}, {"deferred_share": 0.6, "bounced_share": 0.5}])
def test_values_that_contradict_each_other_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must not exceed"):
        hop(1, **values)
