"""The connections of one node are counted behind their handshake, and the one that watches always has a place."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mailcore.faults import Code
from mailcore.frames import ForClient, Response, encode
from mailcore.peers import asked
from mailcore.peers.asked import WATCH, Asked, _NodeSide
from mailcore.peers.first_frame import take_frame
from tests.eventually import eventually


class Wire:
    """The transport of a connection."""

    def __init__(self) -> None:
        self.said = bytearray()
        self.is_over = False

    def write(self, data: bytes) -> None:
        self.said += data

    def close(self) -> None:
        self.is_over = True

    def abort(self) -> None:
        self.is_over = True

    def pause_reading(self) -> None:
        """Nothing comes by itself."""


class Node:
    """The connections that nodes have here; none gets to a shard."""

    def __init__(self, tmp_path: Path) -> None:
        settings: Any = SimpleNamespace(nodes=SimpleNamespace(listen="127.0.0.1:2526"), run_directory=tmp_path)
        self.asked = Asked(settings, cast(Any, None), lambda _: None)
        self.opened: list[_NodeSide] = []
        self.asked.open = lambda side, client: self.opened.append(side)  # type: ignore[method-assign]

    def connect(self) -> tuple[_NodeSide, Wire]:
        side, wire = _NodeSide(self.asked), Wire()
        side.connection_made(cast(asyncio.Transport, wire))
        return side, wire

    def asks(self, node: str, shard: int) -> tuple[_NodeSide, Wire]:
        side, wire = self.connect()
        side.guard = cast(Any, SimpleNamespace(node=node))
        side.heard(encode(ForClient(shard, "anna", 1000, False, False)))
        return side, wire


def refused(wire: Wire) -> bool:
    frame = take_frame(wire.said, 4096) if wire.said else None
    fault = frame.error if isinstance(frame, Response) else None
    return wire.is_over and fault is not None and fault.code == Code.UNAVAILABLE


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr(asked, "CONNECTIONS_MAX", 3)
    return Node(tmp_path)


async def test_a_node_has_a_bound_of_its_own_and_may_always_watch(node: Node) -> None:
    sides = [node.asks("b", 1) for _ in range(3)]
    assert len(node.opened) == 3
    fourth, wire = node.asks("b", 1)
    assert refused(wire)
    fourth.connection_lost(None)
    watching, wire = node.asks("b", WATCH)
    assert not wire.is_over, "else the node would be called silent"
    _, wire = node.asks("b", WATCH)
    assert refused(wire)
    _, wire = node.asks("c", 1)
    assert not wire.is_over, "another node has its own"
    assert len(node.opened) == 4
    watching.connection_lost(None)
    sides[0][0].connection_lost(None)
    for side, _ in [*sides[1:]]:
        side.connection_lost(None)
    _, wire = node.asks("b", 1)
    assert not wire.is_over


async def test_a_connection_that_does_not_say_for_which_shard_ends(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked, "CONNECT_S", 0.01)
    _, watching = node.asks("b", WATCH)
    _, wire = node.connect()
    await eventually(lambda: wire.is_over, "the end of the connection")
    assert not watching.is_over
