"""A node: the real processes of a home whose queue a database keeps, killed, stopped and continued by tests."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path

from mailcore.lab.lab import Lab
from tests.end_to_end.appliance import LINES_AS_THEY_ARE, Appliance, alive
from tests.eventually import eventually_blocking
from tests.replication.cluster import PORT, Cluster
from tests.replication.writing import SHARD

__all__ = ["Node", "conninfo_of"]


def conninfo_of(cluster: Cluster) -> str:
    hosts = ",".join(str(server.directory) for server in cluster.servers)
    return f"host={hosts} port={PORT} dbname=waypost user=waypost sslmode=disable"


class Node(Appliance):
    """A home that owns the shard, or waits for it."""

    def __init__(
        self,
        directory: Path,
        name: str,
        cluster: Cluster,
        lab: Lab,
        sections: Mapping[str, Mapping[str, object]] | None = None,
        *,
        shard: str = SHARD,
    ) -> None:
        own = directory / name
        own.mkdir()
        merged: dict[str, dict[str, object]] = {
            "nodes": {"database": conninfo_of(cluster), "node": name, "shard": shard, "commit_wait_s": 5.0},
            "transports.smtp": {**LINES_AS_THEY_ARE},
        }
        for section, values in (sections or {}).items():
            merged.setdefault(section, {}).update(values)
        super().__init__(own, {"*": "smtp:[{}]:{}".format(*lab.hops[0].address)}, merged)
        self.name = name
        self.shard = shard

    async def ready(self) -> None:
        """Also until the process of the node has written down what its shard has begun."""
        await super().ready()
        await self.until(lambda: {"receiver.0", "manager", "control"} <= self.processes().keys(), "the processes")

    def said(self) -> str:
        return self._tail()

    def log(self) -> list[dict[str, object]]:
        path = self.home / "log" / "mail.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def is_spare(self) -> bool:
        """The owner step waits for another owner."""
        said = self.said()
        waits = said.rfind("is its spare") > said.rfind("the shard is ours")
        return set(self.processes()) == {"supervisor", "supervisor@0", "spare", "owner"} and waits

    def adopted(self) -> set[str]:
        """The names of the shards of others that this node runs, and whose managers answer."""
        try:
            rows = json.loads((self.home / "run" / "adopted.json").read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return set()
        processes = self.processes()
        return {name for number, name, _ in rows if f"manager@{number}" in processes}

    def signal_all(self, number: signal.Signals) -> None:
        """To each process; the supervisor hears of a stop first, and of a continuation last."""
        processes = self.processes()
        names = sorted(processes, key=lambda name: name.startswith("supervisor") == (number == signal.SIGCONT))
        for name in names:
            os.kill(processes[name], number)

    def destroy(self) -> None:
        """SIGKILL of all processes at once; then the disk is gone, too."""
        processes = self.kill_all()
        eventually_blocking(lambda: not any(map(alive, processes.values())))
        shutil.rmtree(self.home)
