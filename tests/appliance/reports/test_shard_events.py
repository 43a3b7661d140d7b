"""Which events a report is made of: those of all shards of a node, or those of all nodes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from appliance.reports.shard_events import event_places, nodes_events, shard_events
from mailcore.config.nodes import Nodes


@pytest.mark.parametrize("is_kept", [False, True], ids=["on disks", "by a database"])
def test_what_a_database_keeps_is_read_from_the_copy_of_all_nodes(settings: Any, tmp_path: Path, is_kept: bool) -> None:
    own, copy = tmp_path / "events", tmp_path / "events/_nodes"
    here = {number: tmp_path / "shards" / f"{number:02}" / "events" for number in (1, 7)}
    copies = [copy / "shards" / f"{number:02}" / "events" for number in (1, 2)]
    for each in (*here.values(), *copies):
        each.mkdir(parents=True)
    settings.EVENTS_DIRECTORY = own
    nodes = Nodes(database="host=db.example dbname=waypost" if is_kept else "")
    settings.WAYPOST = dataclasses.replace(settings.WAYPOST, nodes=nodes)
    assert shard_events() == ({} if is_kept else here)
    assert nodes_events() == (copy / "shards.json" if is_kept else None)
    assert event_places() == [own, *(copies if is_kept else here.values())]
