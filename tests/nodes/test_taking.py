"""One node takes over the settings that all nodes have once, out of what a process that was killed has left at any step.

Proves law: settings-once, law: keys-stay-secret (docs/laws.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol, cast

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from mailcore.config.kept_files import Reference, kept_path
from mailcore.config.load import load, load_managed, managed_path
from mailcore.config.managed_history import ManagedHistory, State
from mailcore.config.settings import Settings
from mailcore.config.settings_files import SettingsFiles
from mailcore.config.shared_settings import MANAGED, TUNED, KindStatus, status_in
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
from mailcore.nodes.decision import GIVE, TAKE, Decision, decide, decisions
from mailcore.nodes.settings_store import SettingsStore
from mailcore.nodes.taking import Taking
from mailcore.replication.connection import Connection
from mailcore.replication.settings_rows import read_heads, read_taken
from mailcore.supervisor.child import SETTINGS_NAME, store_settings
from tests.end_to_end.appliance import free_port
from tests.nodes.node import conninfo_of
from tests.replication.cluster import Cluster

FILES = SettingsFiles(partial(load, look_at_certificate=False), load_managed, managed_path)
LIMIT = "[receiver]\nrecipient_limit = {}\n"


@dataclass
class Home:
    """The home of a node, and what looks at its settings."""

    name: str
    config: Path
    settings: Settings
    connection: Connection
    lines: list[str] = field(default_factory=list)
    reloads: int = 0
    taking: Taking = field(init=False)

    def __post_init__(self) -> None:
        self.begin()

    def begin(self, disk: Disk | None = None) -> None:
        """As after a start of the process."""

        def reload() -> None:
            self.reloads += 1
            store_settings(load(self.config), self.settings.run_directory / SETTINGS_NAME)

        kept = KeptStore(self.settings.home)
        self.taking = Taking(
            self.settings, FILES, kept, faults=faults_here, say=self.lines.append, reload=reload, disk=disk
        )

    def look(self) -> KindStatus:
        """Until nothing is left to do: what is known of the managed settings then."""
        return self.look_at(MANAGED)

    def look_at(self, kind: str) -> KindStatus:
        for _ in range(4):
            self.taking.look(self.connection)
        return self.status(kind)

    def status(self, kind: str) -> KindStatus:
        status = status_in(self.settings.run_directory)
        assert status is not None
        return status.kinds[kind]

    @property
    def managed(self) -> Path:
        return self.settings.home / "managed.toml"

    @property
    def text(self) -> str:
        return self.managed.read_text() if self.managed.exists() else ""

    @property
    def store(self) -> SettingsStore:
        return SettingsStore(self.settings)

    def change(self, text: str, kind: str = MANAGED, who: str = "alice") -> State:
        """As the process that makes a change, which is killed behind the commit."""
        with self.store.changing(kind) as change:
            return change.write(State("0" * 16, time.time(), who, "a reason", [], text, node=self.name))

    def give(self, kind: str = MANAGED, why: str = "") -> None:
        """As waypost node settings --give."""
        decide(self.settings, kind, Decision(GIVE, "dora", why, read_heads(self.connection).get(kind, 0)))

    def edit(self, text: str) -> None:
        self.managed.write_text(text)

    def history(self) -> list[State]:
        return ManagedHistory(self.settings.home, Disk()).read()[0]

    def limit(self) -> int:
        return load(self.config).receiver.recipient_limit


Data = bytes | bytearray | memoryview


class Made(Protocol):
    def __call__(self, name: str, *, joins: bool = True) -> Home: ...


@pytest.fixture
def made(cluster: Cluster, tmp_path: Path) -> Iterator[Made]:
    homes: list[Home] = []

    def make(name: str, *, joins: bool = True) -> Home:
        own = tmp_path / name
        for below in ("home", "home/run", "home/log", "home/queue", "home/spool"):
            (own / below).mkdir(parents=True, exist_ok=True)
        config = own / "waypost.toml"
        config.write_text(
            f'home = "home"\n[nodes]\ndatabase = "{conninfo_of(cluster)}"\nnode = "{name}"\n'
            f'listen = "127.0.0.1:{free_port()}"\n'
        )
        settings = load(config)
        store_settings(settings, settings.run_directory / SETTINGS_NAME)
        home = Home(name, config, settings, cluster.connect())
        if joins and homes:
            joining.join(settings, joining.add(homes[0].settings, name, 5))
        elif joins:
            joining.begin(settings, again=False)
        homes.append(home)
        return home

    yield make
    for home in homes:
        home.connection.close()


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
        a.settings, FILES, KeptStore(a.settings.home), faults=faults_here, say=a.lines.append, reload=reload,
        clock=lambda: now,
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
    assert (b.limit(), b.store.notes().versions) == (44, {})
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
    assert any("is dropped, because there is version 3 by now" in line for line in b.lines), b.lines
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


# -- another authority

SIGNED = '[[dkim]]\ndomain = "example.org"\nselector = "s"\nkey = "{}"\n'


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
    assert list(status.troubles()) == ["the database of the nodes cannot be asked: no server answers"]
    assert a.look().version == 1
    assert a.text == ""
