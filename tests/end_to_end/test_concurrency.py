"""A server that answers 421 above five connections, and the daemon's window: what is deferred goes by the feedback.

The share depends on how evenly deliveries end, and so on a machine with nothing beside it: these run with --long. In the quick
form the simulator keeps the theory (tests/simulator/test_concurrency_tests.py).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.concurrency import limited

RECIPIENTS = 400  # two a delivery
RECIPIENT_S = 0.08  # long beside the stalls of a busy machine


@pytest.mark.long
@pytest.mark.parametrize(
    ("feedback", "theory"), [("1/concurrency", 1 / 6), ("1/sqrt_concurrency", 1 / 4), ("1", 1 / 2)]
)
async def test_the_share_deferred_is_near_the_theory(tmp_path: Path, feedback: str, theory: float) -> None:
    run = await limited(tmp_path, feedback, recipients=RECIPIENTS, recipient_s=RECIPIENT_S)
    assert run.untried == 0, "the destination was taken for dead"
    assert theory * 0.75 < run.share < theory * 1.35  # verdicts that come in heaps, on a busy machine, defer more
    assert 4.9 <= run.window <= 7.0  # it stays by the limit of 5
