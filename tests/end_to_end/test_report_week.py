"""A week of the real appliance on a clock that is set, in UTC and in a zone half an hour beside it, by the real pipeline."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.week import faults, live, make_reports


@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata"])
async def test_every_day_balances_and_the_week_is_what_the_next_hops_got(tmp_path: Path, zone: str) -> None:
    week = await live(tmp_path, zone)
    make_reports(week)
    assert faults(week) == []
