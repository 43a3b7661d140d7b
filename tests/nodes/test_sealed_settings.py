"""Settings of all nodes that another authority sealed, or that are not what the database says: none comes into force.

Proves law: settings-once, law: keys-stay-secret (docs/laws.md).
"""

from __future__ import annotations

import pytest

from mailcore.config.kept_files import kept_path
from mailcore.config.managed_history import State
from mailcore.config.shared_settings import MANAGED, TUNED, KindStatus
from mailcore.control.kept_store import KeptStore
from mailcore.faults import FaultError
from mailcore.nodes import joining
from mailcore.nodes.decision import TAKE, Decision, decide
from tests.nodes.settings_home import LIMIT, Made
from tests.nodes.test_taking import SIGNED, give_signed, manage
from tests.replication.cluster import Cluster


async def test_law_settings_behind_another_authority_one_node_gives_and_all_take(made: Made) -> None:
    """Kept files and older states were sealed by the authority before."""
    a, b, c = made("a"), made("b"), made("c", joins=False)
    key = give_signed(a)
    for home in (a, b):
        assert home.look() == KindStatus(version=3, newest=3)
    joining.begin(a.settings, again=True)
    assert "was not written by a node of this authority" in a.look().trouble
    for kind in (MANAGED, TUNED):
        a.give(kind)
    assert a.look() == KindStatus(version=4, newest=4)
    joining.join(c.settings, joining.add(a.settings, "c", 5))
    assert c.look() == KindStatus(version=4, newest=4)
    assert (c.text, c.reloads) == (SIGNED.format(key), 1)
    assert kept_path(c.settings.home, key).read_bytes() == kept_path(a.settings.home, key).read_bytes()
    assert [each.version for each in c.history()] == [4]
    await manage(a, 55)
    await manage(a, 56)
    joining.join(b.settings, joining.add(a.settings, "b", 5))
    for home in (a, b, c):
        assert home.look() == KindStatus(version=6, newest=6)
        assert home.limit() == 56


def test_settings_of_an_authority_before_do_not_win(made: Made) -> None:
    a, b = made("a"), made("b")
    a.look()
    a.change(LIMIT.format(33))
    for home in (a, b):
        home.look()
    joining.begin(a.settings, again=True)
    a.edit(LIMIT.format(44))
    a.give()
    assert a.look() == KindStatus(version=3, newest=3)
    joining.join(b.settings, joining.add(a.settings, "b", 5))
    trouble = b.look().trouble
    assert "--take managed takes version 3 over, and --give would undo it" in trouble, trouble
    assert b.limit() == 33
    decide(b.settings, MANAGED, Decision(TAKE, "dora"))
    for home in (a, b):
        assert home.look() == KindStatus(version=3, newest=3)
        assert home.limit() == 44


async def test_a_kept_file_of_an_authority_before_is_given_again_with_the_change_that_names_it(made: Made) -> None:
    a, c = made("a"), made("c", joins=False)
    key = give_signed(a)
    a.look()
    a.change(LIMIT.format(33))
    a.look()
    joining.begin(a.settings, again=True)
    a.give()
    a.look()
    joining.join(c.settings, joining.add(a.settings, "c", 5))
    c.look()
    with a.store.changing(MANAGED) as change:
        change.keep(key, kept_path(a.settings.home, key).read_bytes())
        change.write(State("0" * 16, 1.0, "alice", "", [], SIGNED.format(key), node="a"))
    assert c.look().trouble == ""
    assert c.text == SIGNED.format(key)


def test_law_keys_what_the_database_has_is_neither_read_nor_made_without_the_authority(
    made: Made, cluster: Cluster
) -> None:
    a, b = made("a"), made("b")
    for home in (a, b):
        home.look()
    key = KeptStore(a.settings.home).put("dkim", "s._domainkey.example.org", b"a private key")
    with a.store.changing(MANAGED) as change:
        change.keep(key, b"a private key")
        text = f'[[dkim]]\ndomain = "example.org"\nselector = "s"\nkey = "{key}"\n'
        change.write(State("0" * 16, 1.0, "alice", "", [], text, node="a"))
    rows = cluster.primary.sql("select encode(sealed, 'escape') from waypost.settings_state")
    rows += cluster.primary.sql("select encode(sealed, 'escape') from waypost.kept_file")
    assert rows
    assert not any(word in str(rows) for word in ("private key", "example.org", "alice"))
    b.look()
    assert kept_path(b.settings.home, key).read_bytes() == b"a private key"
    cluster.primary.sql("update waypost.settings_state set sealed = 'made' where kind = 'managed' and version = 2")
    cluster.primary.sql("insert into waypost.settings_state values ('managed', 3, 'x', 'made')")
    cluster.primary.sql("update waypost.settings set version = 3 where kind = 'managed'")
    before = b.text
    assert "was not written by a node of this authority" in b.look().trouble
    assert b.text == before


def test_law_settings_a_state_does_not_count_at_another_version(made: Made, cluster: Cluster) -> None:
    a = made("a")
    a.look()
    a.change(LIMIT.format(33))
    a.look()
    a.change(LIMIT.format(34))
    a.look()
    cluster.primary.sql(
        "insert into waypost.settings_state select kind, 4, change, sealed from waypost.settings_state"
        " where kind = 'managed' and version = 2"
    )
    cluster.primary.sql("update waypost.settings set version = 4 where kind = 'managed'")
    assert "was not written by a node of this authority" in a.look().trouble
    assert a.limit() == 34


@pytest.mark.parametrize("kind", [MANAGED, TUNED])
def test_law_settings_a_number_without_a_state_empties_nothing(made: Made, cluster: Cluster, kind: str) -> None:
    """Whoever has the database's password can raise the number, and remove states."""
    a, b = made("a"), made("b")
    text = LIMIT.format(33) if kind == MANAGED else '["smtp"]\nprocess_limit = 7\n'
    path = "managed.toml" if kind == MANAGED else "tuned.toml"
    a.look()
    a.change(text, kind)
    for home in (a, b):
        home.look()
    cluster.primary.sql(f"update waypost.settings set version = version + 1 where kind = '{kind}'")
    for home in (a, b):
        home.look()
        assert "the database lacks version 3" in home.status(kind).trouble
        assert (home.settings.home / path).read_text().endswith(text)
        assert home.store.notes().versions[kind] == 2
    with pytest.raises(FaultError, match="the database lacks version 3"), a.store.changing(kind) as change:
        _ = change.newest
    a.give(kind)
    for home in (a, b):
        home.look()
        assert home.status(kind) == KindStatus(version=4, newest=4)
        assert (home.settings.home / path).read_text().endswith(text)
