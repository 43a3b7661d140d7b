"""The process above the supervisors of several shards: it adds and removes them, restarts them, and speaks for them."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from mailcore.config.core import Core
from mailcore.config.known_shards import known_shards
from mailcore.config.settings import Settings
from mailcore.config.shards import of_shard
from mailcore.lab.lab import Lab
from mailcore.supervisor import node as node_module
from mailcore.supervisor import preparation
from mailcore.supervisor.listen import listen
from mailcore.supervisor.node import Node, Shard
from mailcore.supervisor.pulse import Pulse
from mailcore.supervisor.reloading import Plan
from mailcore.supervisor.shard import NodeService, OfNode
from mailcore.supervisor.supervisor import Supervisor
from tests.end_to_end.appliance import alive, free_port
from tests.eventually import PATIENCE_S, eventually
from tests.receiver.running_receiver import settings_in
from tests.running.running_shards import running_shards
from tests.supervisor.test_watchdog import Systemd


def _works(settings: Settings, of_node: OfNode, service: NodeService, read: Callable[[], Settings]) -> int:
    """In place of a supervisor: it works until it is killed."""
    service.ready()
    while True:
        service.alive()
        time.sleep(0.05)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setattr(node_module, "supervise", _works)
    settings = replace(settings_in(tmp_path), core=Core(shards=2))
    settings.log_directory.mkdir()
    made = Node(settings, {}, lambda settings: True)
    yield made
    for number in list(made.shards):
        made.remove(number)


def shard(number: int, *, is_open: bool = True) -> Shard:
    return Shard(number, partial(of_shard, number=number), is_open)


def look_until(node: Node, true: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end
        node._look()
        time.sleep(0.01)


def test_a_shard_is_added_and_removed_while_the_others_work(node: Node) -> None:
    run = node.settings.run_directory
    node.add(shard(0))
    look_until(node, lambda: node.shards[0].has_begun)
    first = node.shards[0].process
    assert first is not None
    assert [(each.number, each.is_open) for each in known_shards(run)] == [(0, True)]
    node.add(shard(7, is_open=False))
    look_until(node, lambda: node.shards[7].has_begun)
    added = node.shards[7].process
    assert added is not None
    assert [(each.number, each.is_open) for each in known_shards(run)] == [(0, True), (7, False)]
    node.remove(7)
    assert not alive(added.pid)
    node._look()
    assert [each.number for each in known_shards(run)] == [0]
    assert json.loads((run / "processes.json").read_text()) == {"supervisor": os.getpid(), "supervisor@0": first.pid}
    assert alive(first.pid)


def test_a_supervisor_that_ends_or_hangs_starts_again(node: Node) -> None:
    node.settings = replace(node.settings, supervisor=replace(node.settings.supervisor, silent_s=0.5))
    node.add(shard(0))
    look_until(node, lambda: node.shards[0].has_begun)
    pids = set()
    for signal_number in (signal.SIGKILL, signal.SIGSTOP):
        process = node.shards[0].process
        assert process is not None
        pids.add(process.pid)
        os.kill(process.pid, signal_number)
        look_until(node, lambda: (now := node.shards[0].process) is not None and now.pid not in pids)
        pulse = node.shards[0].pulse
        assert pulse is not None
        look_until(node, lambda: pulse.has_begun)  # noqa: B023
    assert node.shards[0].restarts == 2
    assert not any(map(alive, pids))


def test_systemd_is_answered_while_any_shard_works(node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard that does not get up again, such as one whose disk is gone, must not end the others."""
    told: list[str] = []
    monkeypatch.setattr(node.service, "alive", lambda: told.append("alive"))
    monkeypatch.setattr(node.service, "ready", lambda: told.append("ready"))
    for number in (0, 1):
        node.add(shard(number))
    node._notify()
    assert "ready" not in told
    look_until(node, lambda: "ready" in told)
    assert all(each.has_begun for each in node.shards.values())

    class Silent(Pulse):
        def silent_s(self) -> float:
            return 1000.0

    def silence(number: int) -> None:
        silent = Silent()
        silent.started()
        pulse, node.shards[number].pulse = node.shards[number].pulse, silent
        assert pulse is not None
        pulse.close()

    told.clear()
    silence(1)
    node._notify()
    assert told == ["alive"]
    silence(0)
    node._notify()
    assert told == ["alive"]


@pytest.mark.parametrize("shard", [None, 0, 1])
def test_an_address_of_a_reload_may_be_that_of_another_shard_already(
    shard: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node's process has looked at it, before any shard listens there."""
    monkeypatch.setattr(preparation, "LOCK_WAIT_S", 0.0)
    settings = settings_in(tmp_path)
    settings = settings if shard is None else of_shard(settings, shard)
    for directory in (settings.log_directory, settings.run_directory):
        directory.mkdir(parents=True, exist_ok=True)
    address = f"127.0.0.1:{free_port()}"
    with listen(address):
        new = replace(settings, receiver=replace(settings.receiver, listen=(*settings.receiver.listen, address)))
        watching = Supervisor(settings, {}, settings.run_directory / "settings.json")
        why = watching._take_over(Plan(new, frozenset(), ()))
    assert (why == "") == (shard is not None), why


async def test_systemd_hears_once_that_all_shards_are_ready_and_none_of_their_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemd = Systemd(tmp_path / "notify", monkeypatch)
    try:
        async with Lab(["accept:127.0.0.1:0"]) as lab, running_shards(tmp_path, lab):
            heard: list[bytes] = []

            def answered() -> bool:
                heard.extend(systemd.heard())
                return heard.count(b"WATCHDOG=1") >= 3

            await eventually(answered, "three answers")
            assert heard.count(b"READY=1") == 1
            assert heard.index(b"READY=1") < heard.index(b"WATCHDOG=1")
            status = [line for line in heard if line.startswith(b"STATUS=")]
            assert status[-1].startswith(b"STATUS=2 shards")
    finally:
        systemd.socket.close()
