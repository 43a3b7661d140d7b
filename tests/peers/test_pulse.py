"""The process that passes questions on, stopped: it is killed, started again, and the other nodes are asked as before."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.end_to_end.appliance import free_port
from tests.nodes.joined import joined
from tests.peers.test_one_place import WAITING, A, B, sees
from tests.replication.cluster import Cluster
from tests.shares.counting_sink import CountingSink

SILENT_S = 5.0  # a node with two shards on two busy cores beats within this time


async def test_a_process_peers_that_hangs_is_killed_and_started_again(own_cluster: Cluster, tmp_path: Path) -> None:
    sink = CountingSink()
    sink.port = free_port()
    settings: dict[str, dict[str, object]] = {**WAITING, "supervisor": {"silent_s": SILENT_S}}
    async with joined(tmp_path, own_cluster, sink, "ab", settings) as nodes:
        await nodes.accept("a", A)
        await nodes.accept("b", B)
        a, b = nodes.nodes["a"], nodes.nodes["b"]
        await sees(a, A + B)
        hanging, others = a.processes()["peers"], {name: pid for name, pid in a.processes().items() if name != "peers"}
        os.kill(hanging, signal.SIGSTOP)
        await a.until(lambda: a.processes().get("peers", hanging) != hanging, "a new process")
        told = (a.home / "log" / "mail.log").read_text()
        assert f"process peers pid {hanging} ended: signal SIGKILL, as it had hung for" in told
        await sees(a, A + B)
        await sees(b, A + B)
        now = a.processes()
        assert {name: now.get(name) for name in others} == others, "no other process was touched"
