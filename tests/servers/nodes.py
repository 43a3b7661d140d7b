"""Nodes and the servers of their database, from one inventory: what the tests of Debian 12 and 13 share.

Three machines have etcd and PostgreSQL; the first two of them are nodes, too. Beside the network of the other tests, over which
Ansible comes, they have one among themselves.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from typing import Any

from tests.ansible.playing import play
from tests.servers.machine import Machine, run
from tests.servers.servers import PLAY_S, SITE, Servers

__all__ = ["DATABASE", "PORTALS_SECRET", "address", "joined", "played", "refused", "roles"]

DATABASE = "waypost.appliance.queue_database"
SWITCH = "waypost-switch"
SECRET, MEMBERS_SECRET, PORTALS_SECRET = "ofTheNodes-1", "ofTheServers-1", "ofThePortals-1"


def address(one: Machine) -> str:
    return f"10.79.0.{one.number}"


@contextlib.contextmanager
def joined(machines: list[Machine]) -> Iterator[None]:
    """A network of the machines alone; no address of it is this host's."""
    run("ip", "netns", "add", SWITCH)
    try:
        run("ip", "-n", SWITCH, "link", "add", "bridge", "type", "bridge")
        run("ip", "-n", SWITCH, "link", "set", "bridge", "up")
        for one in machines:
            space, port = f"waypost{one.number}", f"port{one.number}"
            run("ip", "-n", SWITCH, "link", "add", port, "type", "veth", "peer", "name", "members", "netns", space)
            run("ip", "-n", SWITCH, "link", "set", port, "master", "bridge", "up")
            run("ip", "-n", space, "addr", "add", f"{address(one)}/24", "dev", "members")
            run("ip", "-n", space, "link", "set", "members", "up")
        yield
    finally:
        run("ip", "netns", "delete", SWITCH)


def inventory(servers: Servers, **more: Any) -> dict[str, Any]:
    given = servers.inventory()["waypost"]
    hosts = {
        one.name: given["hosts"][one.name]
        | {"queue_database_address": address(one), "waypost_database": more.get("waypost_database", "sqlite")}
        for one in servers.machines
    }
    nodes: dict[str, Any] = {one.name: {} for one in servers.machines[:2]}
    return {
        "machines": {"hosts": hosts, "vars": given["vars"]},
        "waypost": {"hosts": nodes},
        "waypost_nodes": {"hosts": nodes},
        "queue_database": {"hosts": {name: {} for name in hosts}},
        "all": {
            "vars": {
                "waypost_nodes_password": SECRET,
                "queue_database_members_password": MEMBERS_SECRET,
                "waypost_portal": False,
                "waypost_reports": False,
                "waypost_package": True,
                **more,
            }
        },
    }


def played(servers: Servers, playbook: str, *options: str, **more: Any) -> str:
    done: subprocess.CompletedProcess[str] = play(
        servers.place, playbook, inventory(servers, **more), *options, timeout_s=PLAY_S
    )
    (servers.place / "last-play").write_text(done.stdout)
    assert done.returncode == 0, done.stdout[-6000:]
    return done.stdout.partition("PLAY RECAP")[2]


def refused(servers: Servers, **more: Any) -> str:
    """What a play of the nodes says that stops at the first one."""
    done = play(servers.place, SITE, inventory(servers, **more), timeout_s=PLAY_S)
    (servers.place / "last-play").write_text(done.stdout)
    assert done.stdout.count("failed=1") == 1, done.stdout[-6000:]
    assert PORTALS_SECRET not in done.stdout
    return done.stdout


def roles(one: Machine) -> list[str]:
    listed = json.loads(one.ssh("patronictl -c /etc/patroni/config.yml list -f json"))
    return sorted(each["Role"] for each in listed)
