"""Leases with simulated clocks: no order of renewals, delays and stops lets two nodes hold one shard's lease.

Proves law: lease-by-own-clock (docs/laws.md).
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mailcore.replication.lease import LEASE_S, BeatWatch, Lease


def test_a_lease_holds_from_before_its_renewal_was_sent() -> None:
    lease = Lease(beat=7)
    assert not lease.holds(0.0)
    assert lease.send(100.0) == (7, 8)
    assert not lease.holds(100.0), "nothing has returned"
    lease.is_renewed(8)
    assert lease.holds(100.0 + LEASE_S - 0.001)
    assert not lease.holds(100.0 + LEASE_S)
    assert lease.send(110.0) == (8, 9)
    assert lease.send(111.0) == (8, 10), "an attempt without an answer keeps its beat"
    lease.is_renewed(10)
    assert lease.holds(111.0 + 5), "an owner whose lease ran out renews, and continues"
    lease.is_lost()
    assert not lease.holds(111.0)


def test_a_node_takes_over_only_what_it_saw_silent_all_the_time() -> None:
    watch = BeatWatch()

    def read(beat: int, start: float, stop: float, step: float = 0.5) -> bool:
        at = start
        while at <= stop:
            watch.reads(1, beat, at, at + 0.01)
            at += step
        return watch.is_silent()

    assert not read(5, 0, 9.0)
    assert read(5, 9.5, 9.5)
    assert not read(6, 10, 18)
    watch.fails()
    assert not read(6, 18.5, 27), "what could not be read is not silence"
    assert not read(6, 40, 48.5), "a reader that was stopped has seen nothing meanwhile"
    assert read(6, 49, 49.5)
    assert not BeatWatch().is_silent()


@given(
    st.lists(st.tuples(st.floats(0.0, 12.0), st.floats(0.0, 5.0), st.floats(0.0, 5.0), st.booleans()), max_size=30),
    st.floats(0.0, 3.0),
    st.floats(0.95, 1.05),
    st.floats(-1e6, 1e6),
)
def test_a_takeover_never_comes_before_the_lease_of_the_owner_is_over(
    renewals: list[tuple[float, float, float, bool]], read_delay: float, rate: float, offset: float
) -> None:
    """Renewals are sent, committed and answered with any delay; the other node's clock differs, also in its rate."""
    lease = Lease(beat=0)
    committed: list[tuple[float, int]] = [(0.0, 0)]  # true time, beat
    held: list[tuple[float, float]] = []  # from the answer until the lease ends
    now = 0.0
    for pause, until_commit, until_answer, is_answered in renewals:
        now += pause
        _, beat = lease.send(now)
        committed.append((now + until_commit, beat))
        now += until_commit + until_answer
        if is_answered:
            lease.is_renewed(beat)
            held.append((now, lease.until))
    watch = BeatWatch()
    asked = 0.0
    while asked < now + 40:
        answered = asked + read_delay / 10
        beat = max(beat for at, beat in committed if at <= asked)
        watch.reads(1, beat, asked * rate + offset, answered * rate + offset)
        if watch.is_silent():
            # The takeover names the beat: it does nothing if another one was committed meanwhile.
            taken_at = answered
            if beat == max(beat for at, beat in committed if at <= taken_at):
                assert all(until <= taken_at for start, until in held if start <= taken_at)
                # A renewal that comes later finds another epoch, so the lease ends.
                return
        asked = answered + 0.5
