"""Who may do what is the kernel's word, not the client's."""

from __future__ import annotations

import grp
import os
import socket
import subprocess
import sys

from mailcore.control.access import Peer, RemotePeer, group_id, peer_of
from mailcore.control.protocol.operation import Access
from mailcore.frames import ForClient
from tests.test_tidy import ROOT

NOBODY = 65_534


def test_the_kernel_says_who_is_there() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, theirs:
        peer = peer_of(ours.getsockopt)
    assert (peer.pid, peer.uid) == (os.getpid(), os.getuid())
    assert {os.getgid(), *os.getgroups()} == peer.groups


def test_root_and_the_daemons_user_may_change_things_and_others_may_read() -> None:
    for uid in (0, os.geteuid()):
        assert Peer(1, uid, frozenset()).may(Access.CHANGE, None)
    stranger = Peer(1, NOBODY, frozenset({NOBODY}))
    assert stranger.may(Access.READ, None)
    assert not stranger.may(Access.CHANGE, None)
    assert not stranger.may(Access.CHANGE, 4711)


def test_members_of_the_group_may_change_things() -> None:
    member = Peer(1, NOBODY, frozenset({NOBODY, 4711}))
    assert member.may(Access.CHANGE, 4711)
    assert not member.may(Access.CHANGE, 4712)


def test_nobody_may_ask_what_only_control_asks() -> None:
    assert not Peer(1, 0, frozenset({0})).may(Access.INTERNAL, 0)


def test_only_the_trusted_may_say_for_whom_they_act() -> None:
    assert Peer(1, 0, frozenset()).who("alice") == "alice (uid 0)"
    assert Peer(1, 0, frozenset()).who("") == "root (uid 0)"
    assert Peer(1, NOBODY, frozenset()).who("alice") == "nobody (uid 65534)"
    assert Peer(1, 4_000_000, frozenset()).who("alice") == "unknown (uid 4000000)"
    assert len(Peer(1, 0, frozenset()).who("a" * 10_000)) < 300


def test_a_node_tells_another_what_its_client_may() -> None:
    """The group is that of the node where the client is."""
    assert Peer(1, NOBODY, frozenset({4711})).elsewhere(2, 4711) == ForClient(2, "nobody", NOBODY, True, False)
    assert Peer(1, NOBODY, frozenset({4711})).elsewhere(2, None) == ForClient(2, "nobody", NOBODY, False, False)
    assert Peer(1, 0, frozenset()).elsewhere(2, None) == ForClient(2, "root", 0, True, True)


def test_a_client_of_another_node_may_do_what_its_node_says_and_nothing_about_the_machine() -> None:
    """About the machine: tests/control/test_server.py."""
    for may_change in (False, True):
        peer = RemotePeer(ForClient(2, "anna", 0, may_change, False, "mx1"))
        assert peer.may(Access.READ, None)
        assert peer.may(Access.CHANGE, 0) is may_change, "not by its number, which is another's here"
        assert not peer.may(Access.INTERNAL, 0)
        assert peer.who("root") == "anna (uid 0) at mx1"
    trusted = RemotePeer(ForClient(2, "root", 0, True, True, "mx1"))
    assert trusted.who("alice") == "alice (uid 0) at mx1"
    assert len(trusted.who("a" * 10_000)) < 300


def test_a_group_is_looked_up_by_name() -> None:
    group = grp.getgrall()[0]
    assert group_id(group.gr_name) == group.gr_gid
    assert group_id("") is None
    assert group_id("no such group") is None


def test_all_groups_of_a_real_client_are_known() -> None:
    groups = [4, 1001, 70_000] if os.geteuid() == 0 else os.getgroups()
    script = (
        "import socket; from mailcore.control.access import peer_of;"
        "print(*sorted(peer_of(socket.socketpair()[0].getsockopt).groups))"
    )
    taking = ["setpriv", "--groups=" + ",".join(map(str, groups))] if os.geteuid() == 0 else []
    done = subprocess.run([*taking, sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert {int(word) for word in done.stdout.split()} == {os.getegid(), *groups}
