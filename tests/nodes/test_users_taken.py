"""One node takes over the users that all nodes have once, out of what a process that was killed has left at any step.

Proves law: settings-once, law: users-replaced-atomically (docs/laws.md).
"""

from __future__ import annotations

import fcntl
import os
import stat
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from mailcore.config.shared_settings import SILENT_S, USERS, KindStatus, SharedStatus
from mailcore.control.changing_users import change_users
from mailcore.control.mail_users import MailUsers
from mailcore.control.view import View
from mailcore.faults import Code, FaultError
from mailcore.nodes import joining, settings_store, taking
from mailcore.nodes.decision import TAKE, Decision, decide
from mailcore.nodes.settings_store import SettingsStore
from mailcore.nodes.users_taken import UsersFile
from mailcore.replication import settings_rows
from mailcore.replication.connection import Connection
from mailcore.replication.settings_rows import Bounds, Head, read_states, read_taken
from mailcore.users.user import User
from mailcore.users.user_file import changing, read_users
from mailcore.users.verifier import DECOY
from tests.eventually import eventually_blocking
from tests.nodes.settings_home import Home, Made
from tests.replication.cluster import Cluster


def user(name: str, senders: tuple[str, ...] = ("example.org",)) -> User:
    return User(name=name, verifier=DECOY, senders=senders)


def add(home: Home, *names: str, who: str = "alice") -> None:
    """As control or the command at this node."""
    change_users(home.settings, home.store, lambda users: users.update({each: user(each) for each in names}), who)


def remove(home: Home, name: str) -> None:
    change_users(home.settings, home.store, lambda users: users.pop(name))


def names(home: Home) -> list[str]:
    return [each.name for each in read_users(home.settings.users_file)]


def text(home: Home) -> str:
    return home.settings.users_file.read_text()


def had(home: Home, *names: str) -> None:
    """Users of this node, of a time before."""
    with changing(home.settings.users_file, home.settings.home) as users:
        users.update({each: user(each) for each in names})


def looked(*homes: Home) -> list[KindStatus]:
    return [home.look_at(USERS) for home in homes]


def both(made: Made) -> tuple[Home, Home]:
    a, b = made("a"), made("b")
    assert looked(a, b) == [KindStatus(version=1, newest=1)] * 2
    return a, b


# -- a change comes to all nodes


def test_law_settings_the_first_node_gives_its_users_and_all_have_the_same_key_of_salts(made: Made) -> None:
    a, b = made("a"), made("b")
    had(a, "anna", "bert")
    assert looked(a, b) == [KindStatus(version=1, newest=1)] * 2
    assert names(b) == ["anna", "bert"]
    assert text(a) == text(b)
    for home in (a, b):
        status = home.settings.users_file.stat()
        assert stat.S_IMODE(status.st_mode) == 0o640
    found = [read_users(home.settings.users_file).scram_verifier("nobody") for home in (a, b)]
    assert found[0] == found[1], "a client must not see at which node it is"
    assert any("users of all nodes: version 1 is taken over (waypost at node a" in line for line in b.lines), b.lines


def test_a_user_who_is_added_at_one_node_and_removed_at_another(made: Made) -> None:
    a, b = both(made)
    add(a, "anna")
    assert looked(b, a) == [KindStatus(version=2, newest=2)] * 2
    assert names(b) == ["anna"]
    remove(b, "anna")
    assert looked(a) == [KindStatus(version=3, newest=3)]
    assert names(a) == []
    assert text(a) == text(b)


def test_law_settings_a_change_of_one_user_goes_together_with_that_of_another(made: Made) -> None:
    """b has not taken over what a has changed, and changes another user."""
    a, b = both(made)
    add(a, "anna", "old")
    looked(b)
    add(a, "carl")
    remove(a, "old")
    add(b, "bert")
    assert names(b) == ["anna", "bert", "carl"]
    looked(a, b)
    assert names(a) == ["anna", "bert", "carl"]
    assert text(a) == text(b)


def test_law_settings_changes_at_two_nodes_at_once_are_all_there(made: Made) -> None:
    a, b = both(made)
    failed: list[BaseException] = []

    def work(home: Home) -> None:
        for number in range(8):
            while True:
                try:
                    add(home, f"{home.name}{number}")
                    break
                except FaultError as error:
                    if error.code is not Code.BUSY:  # others were faster, five times
                        failed.append(error)
                        return

    threads = [threading.Thread(target=work, args=(home,)) for home in (a, b)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    looked(a, b)
    assert names(a) == sorted(f"{name}{number}" for name in "ab" for number in range(8))
    assert text(a) == text(b)


def test_law_settings_a_change_that_was_made_for_another_state_of_the_user_is_asked_again(made: Made) -> None:
    """Between the look at the users and the write another node changes the same user."""
    a, b = both(made)
    add(a, "anna")
    looked(b)
    seen = []

    def edit(users: dict[str, User]) -> None:
        seen.append(sorted(users))
        if len(seen) == 1:
            remove(b, "anna")
        del users["anna"]

    with pytest.raises(KeyError):
        change_users(a.settings, a.store, edit)
    assert seen == [["anna"], []]
    looked(a, b)
    assert names(a) == []


def test_law_settings_users_have_changed_here_only_when_all_nodes_have_them(made: Made) -> None:
    """Another node is faster each time."""
    a, b = both(made)
    tries: list[int] = []

    def edit(users: dict[str, User]) -> None:
        tries.append(len(tries))
        add(b, f"faster{tries[-1]}")
        users["anna"] = user("anna")

    with pytest.raises(FaultError, match="other users are changed at this moment; nothing was changed") as refused:
        change_users(a.settings, a.store, edit)
    assert refused.value.code is Code.BUSY
    assert names(a) == []
    looked(a, b)
    assert names(a) == names(b) == [f"faster{number}" for number in tries]


# -- kills


@pytest.mark.parametrize("step", range(4))
def test_law_settings_a_process_is_killed_in_a_change(made: Made, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """0: behind the commit; 1: the mark of the file is written; 2: and the new file; 3: it has its name."""
    a, b = both(made)
    add(a, "anna")
    looked(a, b)
    before = text(a)
    with monkeypatch.context() as patch:
        killed_at(step, patch)
        with pytest.raises(KeyboardInterrupt):
            add(a, "bert")
    assert (text(a) == before) == (step < 3)
    a.begin()
    assert looked(a, b) == [KindStatus(version=3, newest=3)] * 2
    assert names(a) == names(b) == ["anna", "bert"]
    add(b, "carl")
    assert looked(a) == [KindStatus(version=4, newest=4)]


@pytest.mark.parametrize("step", range(4))
def test_law_settings_what_watches_is_killed_and_others_change_more_than_is_kept(
    made: Made, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """The states that this node had are gone by then; what it has is no hand edit all the same."""
    monkeypatch.setitem(settings_store._BOUNDS, USERS, settings_store.USERS_BOUNDS._replace(states_max=2))
    a, b = both(made)
    add(a, "anna")
    looked(b)
    add(a, "bert")
    with monkeypatch.context() as patch:
        killed_at(step, patch)
        with pytest.raises(KeyboardInterrupt):
            looked(b)
    for number in range(3):
        add(a, f"more{number}")
    assert len(read_states(a.connection, USERS)) == 2
    b.begin()
    assert looked(b) == [KindStatus(version=6, newest=6)]
    assert text(a) == text(b)


def killed_at(step: int, patch: pytest.MonkeyPatch) -> None:
    """Ends the process by an exception that nothing catches."""
    store = SettingsStore
    note_file, note = store.note_file, store.note

    def before_the_mark(store: SettingsStore, kind: str, mark: str) -> None:
        raise KeyboardInterrupt

    def behind_the_mark(store: SettingsStore, kind: str, mark: str) -> None:
        note_file(store, kind, mark)
        raise KeyboardInterrupt

    def at_the_name(new: Path, path: Path) -> None:
        if path.name == "users.jsonl":
            raise KeyboardInterrupt
        os.replace(new, path)

    def behind_the_file(store: SettingsStore, kind: str, version: int, mark: str | None = None) -> None:
        if kind == USERS:
            raise KeyboardInterrupt
        note(store, kind, version, mark)

    if step == 2:
        patch.setattr(Path, "replace", at_the_name)
    elif step == 3:
        patch.setattr(store, "note", behind_the_file)
    else:
        patch.setattr(store, "note_file", (before_the_mark, behind_the_mark)[step])


def test_a_new_file_that_a_killed_process_has_left_is_in_no_way(made: Made) -> None:
    a, b = both(made)
    for home in (a, b):
        home.settings.users_file.with_name("users.jsonl.new").write_text("half a li")
    add(a, "anna")
    looked(b)
    assert names(a) == names(b) == ["anna"]
    assert not any(home.settings.users_file.with_name("users.jsonl.new").exists() for home in (a, b))


def test_law_settings_of_an_unknown_outcome_both_nodes_have_the_same(
    made: Made, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit waits for the standby, and the answer is lost."""
    monkeypatch.setitem(
        settings_store._BOUNDS, USERS, settings_store.USERS_BOUNDS._replace(timeout_s=2.0)
    )  # fmt: skip
    monkeypatch.setattr(settings_store, "DECIDE_S", 1.0)
    a, b = both(made)
    write = settings_rows.write_states

    def cut(connection: Connection, kind: str, seen: Head, states: Sequence[tuple[str, bytes]], bounds: Bounds) -> bool:
        cluster.standby.pause_receiver()
        return write(connection, kind, seen, states, bounds)

    with monkeypatch.context() as patch:
        patch.setattr(settings_rows, "write_states", cut)
        with pytest.raises(FaultError) as refused:
            add(a, "anna")
    assert refused.value.code is Code.OUTCOME_UNKNOWN
    cluster.standby.resume_receiver()
    a.connection.close()
    a.connection = cluster.connect()

    def both_have_it() -> bool:  # the commit counts when the standby has it
        looked(a, b)
        return names(a) == names(b) == ["anna"]

    eventually_blocking(both_have_it, "the change at both")


# -- what is not taken over


def test_law_settings_users_that_were_edited_by_hand_are_not_overwritten(made: Made) -> None:
    a, b = both(made)
    add(a, "anna")
    looked(a, b)
    had(b, "hand")
    (status,) = looked(b)
    assert "users.jsonl was changed by hand, and differs from version 2" in status.trouble, status.trouble
    add(a, "bert")
    (status,) = looked(b)
    assert (status.version, names(b)) == (2, ["anna", "hand"])
    with pytest.raises(
        FaultError, match=r"was changed by hand, or.*--take users, or --give users, decides; nothing was"
    ):
        add(b, "carl")
    assert [(each.node, each.kind) for each in read_taken(a.connection) if each.trouble] == [("b", USERS)]
    decide(b.settings, USERS, Decision(TAKE, "dora", "it was a trial"))
    assert looked(b) == [KindStatus(version=3, newest=3)]
    assert names(b) == ["anna", "bert"]
    (aside,) = b.settings.home.glob("users.jsonl.aside.*")
    assert [each.name for each in read_users(aside)] == ["anna", "hand"]
    assert stat.S_IMODE(aside.stat().st_mode) == 0o640
    had(b, "hand")
    looked(b)
    b.give(USERS, "it is right")
    assert looked(b, a) == [KindStatus(version=4, newest=4)] * 2
    assert names(a) == ["anna", "bert", "hand"]


def test_law_settings_a_hand_edit_in_the_middle_of_a_change_is_not_overwritten(made: Made) -> None:
    a, b = both(made)
    add(a, "anna")
    edited = text(a).replace("anna", "hand")

    def edit(users: dict[str, User]) -> None:
        a.settings.users_file.write_text(edited)
        users["bert"] = user("bert")

    change_users(a.settings, a.store, edit)
    assert text(a) == edited
    (of_a, of_b) = looked(a, b)
    assert "was changed by hand, and differs from version 3" in of_a.trouble
    assert (of_b, names(b)) == (KindStatus(version=3, newest=3), ["anna", "bert"])
    assert text(a) == edited


def test_law_settings_a_hand_edit_at_the_moment_of_taking_over_is_not_overwritten(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = both(made)
    add(a, "anna")
    why_not = UsersFile.why_not

    def edit_and_check(file: UsersFile, text: str) -> str:
        had(b, "hand")
        return why_not(file, text)

    with monkeypatch.context() as patch:
        patch.setattr(UsersFile, "why_not", edit_and_check)
        b.taking.look(b.connection)
    assert names(b) == ["hand"]
    (status,) = looked(b)
    assert "was changed by hand" in status.trouble
    assert names(b) == ["hand"]


def test_law_settings_a_file_that_was_removed_by_hand_does_not_come_back_unasked(made: Made) -> None:
    """Nobody may log in with it: perhaps this is why."""
    a, b = both(made)
    add(a, "anna")
    looked(b)
    b.settings.users_file.unlink()
    (status,) = looked(b)
    assert "was changed by hand" in status.trouble
    assert not b.settings.users_file.exists()
    with pytest.raises(FaultError, match="was changed by hand"):
        add(b, "bert")
    decide(b.settings, USERS, Decision(TAKE, "dora"))
    looked(b)
    assert names(b) == ["anna"]


@pytest.mark.parametrize("states_max", [1, 100])
def test_law_settings_an_older_state_that_was_put_back_by_hand_is_a_hand_edit(
    made: Made, monkeypatch: pytest.MonkeyPatch, states_max: int
) -> None:
    """Also where the database has forgotten the state that this node had taken over."""
    monkeypatch.setitem(settings_store._BOUNDS, USERS, settings_store.USERS_BOUNDS._replace(states_max=states_max))
    a, b = both(made)
    add(a, "anna")
    looked(b)
    before = text(b)
    remove(a, "anna")
    looked(b)
    b.settings.users_file.write_text(before)
    add(a, "carl")
    (status,) = looked(b)
    assert "was changed by hand" in status.trouble, "a user who was removed would be there again"
    with pytest.raises(FaultError, match="was changed by hand"):
        add(b, "bert")


def test_law_settings_users_are_not_lost_when_the_database_is_restored_to_an_earlier_time(
    made: Made, cluster: Cluster
) -> None:
    a, b = both(made)
    add(a, "anna")
    looked(b)
    add(a, "bert")
    cluster.primary.sql("delete from waypost.settings_state where kind = 'users' and version = 3")
    cluster.primary.sql("update waypost.settings set version = 2 where kind = 'users'")
    (status,) = looked(a)
    assert "restored to an earlier time" in status.trouble, status.trouble
    with pytest.raises(FaultError, match="restored to an earlier time"):
        add(a, "carl")
    add(b, "dora")
    (status,) = looked(a)
    assert "differs from version 3" in status.trouble, "another version 3 than this node has taken over"
    with pytest.raises(FaultError, match="nothing was changed"):
        add(a, "carl")
    assert names(a) == ["anna", "bert"]
    a.give(USERS)
    assert looked(a, b) == [KindStatus(version=4, newest=4)] * 2
    assert names(b) == ["anna", "bert"]


def test_law_settings_a_node_that_joins_with_users_of_its_own_keeps_them_until_a_person_decides(made: Made) -> None:
    a, b = made("a"), made("b")
    had(a, "anna")
    had(b, "bert")
    looked(a)
    (status,) = looked(b)
    assert "is this node's own, and differs from version 1" in status.trouble, status.trouble
    assert names(b) == ["bert"]
    with pytest.raises(FaultError, match=r"is this node's own.*nothing was changed"):
        add(b, "carl")
    add(a, "carl")
    b.give(USERS)
    add(a, "dora")
    (status,) = looked(b)
    assert "--take or --give" in status.trouble, "what was decided for an older version is dropped"
    decide(b.settings, USERS, Decision(TAKE, "dora"))
    assert looked(b) == [KindStatus(version=3, newest=3)]
    assert names(b) == ["anna", "carl", "dora"]


def test_a_node_that_has_the_same_users_is_not_asked(made: Made) -> None:
    """Such as a home of a backup, or nodes whose files were copied."""
    a, b = made("a"), made("b")
    had(a, "anna")
    b.settings.users_file.write_text(text(a))
    assert looked(a, b) == [KindStatus(version=1, newest=1)] * 2
    add(a, "bert")
    joining.join(b.settings, joining.add(a.settings, "b", 5))
    b.begin()
    assert looked(b) == [KindStatus(version=2, newest=2)]


def test_users_behind_another_authority_do_not_win(made: Made) -> None:
    a, b = both(made)
    add(a, "anna")
    looked(a, b)
    joining.begin(a.settings, again=True)
    remove_by_hand(a, "anna")
    a.give(USERS)
    assert looked(a) == [KindStatus(version=3, newest=3)]
    joining.join(b.settings, joining.add(a.settings, "b", 5))
    (status,) = looked(b)
    assert "--take users takes version 3 over, and --give would undo it" in status.trouble, status.trouble
    assert "waypost node begin --again has made another one since" in status.trouble
    assert names(b) == ["anna"]


def remove_by_hand(home: Home, name: str) -> None:
    with changing(home.settings.users_file, home.settings.home) as users:
        del users[name]


@pytest.mark.parametrize("line", ["by hand\n", '{"name": "x"}\n', "\udcff\n"])
def test_a_file_with_a_fault_is_neither_given_nor_lost(made: Made, line: str) -> None:
    a, b = both(made)
    add(a, "anna")
    looked(b)
    with b.settings.users_file.open("ab") as file:
        file.write(line.encode(errors="surrogateescape"))
    before = b.settings.users_file.read_bytes()
    b.give(USERS)
    (status,) = looked(b)
    assert "users.jsonl:3: " in status.trouble, status.trouble
    assert "correct the file first" in status.trouble
    assert b.settings.users_file.read_bytes() == before
    decide(b.settings, USERS, Decision(TAKE, "dora"))
    looked(b)
    assert names(b) == ["anna"]
    (aside,) = b.settings.home.glob("users.jsonl.aside.*")
    assert aside.read_bytes() == before


def test_users_that_this_node_cannot_read_are_not_taken_over(made: Made) -> None:
    """As of a newer Waypost: no line of them may become a login by half."""
    a, b = both(made)
    add(a, "anna")
    looked(b)
    newer = text(a).replace('"format":1', '"format":2')
    a.change(newer, USERS)
    (status,) = looked(b)
    assert "version 3 by alice at node a can't be used on this node" in status.trouble, status.trouble
    assert "of a newer Waypost" in status.trouble
    assert names(b) == ["anna"]
    with pytest.raises(FaultError, match=r"of a newer Waypost.*nothing was changed"):
        add(b, "bert")


def test_a_change_that_changes_nothing_is_no_version(made: Made) -> None:
    a, b = both(made)
    add(a, "anna")
    looked(b)
    add(b, "anna")
    assert looked(a, b) == [KindStatus(version=2, newest=2)] * 2


@pytest.mark.skipif(os.geteuid() != 0, reason="root may be another user than that of the home")
def test_files_that_a_command_of_root_writes_belong_to_the_user_of_the_home(made: Made) -> None:
    a, _ = both(made)
    home = a.settings.home
    for path in (home, home / "nodes"):
        os.chown(path, 4711, 4712)
    (home / "nodes" / "settings.lock").unlink()
    add(a, "anna")
    for path in (home / "users.jsonl", home / "nodes" / "settings.json", home / "nodes" / "settings.lock"):
        assert path.stat().st_uid == 4711, path


# -- what this node says while it has other users


def told(home: Home) -> str:
    """As the page, the API and the command hear it."""
    return MailUsers(cast(View, None), home.settings, home.store)._known().nodes


def test_a_process_that_holds_the_lock_keeps_users_here_and_this_is_said(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For instance a command that a person has stopped in the middle: a user removed elsewhere still logs in here."""
    monkeypatch.setattr(taking, "BUSY_S", 0.0)
    a, b = both(made)
    add(a, "anna")
    looked(b)
    assert told(b) == ""
    descriptor = os.open(b.store.lock_path, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        remove(a, "anna")
        (status,) = looked(b)
        assert (status.version, status.newest, names(b)) == (2, 3, ["anna"])
        assert "another change of settings or users is under way on this node" in told(b)
        assert str(b.store.lock_path) in told(b)
        assert [each for each in b.warnings if "another change" in each]
        (row,) = [each for each in read_taken(a.connection) if (each.node, each.kind) == ("b", USERS)]
        assert (row.version, row.trouble) == (2, status.trouble)
    finally:
        os.close(descriptor)
    assert looked(b) == [KindStatus(version=3, newest=3)]
    assert told(b) == ""


def test_a_change_that_takes_a_moment_is_no_trouble(made: Made) -> None:
    a, b = both(made)
    with b.store.lock():
        add(a, "anna")
        assert looked(b) == [KindStatus(version=1, newest=1)]


def test_a_version_that_is_not_taken_over_and_a_process_that_does_not_look_are_said() -> None:
    kinds = {USERS: KindStatus(version=3, newest=9)}
    status = SharedStatus(at=1000.0, kinds=kinds)
    assert list(status.troubles(1000.0, (USERS,))) == ["this node has version 3 of 9"]
    assert next(status.troubles(1001.0 + SILENT_S)) == "nothing has looked at them for 16 s"
