"""The database of several nodes, and two nodes, from fresh Debians: ``./test --servers``.

Three machines have etcd and PostgreSQL; two of them are nodes, too. Beside the network of the other tests, over which Ansible
comes, they have one among themselves.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.ansible.playing import play
from tests.eventually import eventually_blocking
from tests.servers.machine import Machine, missing, run
from tests.servers.packages import package
from tests.servers.servers import FIRST, PLAY_S, SITE, Servers, asked, booted

DATABASE = "waypost.appliance.queue_database"
SWITCH = "waypost-switch"
HOSTS = (4, 5, 6)
SECRET, MEMBERS_SECRET = "ofTheNodes-1", "ofTheServers-1"

pytestmark = [
    pytest.mark.servers,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(bool(missing()), reason=missing() or "-"),
]


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


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    package(FIRST, "3.11")
    with booted("bookworm", HOSTS) as servers, joined(servers.machines):
        yield servers


def inventory(servers: Servers, **more: Any) -> dict[str, Any]:
    given = servers.inventory()["waypost"]
    hosts = {
        one.name: given["hosts"][one.name] | {"queue_database_address": address(one), "waypost_database": "sqlite"}
        for one in servers.machines
    }
    nodes: dict[str, Any] = {one.name: {} for one in servers.machines[:2]}
    return {
        "machines": {"hosts": hosts, "vars": given["vars"]},
        "waypost": {"hosts": nodes},
        "waypost_nodes": {"hosts": nodes, "vars": {"waypost_shard": "north"}},
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


def roles(one: Machine) -> list[str]:
    listed = json.loads(one.ssh("patronictl -c /etc/patroni/config.yml list -f json"))
    return sorted(each["Role"] for each in listed)


def test_the_database_is_set_up_and_a_second_play_changes_nothing(servers: Servers) -> None:
    played(servers, DATABASE)
    assert roles(servers.machines[0]) == ["Leader", "Replica", "Sync Standby"]
    shown = servers.machines[0].ssh("patronictl -c /etc/patroni/config.yml show-config")
    assert "synchronous_mode_strict: true" in shown
    again = played(servers, DATABASE)
    assert again.count("changed=0") == len(HOSTS), servers.changed()
    assert played(servers, DATABASE, "--check", "--diff").count("changed=0") == len(HOSTS), servers.changed()


def test_what_was_changed_by_hand_is_put_right(servers: Servers) -> None:
    one = servers.machines[0]
    one.ssh("patronictl -c /etc/patroni/config.yml edit-config --force --set synchronous_mode_strict=false waypost")
    played(servers, DATABASE)
    assert "synchronous_mode_strict: true" in one.ssh("patronictl -c /etc/patroni/config.yml show-config")


def test_etcd_and_patroni_take_no_word_from_who_has_no_certificate(servers: Servers) -> None:
    """From one of the machines: what is on its way to a server could come from anywhere."""
    one = servers.machines[0]
    words = f"etcdctl --endpoints=https://{address(servers.machines[1])}:2379 --cacert=/etc/patroni/waypost/members.pem"
    mine = "--cert=/etc/patroni/waypost/certificate.pem --key=/etc/patroni/waypost/key.pem"
    assert "is healthy" in one.ssh(f"ETCDCTL_API=3 {words} {mine} endpoint health 2>&1; true")
    assert "is unhealthy" in one.ssh(f"ETCDCTL_API=3 {words} endpoint health 2>&1; true")
    url = f"https://{address(servers.machines[1])}:8008/config"
    program = (
        "import json, ssl, urllib.request as r; c = ssl.create_default_context(cafile='/etc/patroni/waypost/members.pem');"
        f"print(json.load(r.urlopen(r.Request('{url}', method='GET'), context=c))['synchronous_mode_strict']);"
        f"r.urlopen(r.Request('{url}', data=b'{{}}', method='PATCH'), context=c)"
    )
    said = one.ssh(f'python3 -c "{program}" 2>&1; true')
    assert "True" in said.splitlines(), said
    assert "403" in said, said


def test_two_nodes_are_set_up_and_one_is_the_spare_of_the_other(servers: Servers) -> None:
    played(servers, SITE)
    first, second = servers.machines[:2]
    assert asked(first, "queue", "size")["messages"] == 0
    eventually_blocking(lambda: "is its spare" in second.ssh("cat /run/waypost/owner.txt"), "the spare")
    assert first.open(25)
    assert not second.open(25)
    assert first.ssh("stat -c '%U %G %a' /etc/waypost/database-password").split() == ["root", "waypost-receiver", "640"]
    again = played(servers, SITE)
    assert again.count("changed=0") == 2, servers.changed()
