"""The package on a bare Debian 12 and 13: from `apt install` to mail, to an upgrade and to its removal. `./test --servers`."""

from __future__ import annotations

import asyncio
import json
import shlex
import shutil
import ssl
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mailcore.setup.certificate import fingerprint
from tests.servers.load import sending
from tests.servers.machine import BARE, Machine, missing
from tests.servers.packages import APT, package
from tests.servers.servers import (
    FIRST,
    HOP_PORT,
    SECOND,
    Servers,
    all_arrived,
    asked,
    booted,
    next_hop,
    until,
    until_empty,
)

pytestmark = [
    pytest.mark.servers,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(bool(missing()), reason=missing() or "-"),
]
SYSTEMS = [("bookworm", "3.11", 5), ("trixie", "3.13", 6)]
EXPOSURE_MAX = 2.2  # the core may give directories of shards the setgid bit
SERVICES = "waypost-core waypost-portal waypost-watch waypost-webhooks"
# What a person would type to a bare host, which has no client for SMTP.
SEND = r"""
exec 3<>/dev/tcp/127.0.0.1/25
read -r answer <&3
for line in 'HELO a.example' 'MAIL FROM:<a@a.example>' "RCPT TO:<$1@b.example>" DATA; do
    printf '%s\r\n' "$line" >&3
    read -r answer <&3
    echo "$line: $answer"
done
printf 'Subject: first\r\n\r\nDoes it arrive?\r\n.\r\n' >&3
read -r answer <&3
echo "$answer"
"""


@pytest.fixture(scope="module", params=SYSTEMS, ids=lambda each: each[0])
def servers(request: pytest.FixtureRequest) -> Iterator[Servers]:
    suite, python, number = request.param
    packages = {version: package(version, python) for version in (FIRST, SECOND)}
    with booted(suite, [number], BARE) as made:
        for version, built in packages.items():
            shutil.copy(built, made.machines[0].tree / "root" / f"waypost-{version}.deb")
        yield made


def set_up(one: Machine, *options: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(one.ssh(f"waypost setup --json {' '.join(options)}"))
    return found


def send(one: Machine, name: str) -> None:
    said = one.ssh(f"bash -c {shlex.quote(SEND)} bash {name}")
    assert said.splitlines()[-1].startswith("250 "), said


def signing_in(one: Machine, place: Path) -> str:
    """The page, over HTTPS by address, with nothing trusted but the certificate that the host made."""
    certificate = place / "portal.pem"
    certificate.write_text(one.ssh("cat /etc/waypost/portal-tls/certificate.pem"))
    context = ssl.create_default_context(cafile=str(certificate))
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    with urllib.request.urlopen(f"https://{one.address}/accounts/login/", context=context, timeout=30) as answer:
        page: str = answer.read().decode()
    return page


async def test_from_apt_to_the_first_mail(servers: Servers, tell: Callable[[str], None], tmp_path: Path) -> None:
    one = servers.machines[0]
    began = time.monotonic()
    await asyncio.to_thread(one.ssh, f"{APT} update && {APT} install --yes ./waypost-{FIRST}.deb", 900)
    installed = time.monotonic()
    found = await asyncio.to_thread(set_up, one)
    ready = time.monotonic()
    async with next_hop(one) as arrived:
        route = f'sed -i \'s/^"\\*" = .*/"*" = "smtp:[{one.host}]:{HOP_PORT}"/\' /etc/waypost/waypost.toml && waypost reload'
        await asyncio.to_thread(one.ssh, route)
        await asyncio.to_thread(send, one, "first")
        await until(lambda: bool(arrived), "the first mail")
    tell(
        f"{servers.suite}: apt {installed - began:.1f} s, setup {ready - installed:.1f} s, until the first mail was delivered "
        f"{time.monotonic() - began:.1f} s"
    )
    assert found["problems"] == []
    assert found["url"] == f"https://{one.name}.example/"
    assert f"https://{one.address}/" in found["addresses"]
    page = await asyncio.to_thread(signing_in, one, tmp_path)
    assert "csrfmiddlewaretoken" in page
    assert found["fingerprint"] == fingerprint(tmp_path / "portal.pem")
    assert len(found["password"]) >= 12
    modes = one.ssh("stat -c '%U:%G %a' /etc/waypost/tls/key.pem /etc/waypost/portal-tls/key.pem").splitlines()
    assert modes == ["root:waypost-receiver 640", "waypost-portal:waypost-portal 600"]


def test_services_run_restricted_and_as_their_users(servers: Servers, tell: Callable[[str], None]) -> None:
    one = servers.machines[0]
    assert one.ssh("systemctl list-units --failed --plain --no-legend") == ""
    exposure = one.ssh(
        "for unit in core portal watch webhooks; do systemd-analyze security --no-pager waypost-$unit.service"
        " | sed -n 's/.*exposure level for [^:]*: \\([0-9.]*\\) .*/\\1/p'; done"
    ).split()
    tell(f"exposure of core, portal, watch, webhooks: {' '.join(exposure)}")
    assert len(exposure) == 4
    assert one.ssh(f"systemctl is-active {SERVICES}").split() == ["active"] * 4
    assert max(map(float, exposure)) <= EXPOSURE_MAX
    listening = one.ssh("ss -Hltn | awk '{print $4}'").split()
    assert {"0.0.0.0:25", "0.0.0.0:587", "0.0.0.0:443"} <= set(listening)
    doctor = one.ssh("waypost doctor --json || true")
    assert "Traceback" not in doctor


def test_a_second_setup_changes_nothing(servers: Servers) -> None:
    one = servers.machines[0]
    files = "find /etc /var/lib/waypost/identity -type f -printf '%p %T@\\n' | sort"
    before = one.ssh(files)
    pids = one.ssh(f"systemctl show --property=MainPID {SERVICES}")
    assert "nothing to do" in one.ssh("waypost setup")
    found = set_up(one)
    assert (found["changes"], found["password"]) == ([], "")
    assert one.ssh(files) == before
    assert one.ssh(f"systemctl show --property=MainPID {SERVICES}") == pids
    assert len(set_up(one, "--new-password")["password"]) >= 12


def test_another_address_is_listened_on_after_setup(servers: Servers) -> None:
    one = servers.machines[0]
    listen = 's/^listen = ..0.0.0.0:25.*/listen = ["0.0.0.0:25", "0.0.0.0:2525"]/'
    networks = 's/^networks = ./networks = ["10.25.0.0\\/16", /'
    one.ssh(f"sed -i -e '{listen}' -e '{networks}' /etc/waypost/waypost.toml")
    assert "waypost-core.socket listens on" in one.ssh("waypost setup")
    assert "0.0.0.0:2525" in one.ssh("ss -Hltn")


def test_reports_that_are_not_installed_are_said_to_be_missing(servers: Servers) -> None:
    one = servers.machines[0]
    said = one.ssh("waypost report 2026-11-20 2>&1 || true")
    assert "apt install waypost-reports" in said
    assert "Traceback" not in said


async def test_an_upgrade_loses_no_mail_and_keeps_the_settings(servers: Servers, tell: Callable[[str], None]) -> None:
    one = servers.machines[0]
    settings = one.ssh("cat /etc/waypost/waypost.toml; cat /etc/waypost/*tls/*.pem")
    async with next_hop(one) as arrived:
        with sending(one.address, clients=2, port=2525) as load:
            await until(lambda: len(load.accepted) >= 3, "three messages to be accepted")
            await asyncio.to_thread(one.ssh, f"dpkg -i ./waypost-{SECOND}.deb", 300)
            upgraded = len(load.accepted)
            await until(lambda: len(load.accepted) > upgraded + 3, "mail after the upgrade")
        tell(f"upgrade under load: {await all_arrived(arrived, load)}")
    assert one.ssh("waypost --version") == f"waypost {SECOND}\n"
    assert one.ssh("cat /etc/waypost/waypost.toml; cat /etc/waypost/*tls/*.pem") == settings
    assert set_up(one)["problems"] == []


def test_a_package_that_cannot_read_the_data_is_refused(servers: Servers) -> None:
    one = servers.machines[0]
    one.ssh("sed -i 's/^queue .*/queue 999/' /var/lib/waypost/formats")
    said = one.ssh(f"dpkg -i ./waypost-{FIRST}.deb 2>&1 || true")
    assert "writes format 999 of queue" in said
    assert "Nothing was changed" in said
    assert one.ssh("waypost --version") == f"waypost {SECOND}\n"
    assert asked(one, "queue", "size")["messages"] == 0
    one.ssh("install -m 644 /usr/lib/waypost/formats /var/lib/waypost/formats")
    one.ssh(f"dpkg -i ./waypost-{FIRST}.deb && dpkg -i ./waypost-{SECOND}.deb", 300)  # the same formats: back and forth


async def test_a_purge_deletes_no_mail(servers: Servers) -> None:
    one = servers.machines[0]
    await asyncio.to_thread(send, one, "waits")  # the next hop is away
    await until(lambda: asked(one, "queue", "size")["messages"] == 1, "a message in the queue")
    said = one.ssh(f"{APT} purge --yes waypost 2>&1 || true", 300)
    assert "there is mail in the queue /var/lib/waypost/queue" in said
    one.ssh("test -d /var/lib/waypost/queue && test -e /etc/waypost/waypost.toml")
    assert one.ssh("systemctl list-units --plain --no-legend 'waypost-*'") == ""
    await asyncio.to_thread(one.ssh, f"{APT} install --yes ./waypost-{SECOND}.deb && waypost setup", 300)
    async with next_hop(one) as arrived:
        await asyncio.to_thread(one.ssh, "waypost queue retry --all --yes")
        await until(lambda: bool(arrived), "the mail that waited")
        await until_empty(one)
    one.ssh(f"{APT} purge --yes waypost", 300)
    one.ssh(
        "test ! -e /var/lib/waypost && test ! -e /etc/waypost && test ! -e /usr/lib/waypost && test ! -e /var/log/waypost"
    )
    assert one.ssh("find /etc/systemd -name '*waypost*'") == ""


def test_another_mail_server_on_the_port_is_named(servers: Servers) -> None:
    one = servers.machines[0]
    one.ssh(f"{APT} install --yes postfix ./waypost-{SECOND}.deb", 600)
    said = one.ssh("waypost setup 2>&1 || true")
    assert "master (process " in said
    assert "systemctl disable --now postfix" in said
    one.ssh("systemctl disable --now postfix")
    assert set_up(one)["problems"] == []
