"""``waypost doctor`` on a node: the database, whether it has joined, and whether it reaches the one that divides the limits."""

from __future__ import annotations

import dataclasses
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from mailcore.config.settings import Settings
from mailcore.doctor import nodes
from mailcore.doctor.finding import Finding, State
from mailcore.doctor.host import Host
from mailcore.nodes import joining
from mailcore.nodes.node_files import directory_of
from mailcore.nodes.parameters import parameters_of
from mailcore.nodes.trust import Trust
from mailcore.replication.connection import Connection
from mailcore.replication.giver_row import make_giver
from tests.end_to_end.appliance import free_port
from tests.nodes.test_owner import home
from tests.replication.cluster import Cluster


def listening(directory: Path, cluster: Cluster, node: str) -> Settings:
    settings = home(directory, cluster, node)
    listen = f"127.0.0.1:{free_port()}"
    return dataclasses.replace(settings, nodes=dataclasses.replace(settings.nodes, listen=listen))


def found(settings: Settings) -> dict[str, Finding]:
    return {each.what: each for each in nodes.look(Host(settings, settings.home / "waypost.toml"))}


def gives(settings: Settings) -> None:
    with closing(Connection.open(parameters_of(settings))) as connection:
        make_giver(connection, 1, f"{settings.nodes.node}/1.x", settings.nodes.listen)


@contextmanager
def answering(at: Settings, who: Settings) -> Iterator[None]:
    """A giver at the address of one node, with the certificate of another."""
    host, port = at.nodes.listen.split(":")
    context = Trust(who, who.nodes.node, "").context(server=True)
    with socket.create_server((host, int(port))) as server:

        def serve() -> None:
            try:
                with context.wrap_socket(server.accept()[0], server_side=True) as client:
                    client.recv(1)
            except OSError:
                pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield
        thread.join()


@pytest.fixture
def two(cluster: Cluster, tmp_path: Path) -> tuple[Settings, Settings]:
    """Nodes that have joined."""
    a, b = (listening(tmp_path, cluster, name) for name in "ab")
    joining.begin(a, again=False)
    joining.join(b, joining.add(a, "b", 30))
    return a, b


def test_without_a_database_there_is_nothing_to_say(cluster: Cluster, tmp_path: Path) -> None:
    settings = home(tmp_path, cluster, "a")
    alone = dataclasses.replace(settings, nodes=dataclasses.replace(settings.nodes, database=""))
    assert {each.state for each in found(alone).values()} == {State.GOOD}
    assert found(settings)["limits of destinations"].state is State.GOOD


def test_a_node_that_listens_and_has_not_joined_is_told_how(cluster: Cluster, tmp_path: Path) -> None:
    a = listening(tmp_path, cluster, "a")
    first = found(a)["this node"]
    assert (first.state, "waypost node begin" in first.remedy) == (State.BAD, True)
    joining.begin(a, again=False)
    assert found(a)["this node"].state is State.GOOD
    b = found(listening(tmp_path, cluster, "b"))
    assert b["this node"].state is State.BAD
    assert b["this node"].remedy == "Run waypost node add b on a, and waypost node join here."
    assert "limits of destinations" not in b


def test_a_giver_that_cannot_be_reached_is_named(two: tuple[Settings, Settings]) -> None:
    a, b = two
    assert found(a)["limits of destinations"].state is State.WARN
    gives(b)
    assert found(b)["limits of destinations"].found == "this node divides them"
    away = found(a)["limits of destinations"]
    assert away.state is State.BAD
    assert f"cannot be reached at {b.nodes.listen}" in away.found
    with answering(b, who=b):
        assert found(a)["limits of destinations"].state is State.GOOD
    with answering(b, who=a):
        other = found(a)["limits of destinations"]
    assert "the certificate there is that of another node" in other.found


def test_a_giver_that_was_removed_is_named(two: tuple[Settings, Settings]) -> None:
    a, b = two
    gives(b)
    joining.remove(a, "b")
    assert "is not one that has joined" in found(a)["limits of destinations"].found


def test_a_database_that_cannot_be_reached_or_used_is_named(own_cluster: Cluster, tmp_path: Path) -> None:
    a = listening(tmp_path, own_cluster, "a")
    own_cluster.primary.settle("synchronous_standby_names = ''")
    assert "synchronous_standby_names" in found(a)["database"].found
    own_cluster.kill()
    assert found(a)["database"].state is State.BAD


def test_it_changes_nothing(two: tuple[Settings, Settings], cluster: Cluster) -> None:
    a, b = two
    gives(b)
    before = cluster.primary.sql("select node, address from waypost.node_trust order by node")
    moved = dataclasses.replace(a, nodes=dataclasses.replace(a.nodes, address="a.example:25"))
    found(moved)
    assert cluster.primary.sql("select node, address from waypost.node_trust order by node") == before
    assert directory_of(a).stat().st_mode & 0o777 == 0o700
