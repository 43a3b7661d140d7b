"""Which events a report is made of: those of all shards of a node, and on a node of several those of its own."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from appliance.reports.shard_events import shard_events
from mailcore.config.nodes import Nodes


@pytest.mark.parametrize("is_kept", [False, True], ids=["on disks", "by a database"])
def test_shards_that_were_adopted_are_in_the_reports_of_their_home(
    settings: Any, tmp_path: Path, is_kept: bool
) -> None:
    for number in (1, 7):
        (tmp_path / "shards" / f"{number:02}" / "events").mkdir(parents=True)
    settings.EVENTS_DIRECTORY = tmp_path / "events"
    nodes = Nodes(database="host=db.example dbname=waypost" if is_kept else "")
    settings.WAYPOST = dataclasses.replace(settings.WAYPOST, nodes=nodes)
    assert sorted(shard_events()) == ([] if is_kept else [1, 7])
