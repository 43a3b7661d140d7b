"""Two nodes with a shard each are upgraded while mail comes, on Debian 13: ``./test --servers``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from tests.servers.load import Load, sending
from tests.servers.machine import missing
from tests.servers.nodes import DATABASE, joined, played, roles
from tests.servers.packages import package
from tests.servers.servers import (
    FIRST,
    SECOND,
    SITE,
    Servers,
    all_arrived,
    asked,
    booted,
    next_hop,
    until,
    until_empty,
)

HOSTS = (7, 8, 9)

pytestmark = [
    pytest.mark.servers,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(bool(missing()), reason=missing() or "-"),
]


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    for version in (FIRST, SECOND):
        package(version, "3.13")
    with booted("trixie", HOSTS) as servers, joined(servers.machines):
        yield servers


def owners(servers: Servers) -> dict[str, str]:
    """The node that has each shard."""
    return {each["name"]: each["owner"] for each in asked(servers.machines[0], "shard", "list")["shards"]}


def test_the_database_is_set_up_on_debian_13_and_a_second_play_changes_nothing(servers: Servers) -> None:
    played(servers, DATABASE)
    assert roles(servers.machines[0]) == ["Leader", "Replica", "Sync Standby"]
    assert played(servers, DATABASE).count("changed=0") == len(HOSTS), servers.changed()


def test_each_of_two_nodes_has_a_shard_and_takes_mail(servers: Servers) -> None:
    played(servers, SITE)
    for one in servers.machines[:2]:
        assert "VERSION_CODENAME=trixie" in one.ssh("cat /etc/os-release")
        assert one.open(25)
    assert played(servers, SITE).count("changed=0") == 2, servers.changed()


async def test_an_upgrade_node_by_node_refuses_no_message_and_loses_none(
    servers: Servers, tell: Callable[[str], None]
) -> None:
    """Each client knows both nodes, as a domain with two MX has them, and tries the other one where one refuses it."""
    first, second = nodes = servers.machines[:2]
    before = owners(servers)
    assert len(before) == 2
    async with next_hop(*nodes) as arrived:
        with (
            sending(first.address, second.address, clients=3) as one,
            sending(second.address, first.address, clients=3) as other,
        ):
            servers.version = SECOND
            await asyncio.to_thread(played, servers, SITE)
            already = len(one.accepted), len(other.accepted)
            assert min(already) > 50
            await until(lambda: len(one.accepted) >= already[0] + 10, "ten more messages to be accepted")
            await until(lambda: len(other.accepted) >= already[1] + 10, "ten more messages to be accepted")
        assert one.refused == other.refused == 0, "both nodes refused a connection at once"
        assert one.broken == other.broken == 0, "a message was not taken by either node"
        both = Load(one.accepted | other.accepted, longest_s=max(one.longest_s, other.longest_s))
        detours = one.detours + other.detours
        tell(f"upgrade of two nodes: {await all_arrived(arrived, both)}; {detours} messages went to the other node")
    for each in nodes:
        assert SECOND in each.ssh("waypost --version")
        await until_empty(each)
    assert owners(servers) == before
