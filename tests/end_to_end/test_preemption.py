"""Single messages beside a big one to the same next hop, in the daemon: they slip in, unless preemption is off."""

from __future__ import annotations

from pathlib import Path

from bench.preemption import NO_PREEMPTION, beside_a_big_one

RECIPIENTS = 600
SINGLES = 10


async def test_single_messages_slip_past_a_big_one(tmp_path: Path) -> None:
    run = await beside_a_big_one(tmp_path, None, recipients=RECIPIENTS, singles=SINGLES)
    assert run.big_left > SINGLES, "all was over before the last single one was sent: a test of nothing"
    assert run.singles.lost == 0
    assert run.ahead < 0.75


async def test_without_preemption_they_wait_for_all_of_it(tmp_path: Path) -> None:
    run = await beside_a_big_one(tmp_path, NO_PREEMPTION, recipients=RECIPIENTS, singles=SINGLES)
    assert run.big_left > SINGLES, "all was over before the last single one was sent: a test of nothing"
    assert run.singles.lost == 0
    assert run.ahead > 0.95
