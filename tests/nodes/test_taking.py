"""One node takes over the settings that all nodes have once, out of what a process that was killed has left at any step.

Proves law: settings-once, law: keys-stay-secret (docs/laws.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from mailcore.config.kept_files import Reference
from mailcore.config.load import load
from mailcore.config.managed_history import ManagedHistory, State
from mailcore.config.shared_settings import MANAGED, TUNED, USERS, KindStatus, status_in
from mailcore.config.tuned import Tuned
from mailcore.control.access import Peer
from mailcore.control.change_faults import faults_here
from mailcore.control.kept_store import KeptStore
from mailcore.control.managing import Managing
from mailcore.control.protocol.operation import Arguments
from mailcore.control.protocol.settings import SettingChange, SettingsArguments
from mailcore.control.session import Session
from mailcore.control.view import View
from mailcore.faults import FaultError
from mailcore.log.disk import Disk
from mailcore.manager.context import ManagerContext
from mailcore.manager.overrides import Overrides
from mailcore.nodes import joining
from mailcore.nodes.decision import TAKE, Decision, decide, decisions
from mailcore.nodes.settings_store import SettingsStore
from mailcore.nodes.taking import Taking
from mailcore.replication.settings_rows import read_taken
from mailcore.supervisor.child import SETTINGS_NAME, store_settings
from tests.nodes.settings_home import FILES, LIMIT, Data, Home, Made
from tests.replication.cluster import Cluster

# -- a change comes to all nodes


def test_law_settings_the_first_node_gives_what_it_has_with_its_history(made: Made) -> None:
    a, b = made("a"), made("b")
    states = [State(str(number) * 16, float(number), "carol", "", [], LIMIT.format(number + 10)) for number in (1, 2)]
    for state in states:
        ManagedHistory(a.settings.home, Disk()).append(state)
    a.managed.write_text(states[-1].text)
    a.settings.tuned_file.write_text('["smtp"]\nprocess_limit = 7\n')
    assert a.look() == KindStatus(version=2, newest=2)
    assert b.look() == KindStatus(version=2, newest=2)
    assert (b.text, b.limit(), b.reloads) == (a.text, 12, 1)
    assert [(each.revision, each.who, each.version, each.node) for each in b.history()] == [
        ("1" * 16, "carol", 1, "a"), ("2" * 16, "carol", 2, "a"),
    ]  # fmt: skip
    assert "process_limit = 7" in b.settings.tuned_file.read_text()
    assert a.look().version == 2
    assert a.text == states[-1].text


@pytest.mark.parametrize("step", range(5))
def test_law_settings_a_change_is_taken_over_whatever_a_killed_process_has_done(made: Made, step: int) -> None:
    """0: the commit; 1: the file, too; 2: the history, too; 3: what was taken over, too; 4: and the reload was asked for."""
    a, b = made("a"), made("b")
    for home in (a, b, a):
        home.look()
    state = a.change(LIMIT.format(33))
    if step > 0:
        a.managed.write_text(state.text)
    if step > 1:
        ManagedHistory(a.settings.home, Disk()).append(state)
    if step > 2:
        a.store.note(MANAGED, state.version)
    if step > 3:
        store_settings(load(a.config), a.settings.run_directory / SETTINGS_NAME)
    a.begin()
    for home in (a, b):
        assert home.look() == KindStatus(version=2, newest=2)
        assert home.limit() == 33
        assert [each.version for each in home.history()] == [1, 2]
    assert (a.reloads, b.reloads) == (int(step < 4), 1)


def test_law_settings_what_watches_may_be_killed_at_each_write(made: Made) -> None:
    a, b = made("a"), made("b")
    for home in (a, b):
        home.look()
    a.change(LIMIT.format(33))
    a.change('["smtp"]\nprocess_limit = 7\n', TUNED)
    writes = 0
    while True:
        b.begin(KilledDisk(writes))
        try:
            b.look()
            break
        except KeyboardInterrupt:
            writes += 1
    assert writes >= 3
    assert b.status(MANAGED) == KindStatus(version=2, newest=2)
    assert b.status(TUNED) == KindStatus(version=2, newest=2)
    assert b.limit() == 33
    assert [each.version for each in b.history()] == [1, 2]


class KilledDisk(Disk):
    """The process is killed at the second write; with an odd number at the first one, which is done."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._is_odd = bool(number % 2)
        self._writes = 0

    def write_whole(self, path: str, data: Data) -> None:
        self._writes += 1
        if self._writes > 1:
            raise KeyboardInterrupt
        super().write_whole(path, data)
        if self._is_odd:
            raise KeyboardInterrupt


def test_a_node_that_was_away_takes_over_all_changes_at_once(made: Made) -> None:
    a, b = made("a"), made("b")
    a.look()
    b.look()
    for limit in (31, 32, 33):
        a.change(LIMIT.format(limit))
        a.look()
    assert b.look() == KindStatus(version=4, newest=4)
    assert [each.text for each in b.history()[1:]] == [LIMIT.format(limit) for limit in (31, 32, 33)]
    assert b.reloads == 1


def test_a_reload_that_does_not_begin_is_asked_for_again(made: Made) -> None:
    a = made("a")
    a.look()
    now, asked = 0.0, list[float]()

    def reload() -> None:
        asked.append(now)
        if len(asked) == 3:
            store_settings(load(a.config), a.settings.run_directory / SETTINGS_NAME)

    a.taking = Taking(
        a.settings, FILES, KeptStore(a.settings.home), faults=faults_here, say=a.lines.append, warn=a.warnings.append,
        reload=reload, clock=lambda: now,
    )  # fmt: skip
    a.change(LIMIT.format(33))
    troubles = []
    for second in range(60):
        now = float(second)
        a.taking.look(a.connection)
        troubles.append(a.status(MANAGED).trouble)
    assert len(asked) == 3, "each time that it did not begin"
    late = [number for number, each in enumerate(troubles) if "has not begun" in each]
    assert late == list(range(late[0], late[-1] + 1)), "it is said without a break until it has begun"
    assert troubles[-1] == ""


def test_whether_a_node_keeps_to_its_file_is_asked_at_each_look(made: Made) -> None:
    a, b = made("a"), made("b")
    for home in (a, b):
        home.look()
    config = b.config.read_text()
    b.config.write_text(config + "[portal]\nmanages = false\n")
    b.settings = load(b.config)
    b.begin()
    a.change(LIMIT.format(33))
    assert "manages is false" in b.look().trouble
    assert b.text == ""
    b.config.write_text(config)
    assert b.look() == KindStatus(version=2, newest=2)
    assert b.limit() == 33


def test_values_that_have_ended_are_no_difference(made: Made) -> None:
    a, b = made("a"), made("b")
    soon = time.time() + 1.0
    a.change(f'["smtp"]\nprocess_limit = {{ lasting = 5, value = 7, until = {soon!r} }}\n', TUNED)
    for home in (a, b):
        home.look()
    time.sleep(1.1)
    for home in (a, b):
        home.look()
        assert home.status(TUNED) == KindStatus(version=1, newest=1)
        assert home.settings.tuned_file.read_text().splitlines()[-1] == "process_limit = 5"


# -- a change that is made here


async def test_law_settings_a_change_of_another_node_behind_the_check_is_not_undone(made: Made) -> None:
    """The process that watches takes it over between the check and the write, so that the file is the newest again."""
    a, b = made("a"), made("b")
    for home in (a, b):
        home.look()

    def other() -> None:
        b.change("[receiver]\nrecipient_limit = 33\nmessage_size_limit = 100000\n", who="bob")
        a.look()

    with pytest.raises(FaultError, match=r"changed meanwhile: bob at node b .*\(a reason\); nothing was changed"):
        await manage(a, 44, behind_the_check=other)
    for home in (a, b):
        home.look()
        assert load(home.config).receiver.message_size_limit == 100_000
        assert home.limit() == 33
    await manage(a, 44)
    assert a.limit() == 44


async def test_law_settings_an_edit_by_hand_behind_the_check_is_not_overwritten(made: Made) -> None:
    a = made("a")
    a.look()
    with pytest.raises(FaultError, match="was changed by hand"):
        await manage(a, 44, behind_the_check=lambda: a.edit(LIMIT.format(77)))
    assert a.limit() == 77


async def test_a_change_of_another_node_that_was_taken_over_at_this_moment_is_no_hand_edit(made: Made) -> None:
    a, b = made("a"), made("b")
    for home in (a, b):
        home.look()

    def other() -> None:
        for limit in (31, 32):
            b.change(LIMIT.format(limit), who="bob")
            a.look()

    with pytest.raises(FaultError, match="changed meanwhile: bob at node b"):
        await manage(a, 44, behind_the_check=other)


def test_law_settings_a_value_that_another_node_has_just_set_is_no_hand_edit(made: Made) -> None:
    """The manager has not followed the file yet, which has become the newest twice since."""
    a, b = made("a"), made("b")
    tuned, one = overrides(a), '["smtp"]\nprocess_limit = {}\n'
    for number in (3, 4):
        b.change(one.format(number), TUNED, who="bob")
        a.look()
    other = tuned._write(tuned._plain(""), State("", time.time(), "alice", "", [], one.format(5)))
    assert other is not None
    assert (other.who, other.version) == ("bob", 2), "what the manager takes before it tries again"
    own = tuned._plain(other.text)
    a.settings.tuned_file.write_text(one.format(9))
    with pytest.raises(FaultError, match="was changed by hand"):
        tuned._write(own, State("", time.time(), "alice", "", [], one.format(5)))
    assert a.settings.tuned_file.read_text() == one.format(9)
    a.settings.tuned_file.write_text(one.format(4))
    assert tuned._write(own, State("", time.time(), "alice", "", [], one.format(5))) is None
    a.look()
    assert a.status(TUNED) == KindStatus(version=3, newest=3)


def overrides(home: Home) -> Overrides:
    context = SimpleNamespace(wall=time.time)
    return Overrides(cast("ManagerContext", context), Tuned(Disk(), home.settings.tuned_file), home.store)


class Threads:
    """Runs what control runs in a thread; ``between`` comes behind the check of a change."""

    def __init__(self, between: Callable[[], None]) -> None:
        self._between = between

    async def in_thread(self, call: Callable[..., Any], *arguments: Any) -> Any:
        result = call(*arguments)
        if call.__name__ == "_checked":
            self._between()
        return result


async def manage(home: Home, limit: int, behind_the_check: Callable[[], None] = lambda: None) -> None:
    """As control of a node that is asked to change [receiver] recipient_limit."""
    managing = Managing(cast("View", Threads(behind_the_check)), home.settings, Disk(), FILES, home.store)
    session = Session(Peer(0, 0, frozenset()), who="alice")
    (known,) = [each async for each in managing.answers["settings"](session, Arguments())]
    change = SettingChange(key=["receiver", "recipient_limit"], value=limit)
    arguments = SettingsArguments(changes=[change], revision=known.revision)
    (answer,) = [each async for each in managing.answers["settings_change"](session, arguments)]
    assert answer.applied, answer.faults


# -- what is not taken over


def test_law_settings_a_hand_edit_is_not_overwritten(made: Made) -> None:
    a, b = made("a"), made("b")
    for home in (a, b):
        home.look()
    b.managed.write_text(LIMIT.format(77))
    trouble = b.look().trouble
    assert "was changed by hand, and differs from version 1" in trouble
    a.change(LIMIT.format(33))
    assert b.look().version == 1
    assert b.limit() == 77
    assert [(each.node, each.trouble[-60:]) for each in read_taken(a.connection) if each.trouble] == [
        ("b", b.status(MANAGED).trouble[-60:])
    ], "other nodes see it, too"
    decide(b.settings, MANAGED, Decision(TAKE, "dora", "it was a trial"))
    assert b.look() == KindStatus(version=2, newest=2)
    assert b.limit() == 33
    aside = [each for each in b.history() if each.text == LIMIT.format(77)]
    assert [(each.who, "it was a trial" in each.why) for each in aside] == [("dora", True)]


def test_an_older_state_that_was_put_back_by_hand_is_a_hand_edit(made: Made) -> None:
    a = made("a")
    a.look()
    for limit in (31, 32):
        a.change(LIMIT.format(limit))
        a.look()
    a.managed.write_text(LIMIT.format(31))
    assert "was changed by hand" in a.look().trouble
    assert a.limit() == 31


def test_law_settings_a_second_node_keeps_its_own_until_a_person_decides(made: Made) -> None:
    a, b = made("a"), made("b")
    a.managed.write_text(LIMIT.format(33))
    a.look()
    b.managed.write_text(LIMIT.format(44))
    b.settings.tuned_file.write_text('["smtp"]\nprocess_limit = 7\n')
    assert "is this node's own, and differs from version 1" in b.look().trouble
    assert "is this node's own" in b.status(TUNED).trouble
    assert (b.limit(), b.store.notes().versions) == (44, {USERS: 1})
    assert "this node's own" in b.store.why_not(MANAGED)
    b.give(why="b is right")
    decide(b.settings, TUNED, Decision(TAKE, "dora"))
    assert b.look() == KindStatus(version=2, newest=2)
    assert a.look() == KindStatus(version=2, newest=2)
    assert (a.limit(), b.limit()) == (44, 44)
    assert (a.history()[-1].who, a.history()[-1].why) == ("dora", "b is right")
    assert b.status(TUNED) == KindStatus(version=1, newest=1)
    (aside,) = b.settings.home.glob("tuned.toml.aside.*")
    assert "process_limit = 7" in aside.read_text()


@pytest.mark.parametrize("kind", [MANAGED, TUNED])
def test_law_settings_what_a_node_that_is_down_gives_undoes_nothing_that_others_change(made: Made, kind: str) -> None:
    a, b = made("a"), made("b")
    texts = {
        MANAGED: [LIMIT.format(number) for number in (33, 34, 77)],
        TUNED: [f'["smtp"]\nprocess_limit = {number}\n' for number in (3, 4, 7)],
    }[kind]
    for home in (a, b):
        home.look()
    path = b.settings.home / f"{kind}.toml"
    path.write_text(texts[2])
    assert "--take or --give" in b.look_at(kind).trouble
    b.give(kind)
    for text in texts[:2]:
        a.change(text, kind)
    b.begin()
    assert "--take or --give" in b.look_at(kind).trouble
    assert any("is dropped, because there is version 3 by now" in line for line in b.warnings), b.warnings
    assert decisions(b.settings) == {}
    assert a.look_at(kind) == KindStatus(version=3, newest=3)
    assert (a.settings.home / path.name).read_text().endswith(texts[1])
    assert path.read_text() == texts[2]
    b.give(kind)
    for home in (b, a):
        assert home.look_at(kind) == KindStatus(version=4, newest=4)


def test_a_state_that_cannot_be_used_here_is_not_taken_over(made: Made) -> None:
    a, b = made("a"), made("b")
    for home in (a, b):
        home.look()
    b.config.write_text(b.config.read_text() + "[transports.own]\n")
    a.change('[routes]\n"example.org" = "other"\n')
    trouble = b.look().trouble
    assert "version 2 by alice at node a can't be used on this node" in trouble, trouble
    assert b.text == ""
    states = len(b.history())
    decide(b.settings, MANAGED, Decision(TAKE, "dora"))
    assert b.look().trouble == trouble
    assert (len(b.history()), decisions(b.settings)) == (states, {}), "a decision that fails leaves nothing behind"
    a.change(LIMIT.format(33))
    assert b.look() == KindStatus(version=3, newest=3)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[queue]\nreserve_bytes = 1_000_000_000_000\n", "queue.reserve_bytes must be less: the disk of"),
        ("[queue]\nballast_bytes = 1_000_000_000_000\n", "queue.ballast_bytes must be less: the disk of"),
        ("[export]\nenabled = false\n", "[export] enabled can't be changed while Waypost runs"),
    ],
)
def test_law_settings_what_would_stop_the_mail_of_this_node_is_not_taken_over(made: Made, text: str, why: str) -> None:
    """Where it was made there was room."""
    a, b = made("a"), made("b")
    for home in (a, b):
        home.look()
    a.change(text)
    trouble = b.look().trouble
    assert trouble.startswith(f"version 2 by alice at node a can't be used on this node: {why}"), trouble
    assert (b.text, b.reloads, b.status(MANAGED).version) == ("", 0, 1)
    decide(b.settings, MANAGED, Decision(TAKE, "dora"))
    assert b.look().trouble == trouble
    assert (b.text, b.reloads) == ("", 0)
    a.change(LIMIT.format(33))
    assert b.look() == KindStatus(version=3, newest=3)


def test_what_is_each_nodes_own_is_not_given(made: Made) -> None:
    a = made("a")
    a.managed.write_text('[[listener]]\naddress = "127.0.0.1:2525"\nkind = "submission"\n')
    trouble = a.look().trouble
    assert "has listener" in trouble, trouble
    assert "is each node's own" in trouble
    a.managed.unlink()
    assert a.look() == KindStatus(version=1, newest=1)


def test_a_database_of_an_earlier_time_is_not_believed(made: Made, cluster: Cluster) -> None:
    a = made("a")
    a.look()
    a.change(LIMIT.format(33))
    a.look()
    cluster.primary.sql("delete from waypost.settings_state where kind = 'managed' and version = 2")
    cluster.primary.sql("update waypost.settings set version = 1 where kind = 'managed'")
    assert "restored to an earlier time" in a.look().trouble
    assert a.limit() == 33
    a.give()
    assert a.look() == KindStatus(version=2, newest=2)
    assert a.limit() == 33


SIGNED = '[[dkim]]\ndomain = "example.org"\nselector = "s"\nkey = "{}"\n'


def give_signed(home: Home) -> Reference:
    """Settings of the versions 2 and 3, which name a kept key."""
    pem = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    home.look()
    home.change(LIMIT.format(33))
    home.look()
    key = KeptStore(home.settings.home).put("dkim", "s._domainkey.example.org", pem)
    with home.store.changing(MANAGED) as change:
        change.keep(key, pem)
        change.write(State("0" * 16, 1.0, "alice", "", [], SIGNED.format(key), node=home.name))
    return key


# -- who writes and reads the rows


def test_a_node_that_is_not_in_takes_and_changes_nothing(made: Made) -> None:
    a, b, stranger = made("a"), made("b"), made("stranger", joins=False)
    for home in (a, b):
        home.look()
    stranger.taking.look(stranger.connection)
    assert status_in(stranger.settings.run_directory) is None
    joining.remove(a.settings, "b")
    a.change(LIMIT.format(33))
    a.look()
    assert "node b is not in" in b.look().trouble
    assert b.text == ""
    with pytest.raises(FaultError, match="node b is not in"):
        b.change(LIMIT.format(55))
    assert {each.node for each in read_taken(a.connection)} == {"a"}


def test_with_the_database_away_a_change_is_refused_and_nothing_is_done(made: Made, cluster: Cluster) -> None:
    a = made("a")
    a.look()
    store = SettingsStore(a.settings)
    cluster.standby.pause_receiver()
    with pytest.raises(FaultError, match="nothing was changed"), store.changing(MANAGED) as change:
        change.write(State("0" * 16, 1.0, "alice", "", [], LIMIT.format(33)))
    cluster.standby.resume_receiver()
    a.taking.away("no server answers")
    status = status_in(a.settings.run_directory)
    assert status is not None
    assert list(status.troubles(time.time())) == ["the database of the nodes cannot be asked: no server answers"]
    assert a.look().version == 1
    assert a.text == ""
