"""Ids of traces: computed from the queue ID, or taken from the program that sent the mail."""

from __future__ import annotations

from hashlib import sha256

import pytest

from mailcore.traces.context import Contexts

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GIVEN = f"00-{TRACE}-{PARENT}-01"


def test_ids_follow_from_queue_id_and_host() -> None:
    contexts = Contexts("mx.example.net", 1.0, from_tag=False)
    digest = sha256(b"0123456789ABC@mx.example.net").hexdigest()
    assert contexts.of("0123456789ABC", GIVEN) == (digest[:32], digest[32:48], "", True)
    assert Contexts("other.example.net", 1.0, from_tag=False).of("0123456789ABC", "").trace_id != digest[:32]
    names = {
        contexts.span_id("Q", lane, at, name) for lane in ("a", "b") for at in (1, 2) for name in ("queue", "deliver")
    }
    assert len(names) == 8


@pytest.mark.parametrize(
    "tag", [GIVEN, f"01-{TRACE}-{PARENT}-01-more", f"cc-{TRACE}-{PARENT}-09", f"00-{TRACE}-{PARENT}-03"]
)
def test_a_traceparent_is_continued(tag: str) -> None:
    context = Contexts("h", 1.0, from_tag=True).of("Q", tag)
    assert (context.trace_id, context.parent_id, context.sampled) == (TRACE, PARENT, True)
    assert context.root_id != PARENT


def test_a_traceparent_that_is_not_sampled_has_no_spans_here() -> None:
    assert not Contexts("h", 1.0, from_tag=True).of("Q", f"00-{TRACE}-{PARENT}-00").sampled


@pytest.mark.parametrize(
    "tag",
    ["", "spring sale", f"ff-{TRACE}-{PARENT}-01", f"00-{'0' * 32}-{PARENT}-01", f"00-{TRACE}-{'0' * 16}-01",
     f"00-{TRACE.upper()}-{PARENT}-01", f"00-{TRACE}-{PARENT}-01-more", f"00-{TRACE}-{PARENT}", f"{GIVEN}\n"],
)  # fmt: skip
def test_what_is_not_a_traceparent_counts_as_none(tag: str) -> None:
    contexts = Contexts("h", 1.0, from_tag=True)
    assert contexts.of("Q", tag) == contexts.of("Q", "")


def test_the_ratio_chooses_by_trace_id_as_opentelemetry_does() -> None:
    none, half, every = (Contexts("h", ratio, from_tag=True) for ratio in (0.0, 0.5, 1.0))
    ids = [f"{number:013}" for number in range(2000)]
    assert not any(none.of(each, "").sampled for each in ids)
    assert all(every.of(each, "").sampled for each in ids)
    assert 900 < sum(half.of(each, "").sampled for each in ids) < 1100
    low, high = f"{'f' * 16}7{'f' * 15}", f"{'0' * 16}8{'0' * 15}"  # TraceIdRatioBased looks at the lower 64 bits
    assert half.of("Q", f"00-{low}-{PARENT}-01").sampled
    assert not half.of("Q", f"00-{high}-{PARENT}-01").sampled
