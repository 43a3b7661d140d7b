"""Histograms and refusals, from the process that counts them to the text; prometheus-client reads the text."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from mailcore.envelope import Status, Verdict
from mailcore.frames import FrameDecoder, Measured
from mailcore.histogram import DELAY_BOUNDS_S, SYNC_BOUNDS_S, Histogram
from mailcore.log.timed_disk import TimedDisk
from mailcore.manager import measured
from mailcore.manager_answers import State
from mailcore.metrics.exposition import Family, text_of
from mailcore.metrics.families import Answers, families
from mailcore.receiver.manager_link import ManagerLink
from mailcore.receiver.measuring import REASONS_MAX, Measuring, reason_of
from tests.answers import complete
from tests.eventually import eventually

PARSERS: list[tuple[bool, Callable[[str], Iterable[Any]]]] = [(False, prometheus), (True, open_metrics)]


def verdict(status: Status) -> Verdict:
    return Verdict(0, status, "2.0.0", "ok")


def counted() -> measured.Measured:
    """What a manager has counted of itself and of two receivers."""
    counts = measured.Measured()
    counts.syncs.observe(0.0004)
    for _ in range(2):
        syncs = [0] * (len(SYNC_BOUNDS_S) + 1)
        syncs[0], syncs[-1] = 3, 1
        counts.report(Measured({"5xx 5.7.1": 2, "4xx 450": 1}, syncs, 20.5))
    counts.delivered("smtp", [verdict(Status.DELIVERED), verdict(Status.DEFERRED), verdict(Status.DELIVERED)], 0.7)
    counts.delivered("smtp", [verdict(Status.DELIVERED)], 1e9)
    counts.delivered("lmtp", [verdict(Status.BOUNCED)], 1.0)
    return counts


@pytest.mark.parametrize(("is_open", "parse"), PARSERS)
def test_what_was_counted_is_read_by_prometheus_own_parsers(
    is_open: bool, parse: Callable[[str], Iterable[Any]]
) -> None:
    answer = msgspec.convert(msgspec.to_builtins(counted().answer()), dict)
    state = msgspec.convert(complete(State, {"measured": answer}), State)
    odd = Family("waypost_odd", 'a\\b\n"c"')
    odd.add(1.5, destination='a"b\\c\nwaypost_up 0')
    odd.add(2e300, destination="\udc80")
    text = text_of([*families(Answers(state=state), 0.0, 5), odd], is_open=is_open)
    read = {family.name: family for family in parse(text)}
    assert {sample.value for sample in read["waypost_odd"].samples} == {1.5, 2e300}
    refusals = {(s.labels["class"], s.labels["reason"]): s.value for s in read["waypost_refusals"].samples}
    assert refusals == {("5xx", "5.7.1"): 4, ("4xx", "450"): 2}
    assert read["waypost_refusals"].type == "counter"
    syncs, delays = read["waypost_sync_seconds"], read["waypost_delivery_delay_seconds"]
    assert syncs.type == delays.type == "histogram"
    of_receivers = {s.labels.get("le", s.name): s.value for s in syncs.samples if s.labels["process"] == "receiver"}
    assert of_receivers["0.0005"] == of_receivers["10.0"] == 6
    assert of_receivers["+Inf"] == of_receivers["waypost_sync_seconds_count"] == 8
    assert of_receivers["waypost_sync_seconds_sum"] == 41
    assert {s.labels["transport"] for s in delays.samples} == {"smtp"}
    of_smtp = {s.labels["le"]: s.value for s in delays.samples if "le" in s.labels}
    assert len(of_smtp) == len(DELAY_BOUNDS_S) + 1
    assert (of_smtp["0.5"], of_smtp["1.0"], of_smtp["432000.0"], of_smtp["+Inf"]) == (0, 2, 2, 3)


def test_without_a_page_nothing_is_shown_and_not_as_zero() -> None:
    state = msgspec.convert(complete(State, {}), State)
    assert state.measured is None
    text = text_of(families(Answers(state=state), 0.0, 5))
    assert "waypost_sync_seconds" not in text
    assert "waypost_refusals" not in text


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("550 5.7.1 no", "5xx 5.7.1"),
        ("450 4.7.25 later", "4xx 4.7.25"),
        ("554 no", "5xx 554"),
        ("421", "4xx 421"),
        ("550-5.1.1 first\r\n550 5.1.1 second", "5xx 5.1.1"),
        ("550 4.7.1 contradicts", "5xx 550"),
        ("550 5.7.1.1.1 too long", "5xx 550"),
        ("hello", "5xx other"),
    ],
)
def test_the_reason_of_a_reply(reply: str, reason: str) -> None:
    assert reason_of(reply) == reason


async def test_reasons_that_a_milter_invents_are_bounded() -> None:
    measuring = Measuring(asyncio.get_running_loop())
    for number in range(1000):
        measuring.refused(f"550 5.{number % 100}.{number} no")
    reported = await reported_by(measuring)
    assert len(reported.refusals) == REASONS_MAX + 1
    assert sum(reported.refusals.values()) == 1000
    counts = measured.Measured()
    for number in range(1000):
        counts.report(Measured({f"5xx 5.0.{number}": 1}, [], 0.0))
    counts.report(Measured({"4xx 4.0.1": 3}, [], 0.0))
    refusals = counts.answer().refusals
    assert len(refusals) <= measured.REASONS_MAX + 2
    assert sum(refusals.values()) == 1003
    assert refusals["4xx other"] == 3, "a refusal for now is not one for good"


async def reported_by(measuring: Measuring) -> Measured:
    link = ManagerLink(Path("/nonexistent"), 0, "incoming.0", 0, asyncio.get_running_loop())
    measuring.report(link)  # there is no manager: it stays counted
    frames: list[bytes] = []

    class Open(asyncio.Transport):
        def write(self, data: bytes | bytearray | memoryview) -> None:
            frames.append(bytes(data))

        def is_closing(self) -> bool:
            return False

    connection = link.connection()
    connection.connection_made(Open())
    measuring.report(link)
    await eventually(lambda: bool(frames))
    (reported,) = [each for each in FrameDecoder().feed(b"".join(frames)) if isinstance(each, Measured)]
    measuring.report(link)  # nothing is new
    return reported


async def test_syncs_of_a_receiver_are_timed_and_reported_once(tmp_path: Path) -> None:
    measuring = Measuring(asyncio.get_running_loop())
    disk = TimedDisk(measuring.syncs.observe)
    fd = disk.create(str(tmp_path / "file"))
    try:
        for _ in range(3):
            os.write(fd, b"x")
            disk.sync(fd)
    finally:
        os.close(fd)
    with pytest.raises(OSError, match="Bad file"):
        disk.sync(fd)
    reported = await reported_by(measuring)
    assert sum(reported.syncs) == 3
    assert 0 < reported.syncs_s < 60


def test_a_value_at_a_bound_is_below_it_and_counts_of_other_bounds_are_left_out() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.0, 1.0, 1.5, 2.0, 3.0):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 1]
    histogram.add([1], 5.0)
    assert histogram.take() == ([2, 2, 1], 7.5)
    assert histogram.take() == ([0, 0, 0], 0.0)
