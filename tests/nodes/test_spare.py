"""A node that waits: what systemd hears of it, what its supervisor is, and what clients hear while no database is there."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from mailcore.lab.lab import Lab
from tests.end_to_end.appliance import Appliance, alive
from tests.eventually import eventually
from tests.nodes.node import Node
from tests.nodes.test_ways_in import SMALL, over_smtp
from tests.replication.cluster import Cluster
from tests.replication.writing import SHARD
from tests.running.running_core import recipients_of
from tests.supervisor.test_watchdog import Systemd

SPARE = f"This node waits: shard {SHARD} belongs to other; this node is its spare."


def has_driver(pid: int) -> bool:
    return "psycopg" in Path(f"/proc/{pid}/maps").read_text()


async def test_systemd_hears_from_a_spare_that_waits_and_its_supervisor_loads_no_driver(
    own_cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_cluster.primary.sql(
        f"insert into waypost.shard (name, number, epoch, owner) values ('{SHARD}', 1, 1, 'other/x/y/z')"
    )
    async with Lab(["accept:127.0.0.1:0"]) as lab:
        node = Node(tmp_path, "b", own_cluster, lab)
        systemd = Systemd(tmp_path / "notify", monkeypatch)
        node.launch()
        try:
            heard: list[bytes] = []

            def answered() -> bool:
                heard.extend(systemd.heard())
                return heard.count(b"WATCHDOG=1") >= 3

            await eventually(answered, "three answers")
            assert b"READY=1" in heard
            status = f"STATUS=shard {SHARD} belongs to other; this node is its spare".encode()

            def told() -> bool:
                heard.extend(systemd.heard())
                return status in heard

            await eventually(told, lambda: str(heard))
            code, said, _ = await node._run("status")
            assert (code, json.loads(said)["waits"]) == (0, SPARE)
            assert [(each["name"], each["node"]) for each in json.loads(said)["nodes"]["shards"]] == [(SHARD, "other")]
            code, _, said = await node._run("queue", "size")
            assert (code, json.loads(said)["error"]["message"]) == (3, SPARE)
            pid = node.processes()["supervisor"]
            assert len(os.listdir(f"/proc/{pid}/task")) == 1
            assert not has_driver(pid)
            await node.ready()  # the other one is silent
            assert not has_driver(pid)
            assert has_driver(node.processes()["manager"])
        finally:
            node.stop()
            systemd.socket.close()


async def test_a_queue_that_is_alone_loads_nothing_of_a_database(tmp_path: Path) -> None:
    appliance = Appliance(tmp_path, {}, {"export": {"enabled": True}})
    await appliance.start()
    try:
        processes = appliance.processes()
        assert {"supervisor", "receiver.0", "manager", "control", "deliverer.0", "exporter"} <= processes.keys()
        assert [name for name, pid in processes.items() if has_driver(pid)] == []
        assert not (appliance.home / "run" / "shard.json").exists()
    finally:
        appliance.stop()


async def test_receivers_that_begin_without_a_database_refuse_clients_until_it_is_there(
    own_cluster: Cluster, tmp_path: Path
) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab:
        node = Node(tmp_path, "a", own_cluster, lab)
        await node.start()
        try:
            await asyncio.to_thread(own_cluster.standby.stop)
            await asyncio.to_thread(own_cluster.primary.stop)
            before = node.processes()["receiver.0"]
            os.kill(before, signal.SIGKILL)
            await node.until(lambda: not alive(before), "the end of the receiver")

            async def refused() -> bool:
                try:
                    reader, writer = await asyncio.open_connection(*node.address)
                except OSError:
                    return False
                try:
                    line = await reader.readline()
                except ConnectionError:  # the sockets of the receiver before
                    return False
                finally:
                    writer.close()
                return line.startswith(b"421 4.3.0 Error: the database does not answer")

            await node.until(refused, "421")
            own_cluster.primary.start()
            own_cluster.standby.start()
            await node.ready()
            await asyncio.to_thread(over_smtp, node, "a@example.net", SMALL)
            await node.until(lambda: recipients_of(lab.messages) == ["a@example.net"], "the message")
        finally:
            node.stop()
