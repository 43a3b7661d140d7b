"""The benchmark of an hour without a receiver (bench/webhook_outage.py), with a minute of it. It fails if an event is
missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.webhook_outage import Times, outage


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_a_receiver_that_was_away_and_then_failed_in_every_way_has_all_events(tmp_path: Path) -> None:
    times = Times(away_s=40, trouble_s=8, kill_every_s=8, rate=20, timeout_s=1.0, retry_s_max=2)
    report = await outage(tmp_path, times)
    assert report.kills >= 4
    assert report.again > 0
    assert report.events > report.messages > 0
