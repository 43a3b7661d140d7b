"""The database of several nodes, two nodes, and one portal of both, from fresh Debians: ``./test --servers``.

The nodes have one shard, of which one node is the spare. Debian 13 and two shards: ``test_rolling.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.async_api import expect

from tests.eventually import eventually_blocking
from tests.servers.browser import PATIENCE_MS, change_first_password, signed_in
from tests.servers.machine import missing
from tests.servers.nodes import DATABASE, PORTALS_SECRET, address, joined, played, refused, roles
from tests.servers.packages import package
from tests.servers.servers import FIRST, SITE, Servers, asked, booted

HOSTS = (4, 5, 6)
SPARE = {"waypost_shard": "north"}  # of both nodes
PORTALS: dict[str, Any] = {**SPARE, "waypost_portal": True, "waypost_database_password": PORTALS_SECRET}
SHARED: dict[str, Any] = {**PORTALS, "waypost_database": "nodes"}

pytestmark = [
    pytest.mark.servers,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(bool(missing()), reason=missing() or "-"),
]


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    package(FIRST, "3.11")
    with booted("bookworm", HOSTS) as servers, joined(servers.machines):
        yield servers


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
    played(servers, SITE, **SPARE)
    first, second = servers.machines[:2]
    assert asked(first, "queue", "size")["messages"] == 0
    eventually_blocking(lambda: "is its spare" in second.ssh("waypost status || true"), "the spare")
    assert first.open(25)
    assert not second.open(25)
    assert first.ssh("stat -c '%U %G %a' /etc/waypost/database-password").split() == ["root", "waypost-receiver", "640"]
    again = played(servers, SITE, **SPARE)
    assert again.count("changed=0") == 2, servers.changed()


async def test_the_portals_of_both_nodes_get_one_database_and_no_user_is_left_behind(servers: Servers) -> None:
    """The portal of the first node has users in SQLite; into that of the second no person has signed in."""
    first, second = servers.machines[:2]
    played(servers, SITE, **PORTALS)
    found = re.search(r"sign in as admin with (\S+)", first.ssh("cat /etc/waypost/first-password"))
    assert found is not None
    password = await change_first_password(f"{first.name}.example", first.address, found[1])
    keys = [one.ssh("cat /var/lib/waypost/portal/secret.key") for one in (first, second)]

    assert "CREATE ROLE waypost_portal LOGIN PASSWORD" in refused(servers, **SHARED)
    played(servers, DATABASE, **SHARED)
    assert played(servers, DATABASE, **SHARED).count("changed=0") == len(HOSTS), servers.changed()
    said = " ".join(refused(servers, **SHARED).split())
    assert "has a database of its own (/var/lib/waypost/portal/portal.sqlite3). Its users (1) are not in" in said
    assert "waypost_portal_former: move_in" in said
    async with signed_in(f"{first.name}.example", first.address, password):
        pass  # it is as it was
    assert "database_url" not in second.ssh("cat /etc/waypost/portal.toml"), "the first node stopped the play"

    moving = {**SHARED, "waypost_portal_former": "move_in"}
    played(servers, SITE, **moving)
    assert "taken: 1 user, 0 tokens" in (servers.place / "last-play").read_text()
    for number, one in enumerate((first, second)):
        assert one.ssh("cat /var/lib/waypost/portal/secret.key") == keys[0]
        assert one.ssh("stat -c '%U %G %a' /var/lib/waypost/portal/secret.key") == "waypost-portal waypost-portal 600\n"
        assert one.ssh("stat -c '%U %G %a' /etc/waypost/portal-password") == "root waypost-portal 640\n"
        kept = one.ssh("cat /var/lib/waypost/portal/secret.key.*~ 2>/dev/null || true")
        assert kept == (keys[1] if number else ""), "the key of before"
    async with signed_in(f"{second.name}.example", second.address, password) as page:
        await page.goto("/audit/")
        await expect(page.locator("table.audit")).to_contain_text(first.name, timeout=PATIENCE_MS)
        await expect(page.locator("table.audit")).to_contain_text(second.name, timeout=PATIENCE_MS)
    again = played(servers, SITE, **moving)
    assert again.count("changed=0") == 2, servers.changed()
    played(servers, SITE, "--check", "--diff", **moving)
    hidden = [PORTALS_SECRET, *keys]
    assert not [one for one in hidden if one in (servers.place / "last-play").read_text()]


def test_a_portal_whose_disk_was_lost_gets_the_key_of_the_others(servers: Servers) -> None:
    first, second = servers.machines[:2]
    key = second.ssh("cat /var/lib/waypost/portal/secret.key")
    first.ssh("systemctl stop waypost-portal waypost-watch waypost-webhooks && rm -r /var/lib/waypost/portal")
    played(servers, SITE, "--limit", first.name, **SHARED)
    assert first.ssh("cat /var/lib/waypost/portal/secret.key") == key
    other = {**SHARED, "waypost_portal_key": "x" * 60}
    assert "sign with another key than the one in waypost_portal_key" in " ".join(refused(servers, **other).split())
    assert first.ssh("cat /var/lib/waypost/portal/secret.key") == key


def test_the_user_of_the_portals_reads_no_mail_and_comes_with_tls_and_a_password_alone(servers: Servers) -> None:
    one = servers.machines[0]
    hosts = ",".join(address(each) for each in servers.machines)
    words = f"psql -XAtqc {{}} 'host={hosts} dbname=waypost user=waypost_portal target_session_attrs=read-write sslmode={{}}'"
    known = f"PGPASSWORD={PORTALS_SECRET} " + words
    assert one.ssh(known.format("'SELECT count(*) > 0 FROM waypost_portal.auth_user'", "require")) == "t\n"
    assert "permission denied" in one.ssh(
        known.format("'SELECT * FROM waypost.schema_version'", "require") + " 2>&1; true"
    )
    assert "no pg_hba.conf entry" in one.ssh(known.format("'SELECT 1'", "disable") + " 2>&1; true")
    assert "password" in one.ssh(words.format("'SELECT 1'", "require") + " -w 2>&1; true")
    logs = "/var/lib/postgresql /var/log /var/lib/waypost /tmp"
    for each in servers.machines:
        held = each.ssh(f"grep -rl {PORTALS_SECRET} {logs} 2>/dev/null; journalctl | grep -c {PORTALS_SECRET}; true")
        assert held == "0\n", held
