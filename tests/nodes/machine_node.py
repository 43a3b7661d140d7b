"""A node on a machine of its own: killed, destroyed and cut off as one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

from mailcore.lab.lab import Lab
from tests.end_to_end.appliance import COMMAND, LINES_AS_THEY_ARE, Appliance
from tests.nodes.machines import MAIL, Machine, faked
from tests.nodes.patroni_cluster import PatroniCluster

__all__ = ["MachineNode"]

PORT = 2525
ROOT = COMMAND.parents[2]


class MachineNode(Appliance):
    """A home that owns the shard, or waits for it. ``offset_s``: how wrong its clock is. It listens on the address of its
    machine, or on all if there is a ``port``.
    """

    def __init__(
        self,
        machine: Machine,
        shard: str,
        cluster: PatroniCluster,
        lab: Lab,
        sections: Mapping[str, Mapping[str, object]],
        offset_s: float = 0.0,
        port: int = 0,
    ) -> None:
        self.machine = machine
        self._port = port or PORT
        self.name = machine.name
        self._offset_s = offset_s
        own = machine.directory / shard
        own.mkdir()
        merged: dict[str, dict[str, object]] = {
            "nodes": {
                "database": cluster.conninfo(),
                "node": machine.name,
                "shard": shard,
                "patroni": cluster.addresses(),
                "takes_over": False,  # shards of tests before are in the same database
            },
            "transports.smtp": {**LINES_AS_THEY_ARE},
        }
        for section, values in sections.items():
            merged.setdefault(section, {}).update(values)
        merged.setdefault("receiver", {})["listen"] = [f"0.0.0.0:{port}" if port else f"{machine.address(MAIL)}:{PORT}"]
        merged.setdefault("relay", {})["networks"] = ["10.78.2.0/24"]
        super().__init__(own, {"*": "smtp:[{}]:{}".format(*lab.hops[0].address)}, merged)

    @property
    def address(self) -> tuple[str, int]:
        return self.machine.address(MAIL), self._port

    def launch(self) -> None:
        environment = {name: value for name, value in os.environ.items() if name.startswith(("PYTHON", "HOME"))}
        if self._offset_s:
            wrong = faked(self._offset_s, self.directory)
            environment |= wrong | {"PYTHONPATH": os.pathsep.join([wrong["PYTHONPATH"], str(ROOT)])}
        words = [str(COMMAND), "mailcore", "--config", str(self.config)]
        log = str(self.output.relative_to(self.machine.directory))
        self._process = self.machine.start(words, environment=environment, log=log)

    def kill_all(self) -> dict[str, int]:
        processes = self.processes()
        self.machine.kill()
        self._process = None
        return processes

    def destroy(self) -> None:
        """Kills all processes at once; then the disk is gone, too."""
        self.kill_all()
        shutil.rmtree(self.home)

    def said(self) -> str:
        return self.output.read_text(errors="replace") if self.output.exists() else ""

    def is_spare(self) -> bool:
        """The owner step waits for another owner."""
        said = self.said()
        waits = said.rfind("is its spare") > said.rfind("the shard is ours")
        return set(self.processes()) == {"supervisor", "supervisor@0", "spare", "owner"} and waits
