"""Queue ids: unique, short, sortable by arrival."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailcore.bounce import bounce_queue_id
from mailcore.log.index import ID_BYTES_MAX
from mailcore.queue.queue_id import CONTROL, PICKUP, SHARDS, QueueIds, arrival_of, shard_of

WRITERS = 1024


def test_ids_sort_as_they_were_given_out_whatever_the_clock_does() -> None:
    times = itertools.chain([5.0, 5.0, 4.0, 6.0, 5.5], itertools.repeat(1.0))
    ids = QueueIds(3, lambda: next(times))
    given_out = [ids.next() for _ in range(50)]
    assert sorted(set(given_out)) == given_out


@given(st.lists(st.floats(0, 4e9), min_size=2, max_size=20))
def test_ids_of_different_times_sort_by_time(times: list[float]) -> None:
    given_out = [(time, QueueIds(0, lambda now=time: now).next()) for time in times]  # type: ignore[misc]
    for (time, one), (later, other) in itertools.pairwise(sorted(given_out)):
        assert one <= other
        assert (one == other) == (int(time * 1e6) == int(later * 1e6) or max(time, later) < 2e-6)


def test_writers_never_give_out_the_same_id() -> None:
    ids = {QueueIds(writer, lambda: 1_700_000_000.0).next() for writer in range(WRITERS)}
    assert len(ids) == WRITERS


@given(st.floats(1, 4e9))
def test_the_arrival_is_in_the_id(time: float) -> None:
    assert arrival_of(QueueIds(7, lambda: time).next()) == pytest.approx(time, abs=2e-6)


@pytest.mark.parametrize("text", ["", "ABC", "0G12345678", "0G123456789I1", "0g1234567890a", "é" * 13])
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a queue id"):
        arrival_of(text)


@pytest.mark.parametrize("writer", [-1, WRITERS])
def test_a_writer_beyond_two_characters_is_refused(writer: int) -> None:
    with pytest.raises(ValueError, match="writer"):
        QueueIds(writer, lambda: 0.0)


# -- a queue that is one of several


def test_an_id_of_a_queue_that_is_alone_is_what_it_always_was() -> None:
    assert QueueIds(0, lambda: 1_700_000_000.0).next() == "1GA4GC1WG0000"
    assert QueueIds(PICKUP, lambda: 1_700_000_000.0).next() == "1GA4GC1WG00ZX"


@given(
    st.sets(
        st.tuples(st.floats(1.69e9, 4e9), st.integers(0, 63), st.sampled_from([0, 1, 63, PICKUP, CONTROL])),
        min_size=2,
        max_size=12,
    )
)
def test_no_two_ids_of_any_shards_and_writers_are_equal_and_the_arrival_is_in_each(
    given_out: set[tuple[float, int, int]],
) -> None:
    different = {(int(time * 1e6), shard, writer) for time, shard, writer in given_out}
    ids = set()
    for micros, shard, writer in different:
        queue_id = QueueIds(writer, lambda micros=micros: (micros + 0.5) / 1e6, shard=shard).next()  # type: ignore[misc]
        assert len(queue_id) == 13
        assert arrival_of(queue_id) == pytest.approx(micros / 1e6, abs=2e-6)
        assert (queue_id[0] >= "C") == (shard > 0)
        assert shard_of(queue_id) == shard_of(bounce_queue_id(queue_id, 3)) == shard
        ids.add(queue_id)
    assert len(ids) == len(different)


@given(st.lists(st.floats(0, 4e9), min_size=2, max_size=20))
def test_ids_of_a_shard_sort_as_they_were_given_out_whatever_the_clock_does(times: list[float]) -> None:
    clock = iter(times)
    ids = QueueIds(5, lambda: next(clock), shard=9)
    given_out = [ids.next() for _ in times]
    assert sorted(set(given_out)) == given_out
    assert {each[0] >= "C" for each in given_out} == {True}


@pytest.mark.parametrize("shard", [-1, SHARDS])
def test_a_shard_beyond_six_bits_is_refused(shard: int) -> None:
    with pytest.raises(ValueError, match="shard"):
        QueueIds(0, lambda: 0.0, shard=shard)


def test_an_id_and_its_bounces_fit_into_the_index() -> None:
    longest = QueueIds(WRITERS - 1, lambda: 3e10).next()
    assert len(longest) == 13
    assert len(f"{longest}B{999_999}") <= ID_BYTES_MAX


def test_the_report_about_a_bounce_fits_too_and_no_two_have_the_same_id() -> None:
    """Five days of retries are 108 generations: of the message, and of its bounce. The manager ended at such an id."""
    longest = QueueIds(WRITERS - 1, lambda: 3e10).next()
    passes = (0, 1, 9, 10, 31, 32, 108, 999, 1024, 32_767)
    ids = {bounce_queue_id(f"{longest}B{first}", second) for first in passes for second in passes}
    assert len(ids) == len(passes) ** 2
    assert {len(each) for each in ids} == {ID_BYTES_MAX}
    assert not ids & {bounce_queue_id(longest, each) for each in range(1000)}
    for beyond in (
        bounce_queue_id(f"{longest}B32768", 0), bounce_queue_id(f"{longest}B0", 32_768), bounce_queue_id(min(ids), 0),
    ):  # fmt: skip
        assert beyond == "", "there is none"
