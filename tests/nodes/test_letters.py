"""The mail of a day's report: of several nodes that have made it, one mails it.

Proves law: one-letter-a-day (docs/laws.md).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mailcore.nodes import letters
from mailcore.nodes.for_reports import answer
from mailcore.nodes.letters import Letters
from tests.nodes.test_owner import home, owned
from tests.replication.cluster import Cluster

DAY = "2026-11-20"


@pytest.fixture
def nodes(tmp_path: Path, cluster: Cluster) -> list[Letters]:
    owned(home(tmp_path, cluster, "a"))
    return [Letters(home(tmp_path, cluster, name)) for name in ("a", "b", "c")]


def test_of_several_that_ask_at_once_one_has_its_turn(nodes: list[Letters]) -> None:
    with ThreadPoolExecutor(3) as pool:
        claims = list(pool.map(lambda each: each.claim(DAY), nodes * 4))
    winners = {claim.node for claim in claims if claim.ours}
    assert len(winners) == 1
    assert {claim.node for claim in claims} == winners
    assert not any(claim.sent for claim in claims)


def test_once_it_was_sent_nobody_has_a_turn_and_each_day_is_another(nodes: list[Letters]) -> None:
    a, b, _ = nodes
    assert a.claim(DAY).ours
    assert a.claim(DAY).ours, "it may have been interrupted"
    assert not b.claim(DAY).ours
    a.sent(DAY, "4QUEUEID")
    for each in nodes:
        claim = each.claim(DAY)
        assert (claim.ours, claim.node, claim.sent) == (False, "a", "4QUEUEID")
    assert b.claim("2026-11-21").ours


def test_a_node_that_ended_in_between_is_replaced(nodes: list[Letters], monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, c = nodes
    assert a.claim(DAY).ours
    monkeypatch.setattr(letters, "CLAIM_S", 0.0)
    assert b.claim(DAY).ours
    monkeypatch.undo()
    assert not a.claim(DAY).ours
    assert not c.claim(DAY).ours
    b.sent(DAY, "4OTHER")
    assert a.claim(DAY).sent == "4OTHER"


def test_a_node_that_could_not_hand_it_in_gives_its_turn_back(nodes: list[Letters]) -> None:
    a, b, c = nodes
    assert a.claim(DAY).ours
    c.release(DAY)
    assert not b.claim(DAY).ours, "it was not the turn of c"
    a.release(DAY)
    assert b.claim(DAY).ours
    b.sent(DAY, "4QUEUEID")
    b.release(DAY)
    assert a.claim(DAY).sent == "4QUEUEID"


def test_rows_of_long_ago_are_removed(nodes: list[Letters], cluster: Cluster) -> None:
    for day in ("2026-01-01", "2026-10-30", DAY):
        nodes[0].claim(day)
        nodes[0].sent(day, "4QUEUEID")
    rows = cluster.primary.sql("select file from waypost.state where shard = '' order by file")
    assert [row[0] for row in rows] == ["letter/2026-10-30", f"letter/{DAY}"]


def test_the_exporter_answers_with_values_and_faults(tmp_path: Path, cluster: Cluster) -> None:
    settings = home(tmp_path, cluster, "a")
    owned(settings)
    claimed = answer(settings, "letter", {"day": DAY})
    assert isinstance(claimed, dict)
    assert (claimed["ours"], claimed["node"], claimed["sent"]) == (True, "a", "")
    noted = answer(settings, "letter", {"day": DAY, "sent": "4ID"})
    assert isinstance(noted, dict)
    assert noted["sent"] == "4ID"
    wrong = answer(settings, "gather", {"since": "yesterday"})
    assert not isinstance(wrong, dict)
    assert (wrong.code, wrong.argument) == ("invalid", "since")
    gathered = answer(settings, "gather", {"since": DAY, "until": DAY, "keep": DAY})
    assert isinstance(gathered, dict)
    assert (gathered["more"], gathered["missing"], gathered["shards"]) == (False, 0, 1)
