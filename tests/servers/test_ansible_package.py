"""Ansible with the Debian packages on Debian 13: installed, changed over from wheels, older and newer, and taken away."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.servers.load import sending
from tests.servers.machine import missing
from tests.servers.packages import package
from tests.servers.servers import (
    FIRST,
    SECOND,
    Servers,
    all_arrived,
    booted,
    in_thread,
    next_hop,
    release,
    some_mail_arrives,
    until,
)

pytestmark = [
    pytest.mark.servers,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(bool(missing()), reason=missing() or "-"),
]
PYTHON = "3.13"
COMMAND = "tr '\\0' ' ' </proc/$(systemctl show --property=MainPID --value waypost-core)/cmdline"


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    release(FIRST, PYTHON)
    for version in (FIRST, SECOND):
        package(version, PYTHON)
    with booted("trixie", [12]) as made:
        made.variables["waypost_reports"] = False  # 500 MB more; tests/servers/test_reports_package.py has them
        yield made


async def test_a_host_with_wheels_changes_over_under_load(servers: Servers, tell: Callable[[str], None]) -> None:
    one = servers.machines[0]
    servers.play()
    assert "/opt/waypost/" in one.ssh(COMMAND)
    servers.variables["waypost_package"] = True
    async with next_hop(one) as arrived:
        with sending(one.address, clients=2) as load:
            await until(lambda: len(load.accepted) >= 3, "three messages to be accepted")
            await in_thread(servers.play)
            already = len(load.accepted)
            await until(lambda: len(load.accepted) > already + 3, "mail with the package")
        assert load.refused == 0
        tell(f"from wheels to the package: {await all_arrived(arrived, load)}")
    assert "/usr/lib/waypost/venv/" in one.ssh(COMMAND)
    assert one.ssh("waypost --version") == f"waypost {FIRST}\n"
    assert one.ssh("dpkg-query --show --showformat '${db:Status-Status}' waypost") == "installed"
    servers.nothing_changes()
    servers.nothing_would_change()
    assert one.ssh("systemctl list-units --failed --plain --no-legend 'waypost*'") == ""
    assert "Ansible has set up this host" in one.ssh("waypost setup 2>&1 || true")


def test_what_cannot_go_together_is_refused_before_anything_changes(servers: Servers) -> None:
    one = servers.machines[0]
    for variables, said in (
        ({"waypost_portal_version": SECOND}, "with waypost_package a host has one release"),
        ({"waypost_home": "/srv/waypost"}, "know /var/lib/waypost only"),
        ({"waypost_package": False}, "is installed on this host, but waypost_package is false"),
    ):
        before = dict(servers.variables)
        servers.variables.update(variables)
        done = servers.ansible()
        servers.variables.clear()
        servers.variables.update(before)
        assert done.returncode != 0
        assert said in done.stdout.replace("\n", " "), done.stdout[-3000:]
    assert one.ssh("waypost --version") == f"waypost {FIRST}\n"


async def test_newer_and_older_by_the_variable(servers: Servers) -> None:
    one = servers.machines[0]
    servers.version = SECOND
    await in_thread(servers.play)
    assert one.ssh("waypost --version") == f"waypost {SECOND}\n"
    await some_mail_arrives(one)
    servers.version = FIRST
    await in_thread(servers.play)
    assert one.ssh("waypost --version") == f"waypost {FIRST}\n"
    await some_mail_arrives(one)


async def test_it_is_taken_away_and_its_data_stay(servers: Servers) -> None:
    one = servers.machines[0]
    servers.uninstall()
    assert one.ssh("systemctl list-units --all --plain --no-legend 'waypost-*.service' 'waypost-*.socket'") == ""
    one.ssh(
        "test ! -e /usr/lib/waypost/venv && test ! -e /etc/waypost/waypost.toml && test ! -e /usr/local/bin/waypost"
    )
    one.ssh("test -d /var/lib/waypost/queue && getent passwd waypost")
    servers.play()  # with the data that stayed, from nothing but the package
    await some_mail_arrives(one)
    servers.uninstall("--extra-vars", "waypost_delete_data=true")
    one.ssh(
        "test ! -e /var/lib/waypost && test ! -e /var/log/waypost && test ! -e /etc/waypost && ! getent passwd waypost"
    )
    assert one.ssh("dpkg-query --show waypost 2>/dev/null || true") == ""
