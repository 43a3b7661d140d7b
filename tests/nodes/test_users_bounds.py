"""How large the users of all nodes may be, who reads and makes them, and nodes or a database that are apart.

Proves law: keys-stay-secret, law: settings-once (docs/laws.md).
"""

from __future__ import annotations

import pytest

from mailcore.config.shared_settings import USERS, KindStatus
from mailcore.faults import Code, FaultError
from mailcore.nodes import settings_store
from mailcore.replication.settings_rows import read_states
from mailcore.users import user_file
from tests.nodes.settings_home import Made
from tests.nodes.test_users_taken import add, both, looked, names, text
from tests.replication.cluster import Cluster

# -- bounds


def test_the_states_of_large_users_are_few_and_the_newest_stays(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(settings_store._BOUNDS, USERS, settings_store.USERS_BOUNDS._replace(bytes_max=4_000))
    a, b = both(made)
    for number in range(12):
        add(a, *(f"{number}-{each}" for each in range(10)))
    kept = read_states(a.connection, USERS)
    assert kept[-1].version == 13
    assert sum(len(each.sealed) for each in kept) <= 4_000
    assert len(kept) >= 2
    add(a, *(f"many{each}" for each in range(2_000)))
    (newest,) = read_states(a.connection, USERS)
    assert len(newest.sealed) > 4_000, "larger than all may be"
    assert looked(b) == [KindStatus(version=14, newest=14)]
    assert text(a) == text(b)


def test_more_users_than_the_file_may_have_are_refused_with_a_sentence(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = both(made)
    add(a, "anna")
    looked(b)
    monkeypatch.setattr(user_file, "FILE_BYTES_MAX", 400)
    with pytest.raises(FaultError, match=r"the users would take .* bytes; at most 400 are allowed"):
        add(a, "bert", "carl")
    assert looked(a, b) == [KindStatus(version=2, newest=2)] * 2
    b.settings.users_file.write_bytes(b" " * 401)
    (status,) = looked(b)
    assert "the file is larger than 400 bytes" in status.trouble


# -- who may


def test_law_keys_verifiers_are_neither_read_nor_made_without_the_authority(made: Made, cluster: Cluster) -> None:
    a, b = both(made)
    add(a, "anna")
    looked(b)
    rows = cluster.primary.sql("select encode(sealed, 'escape') from waypost.settings_state where kind = 'users'")
    assert rows
    assert not any(word in str(rows) for word in ("argon2", "anna", "salt_key", "alice"))
    notes = (a.settings.home / "nodes" / "settings.json").read_text()
    assert "argon2" not in notes
    cluster.primary.sql("update waypost.settings set version = 3 where kind = 'users'")
    cluster.primary.sql("insert into waypost.settings_state values ('users', 3, 'x', 'made')")
    (status,) = looked(b)
    assert "the database's users of version 3 was not written by a node of this authority" in status.trouble
    assert names(b) == ["anna"]
    with pytest.raises(FaultError, match="was not written by a node of this authority"):
        add(b, "bert")


def test_without_a_join_users_are_each_nodes_own(made: Made) -> None:
    a, stranger = made("a"), made("stranger", joins=False)
    looked(a)
    add(stranger, "own")
    add(a, "anna")
    stranger.taking.look(stranger.connection)
    assert (names(stranger), names(a)) == (["own"], ["anna"])


def test_with_the_database_away_a_change_of_users_is_refused_and_they_stay(made: Made, cluster: Cluster) -> None:
    a = made("a")
    looked(a)
    add(a, "anna")
    before = text(a)
    cluster.primary.kill()
    try:
        with pytest.raises(FaultError, match="cannot be asked, so nothing was changed") as refused:
            add(a, "bert")
        assert refused.value.code is Code.UNAVAILABLE
    finally:
        cluster.primary.start()
    assert text(a) == before
