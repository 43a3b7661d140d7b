"""A next hop that is known to be dead: its mail is deferred again without a look at its data, seen from outside by strace."""

from __future__ import annotations

from pathlib import Path

from bench.dead_destination import NotReady, deferred_untouched

QUEUED = 500
DUE_S = (10.0, 30.0, 90.0, 270.0)  # as long as this machine takes to get ready


async def test_no_spool_file_is_opened_for_a_dead_destination(tmp_path: Path) -> None:
    for due_s in DUE_S:
        place = tmp_path / f"{due_s:g}"
        place.mkdir()
        try:
            run = await deferred_untouched(place, QUEUED, due_s=due_s)
            break
        except NotReady:
            if due_s == DUE_S[-1]:
                raise
    assert (run.deferred, run.tried) == (QUEUED, 0)
    assert run.opened == ()
