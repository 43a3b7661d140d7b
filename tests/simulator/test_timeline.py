"""What is gathered stays small and adds up, however long the simulation is."""

from __future__ import annotations

import random
from statistics import quantiles

import pytest

from mailcore.simulator.timeline import POINTS_MAX, Delays, Point, Seen, Timeline


def point(at_s: float, delivered: int, seen: dict[str, Seen] | None = None) -> Point:
    return Point(at_s, delivered + 5, delivered, 0, 0, 0, 0, seen or {})


def test_points_are_bounded_and_counts_add_up() -> None:
    timeline = Timeline()
    for second in range(100_000):
        if second >= timeline.next_at:
            timeline.add(second, point(second - 0.5, second))
    timeline.close(point(100_000.5, 100_000))
    series = timeline.series()
    assert POINTS_MAX / 2 <= len(series.at_s) <= POINTS_MAX
    assert sum(series.delivered) == 100_000
    steps = {after - before for before, after in zip(series.at_s[:-2], series.at_s[1:-1], strict=True)}
    assert len(steps) == 1
    assert series.waiting[-1] == 5


def test_a_long_gap_is_filled_with_how_things_stood() -> None:
    timeline = Timeline()
    timeline.add(1_000_000.0, point(0.5, 7, {"a": Seen(5, 20, 2, 1.0)}))
    timeline.close(point(1_000_000.0, 7))
    series = timeline.series()
    assert sum(series.delivered) == series.delivered[0] == 7
    assert len(series.at_s) <= POINTS_MAX
    areas = [each.seen["a"].area for each in timeline.points[1:-1]]
    assert areas == pytest.approx([1.0 + 2 * (each.at_s - 0.5) for each in timeline.points[1:-1]])


def test_nothing_at_all_is_one_point() -> None:
    timeline = Timeline()
    timeline.close(point(0.0, 0))
    assert timeline.series().at_s == [0.0]


def test_delays_are_told_by_class_and_within_their_precision() -> None:
    delays, chance = Delays(), random.Random(5)
    values = [chance.lognormvariate(2, 1.5) for _ in range(5000)]
    for value in values:
        delays.finish(delays.begin(1), value)
    delays.begin(11)
    delays.finish(delays.begin(5000), 0.0)
    ones, elevens, thousands = delays.classes()
    assert (ones.recipients, ones.messages, ones.unfinished, ones.max_s) == ("1", 5000, 0, max(values))
    exact = quantiles(values, n=100)
    assert ones.p50_s == pytest.approx(exact[49], rel=0.04)
    assert ones.p90_s == pytest.approx(exact[89], rel=0.04)
    assert ones.p99_s == pytest.approx(exact[98], rel=0.06)
    assert (elevens.recipients, elevens.unfinished, elevens.p50_s, elevens.max_s) == ("11-100", 1, None, None)
    assert (thousands.recipients, thousands.p50_s, thousands.max_s) == (">1000", 0.0, 0.0)


@pytest.mark.parametrize(
    ("recipients", "name"),
    [(1, "1"), (2, "2-10"), (10, "2-10"), (11, "11-100"), (100, "11-100"), (1000, "101-1000"), (1001, ">1000")],
)
def test_a_message_is_in_the_class_of_its_recipients(recipients: int, name: str) -> None:
    delays = Delays()
    delays.begin(recipients)
    assert [each.recipients for each in delays.classes()] == [name]
