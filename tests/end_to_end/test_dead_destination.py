"""A next hop that is known to be dead: its mail is deferred again without a look at its data, seen from outside by strace."""

from __future__ import annotations

from pathlib import Path

from bench.dead_destination import deferred_untouched

QUEUED = 500


async def test_no_spool_file_is_opened_for_a_dead_destination(tmp_path: Path) -> None:
    run = await deferred_untouched(tmp_path, QUEUED)
    assert (run.deferred, run.tried) == (QUEUED, 0)
    assert run.opened == ()
