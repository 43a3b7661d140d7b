"""The look at queued mail, where its time is over."""

from __future__ import annotations

from pathlib import Path

from mailcore.config.load import load
from mailcore.effects.budget import Deadline
from mailcore.effects.queued import look_at_queue
from mailcore.effects.routes_compared import RoutesCompared
from mailcore.log.disk import Disk
from mailcore.lookup.browse import Stretch


def test_a_look_that_ran_out_of_time_says_that_it_did_not_see_all(tmp_path: Path) -> None:
    path = tmp_path / "waypost.toml"
    path.write_text(f'home = "{tmp_path}/home"\n')
    routes = RoutesCompared(load(path), load(path))
    assert not routes.differ
    found, _, _ = look_at_queue(Disk(), str(tmp_path), {"retry.1": Stretch(0, 0, 9)}, routes, Deadline(0))
    assert not found.complete
