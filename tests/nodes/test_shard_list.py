"""``waypost shard list``: the rows of the database, as text and as JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from mailcore.cli.main import main
from tests.nodes.node import conninfo_of
from tests.replication.cluster import Cluster
from tests.replication.writing import add_shard


def listed(tmp_path: Path, text: str, *more: str) -> int:
    config = tmp_path / "waypost.toml"
    config.write_text(text)
    return main(["shard", "list", "--config", str(config), *more])


def test_all_shards_with_their_owners(cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add_shard(cluster.primary, name="north", number=1, owner="a/x/y/z", epoch=3)
    add_shard(cluster.primary, name="south", number=2, owner="b/x/y/z")
    cluster.primary.sql("update waypost.shard set renewed_at = now() - interval '90 s' where name = 'south'")
    text = f'[nodes]\ndatabase = "{conninfo_of(cluster)}"\nnode = "c"\nshard = "south"\n'
    assert listed(tmp_path, text) == 0
    head, north, south = capsys.readouterr().out.splitlines()
    assert head.split() == ["SHARD", "NUMBER", "STATE", "EPOCH", "RENEWED", "OWNER"]
    assert re.fullmatch(r"north +1 +open +3 +[0-9] s ago +a/x/y/z", north), north
    assert re.fullmatch(r"south +2 +open +1 +9[0-9] s ago +b/x/y/z", south), south
    assert listed(tmp_path, text, "--json") == 0
    first, second = json.loads(capsys.readouterr().out)["shards"]
    assert (first["name"], first["epoch"], first["owner"], first["here"]) == ("north", 3, "a/x/y/z", False)
    assert (second["state"], second["renewed_s_ago"] >= 90, second["here"]) == ("open", True, True)


def test_without_a_database_it_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert listed(tmp_path, "") == 2
    assert "set database in [nodes]" in capsys.readouterr().err
    assert listed(tmp_path, f'[nodes]\ndatabase = "host={tmp_path}"\n') == 3
    assert "no server of the database takes writes" in capsys.readouterr().err
