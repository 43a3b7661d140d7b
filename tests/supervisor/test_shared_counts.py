"""Counters that processes share: over a sliding window, seen by all, and not pushed out by a flood of names."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from mailcore.supervisor.shared_counts import SLOTS, Counts, make_counts


class Clock:
    def __init__(self) -> None:
        self.now = 36_000.0  # a period of an hour has just begun

    def __call__(self) -> float:
        return self.now


def test_a_window_slides() -> None:
    clock = Clock()
    rates = Counts(None, 600, clock).rates
    assert rates.read("alice") == (0.0, 0.0)
    for _ in range(8):
        rates.add("alice", 1.0, 2.0)
    assert rates.read("alice") == (8.0, 16.0)
    assert rates.read("bob") == (0.0, 0.0)
    clock.now += 3600 + 1800
    assert rates.read("alice") == (4.0, 8.0)
    rates.add("alice")
    assert rates.read("alice") == (5.0, 8.0)
    clock.now += 3600
    assert rates.read("alice") == (0.5, 0.0)
    clock.now += 2 * 3600
    assert rates.read("alice") == (0.0, 0.0)


def test_what_is_taken_off_never_goes_below_zero() -> None:
    failures = Counts(None, 600, Clock()).failures
    failures.add("x", -1.0)
    failures.add("x")
    assert failures.read("x") == (1.0, 0.0)


def test_tables_do_not_touch_each_other() -> None:
    counts = Counts(None, 600, Clock())
    counts.rates.add("x")
    assert counts.failures.read("x") == counts.known.read("x") == (0.0, 0.0)


def test_processes_share_them() -> None:
    descriptor = make_counts()
    try:
        mine = Counts(descriptor, 600, lambda: 36_000.0)
        program = (
            "import sys; from mailcore.supervisor.shared_counts import Counts; "
            "counts = Counts(int(sys.argv[1]), 600, lambda: 36_000.0); counts.rates.add('alice', 3.0)"
        )
        subprocess.run([sys.executable, "-c", program, str(descriptor)], pass_fds=[descriptor], check=True, timeout=60)
        mine.rates.add("alice")
        assert mine.rates.read("alice") == (4.0, 0.0)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("amounts", [(1.0, 0.0), (0.0, 1.0)])
def test_a_flood_of_names_does_not_push_out_what_counts_most(amounts: tuple[float, float]) -> None:
    """Either counter may be the only one in use: of errors alone, the second one is."""
    failures = Counts(None, 600, Clock()).failures
    for _ in range(30):
        failures.add("network 192.0.2.0", *amounts)
    for number in range(3 * SLOTS):
        failures.add(f"user invented-{number}", *amounts)
    assert failures.read("network 192.0.2.0") == pytest.approx((30 * amounts[0], 30 * amounts[1]))
