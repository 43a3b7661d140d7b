"""More messages are due for a next hop that never answers than the active set holds: new mail to others goes through."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.slow_hop import beside_a_slow_hop
from tests.eventually import PATIENCE_S

NEVER_S = 3600.0
QUEUED = 300
ACTIVE_LIMIT = 100
NEW = 40


@pytest.mark.long
async def test_new_mail_goes_through_though_the_active_set_is_full_of_a_slow_next_hop(tmp_path: Path) -> None:
    run = await beside_a_slow_hop(
        tmp_path, queued=QUEUED, active_limit=ACTIVE_LIMIT, service_s=NEVER_S, messages=NEW, patience_s=PATIENCE_S
    )
    assert run.active == ACTIVE_LIMIT // 2  # deferred_active_share of it: as much as deferred mail may take
    assert (run.filling.lost, run.full.lost) == (0, 0)
    assert run.slow_arrived == 0
