"""A server of Debian 13, from a fresh one to mail through port 25: `./test --servers`. The rest of the story is Debian 12's."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.servers.machine import missing
from tests.servers.servers import FIRST, Servers, booted, each_is_its_own_user, release, some_mail_arrives

pytestmark = [
    pytest.mark.servers,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(bool(missing()), reason=missing() or "-"),
]


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    release(FIRST, "3.13")
    with booted("trixie", [3]) as made:
        yield made


async def test_debian_13_gets_all_of_it_and_takes_mail(servers: Servers, tell: Callable[[str], None]) -> None:
    one = servers.machines[0]
    assert "VERSION_CODENAME=trixie" in one.ssh("cat /etc/os-release")
    servers.play()
    servers.nothing_changes()
    tell(f"Debian 13: exposure of core, portal, watch, webhooks, worker, beat, Redis: {each_is_its_own_user(one)}")
    await some_mail_arrives(one)
    servers.uninstall()
    assert one.ssh("systemctl list-units --all --plain --no-legend 'waypost-*.service' 'waypost-*.socket'") == ""
    one.ssh("test ! -e /opt/waypost && test ! -e /etc/waypost/waypost.toml && test ! -e /usr/local/bin/waypost")
    one.ssh("test -d /var/lib/waypost/queue && test -e /etc/waypost/first-password && getent passwd waypost")
    servers.play()  # with the data that stayed
    await some_mail_arrives(one)
    servers.uninstall("--extra-vars", "waypost_delete_data=true")
    one.ssh(
        "test ! -e /var/lib/waypost && test ! -e /var/log/waypost && test ! -e /etc/waypost && ! getent passwd waypost"
    )
