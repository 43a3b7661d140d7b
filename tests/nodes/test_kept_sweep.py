"""Sealed kept files in the database: those that no state of the history names go, and all others stay."""

from __future__ import annotations

import tomllib

from mailcore.config.kept_files import references_in
from mailcore.config.managed_history import State
from mailcore.config.shared_settings import MANAGED
from mailcore.control.kept_store import KeptStore
from mailcore.nodes.kept_sweep import EVERY_S, FIRST_S, SweepingKept, sweep_kept
from mailcore.replication import settings_rows
from tests.nodes.settings_home import LIMIT, Home, Made, made
from tests.replication.cluster import Cluster

__all__ = ["made"]
TEXT = '[[dkim]]\ndomain = "example.org"\nselector = "s"\nkey = "{}"\n'


def named(home: Home, content: bytes) -> tuple[str, int]:
    """The reference that a change names, and its version."""
    reference = KeptStore(home.settings.home).put("dkim", "s._domainkey.example.org", content)
    with home.store.changing(MANAGED) as change:
        change.keep(reference, content)
        state = change.write(State("0" * 16, 1.0, "alice", "", [], TEXT.format(reference), node="a"))
    return str(reference), state.version


def there(cluster: Cluster) -> list[str]:
    return sorted(row[0] for row in cluster.primary.sql("select reference from waypost.kept_file"))


def aged(cluster: Cluster) -> None:
    cluster.primary.sql("update waypost.kept_file set added_at = added_at - interval '25 hours'")


def test_a_file_that_no_state_names_goes_a_day_later_and_those_of_the_history_stay(
    made: Made, cluster: Cluster
) -> None:
    home = made("a")
    home.look()
    (first, version), (second, later) = named(home, b"one"), named(home, b"two")
    with home.store.changing(MANAGED) as change:
        change.write(State("0" * 16, 1.0, "alice", "", [], LIMIT.format(33), node="a"))
    aged(cluster)
    assert sweep_kept(home.connection, home.store) == [], "the history names both"
    cluster.primary.sql(f"delete from waypost.settings_state where kind = 'managed' and version = {version}")
    assert there(cluster) == sorted((first, second))
    assert sweep_kept(home.connection, home.store) == [first]
    cluster.primary.sql(f"delete from waypost.settings_state where kind = 'managed' and version = {later}")
    with home.store.changing(MANAGED) as change:
        (reference,) = references_in(tomllib.loads(TEXT.format(second)))
        change.keep(reference, b"two")
        assert sweep_kept(home.connection, home.store) == [], "a change names it at this moment"
    aged(cluster)
    assert sweep_kept(home.connection, home.store) == [second]
    assert there(cluster) == []


def test_a_node_that_does_not_know_what_is_in_use_removes_nothing(made: Made, cluster: Cluster) -> None:
    home, other = made("a"), made("b", joins=False)
    home.look()
    settings_rows.add_kept(home.connection, "kept:map/x.0123456789abcdef", b"sealed")
    aged(cluster)
    assert sweep_kept(other.connection, other.store) == [], "it is not in"
    _, version = named(home, b"one")
    aged(cluster)
    cluster.primary.sql(
        f"update waypost.settings_state set sealed = 'made' where kind = 'managed' and version = {version}"
    )
    assert sweep_kept(home.connection, home.store) == [], "it cannot read the newest state"
    assert len(there(cluster)) == 2


def test_it_looks_after_some_minutes_and_then_some_times_a_day(made: Made, cluster: Cluster) -> None:
    home = made("a")
    home.look()
    named(home, b"one")
    settings_rows.add_kept(home.connection, "kept:map/x.0123456789abcdef", b"sealed")
    aged(cluster)
    sweeping = SweepingKept(home.settings)
    assert sweeping.once() == FIRST_S
    assert len(there(cluster)) == 2
    assert sweeping.once() == EVERY_S
    assert len(there(cluster)) == 1
