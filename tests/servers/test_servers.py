"""Two servers, from a fresh Debian to an upgrade and back, as an operator does it: `./test --servers`.

The tests are steps of one story, and run in this order. Two machines of one inventory: the first keeps the portal's data in
SQLite, the second in PostgreSQL. Releases are built from this checkout, the second with another number.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from mailcore.lab.arrival import Arrival
from mailcore.lab.lab import Lab
from tests.ansible.playing import play
from tests.servers.browser import PATIENCE_MS, signed_in
from tests.servers.load import sending
from tests.servers.machine import PROXY_PORT, Machine, base_tree, machine, missing, run
from tests.servers.proxy import proxy
from tests.test_tidy import ROOT

FIRST, SECOND = "0.0.1", "0.0.2"
PLAY_S = 1800.0
PATIENCE_S = 120.0
HOP_PORT = 2526
SINCE = "systemctl show --property=ActiveEnterTimestampMonotonic --value waypost-core.socket"
REPORT_MS = 600_000  # Java starts, on a small machine that does other things
SITE = "waypost.appliance.site"

pytestmark = [
    pytest.mark.servers,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(bool(missing()), reason=missing() or "-"),
]


@dataclass
class Servers:
    place: Path
    machines: list[Machine]
    version: str = FIRST
    variables: dict[str, Any] = field(default_factory=dict)

    def inventory(self) -> dict[str, Any]:
        def host(one: Machine) -> dict[str, Any]:
            return {
                "ansible_host": one.address,
                "waypost_hostname": f"{one.name}.example",
                "waypost_routes": {"*": f"smtp:[{one.host}]:{HOP_PORT}"},
                "waypost_database": "sqlite" if one.number == 1 else "postgresql",
            }

        options = " ".join(self.machines[0].ssh_options)
        shared = {
            "ansible_user": "root",
            "ansible_ssh_common_args": options,
            "waypost_version": self.version,
            "waypost_release_directory": str(ROOT / "dist"),
            "waypost_relay_networks": ["127.0.0.0/8", "::1/128", "10.25.0.0/16"],
            "waypost_settings": {"portal": {"require_totp": "none"}},
            **self.variables,
        }
        return {"waypost": {"hosts": {one.name: host(one) for one in self.machines}, "vars": shared}}

    def play(self, *options: str) -> dict[str, dict[str, int]]:
        """What each machine says at the end: ok, changed, failed…"""
        done = play(self.place, SITE, self.inventory(), *options, timeout_s=PLAY_S)
        (self.place / "last-play").write_text(done.stdout)
        assert done.returncode == 0, done.stdout[-6000:]
        recap = done.stdout.partition("PLAY RECAP")[2]
        return {
            found["name"]: {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", found["counts"])}
            for found in re.finditer(r"^(?P<name>\w+)\s+: (?P<counts>.*)$", recap, re.MULTILINE)
        }

    def changed(self) -> list[str]:
        """The tasks of the last play that changed something."""
        told, task = [], ""
        for line in (self.place / "last-play").read_text().splitlines():
            if line.startswith(("TASK [", "RUNNING HANDLER [")):
                task = line
            elif line.startswith("changed:"):
                told.append(task)
        return told


@pytest.fixture(scope="module")
def releases() -> None:
    for version in (FIRST, SECOND):
        run(ROOT / "make-release", "--version", version, timeout_s=1200)


@pytest.fixture(scope="module")
def servers(releases: None) -> Iterator[Servers]:
    place = Path(tempfile.mkdtemp(prefix="waypost-servers-"))
    kept = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    kept.mkdir(parents=True, exist_ok=True)
    base = base_tree(kept)
    key = place / "key"
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
    try:
        with contextlib.ExitStack() as stack:
            machines = []
            for number in (1, 2):
                made = stack.enter_context(machine(f"mail{number}", number, place, base, key))
                stack.enter_context(proxy(made.host, PROXY_PORT))
                machines.append(made)
            yield Servers(place, machines)
    finally:
        shutil.rmtree(place, ignore_errors=True)


@asynccontextmanager
async def next_hop(one: Machine) -> AsyncIterator[list[Arrival]]:
    arrived: list[Arrival] = []
    async with Lab([f"accept:{one.host}:{HOP_PORT}"], on_arrival=arrived.append):
        yield arrived


def main_pid(one: Machine, unit: str = "waypost-core") -> int:
    return int(one.ssh(f"systemctl show --property=MainPID --value {unit}"))


def asked(one: Machine, *words: str) -> Any:
    return json.loads(one.ssh(f"waypost {' '.join(words)} --json"))


def until_empty(one: Machine) -> None:
    end = time.monotonic() + PATIENCE_S
    while (size := asked(one, "queue", "size"))["messages"] or size["unheard"]:
        assert time.monotonic() < end, size
        time.sleep(0.5)


async def _breathe() -> None:
    await asyncio.sleep(0.2)


async def _in_thread(call: Callable[..., Any], *arguments: str) -> Any:
    """The next hop goes on meanwhile."""
    return await asyncio.to_thread(call, *arguments)


async def _arrived(arrived: list[Arrival], accepted: set[str]) -> None:
    """Each message that was answered with 250 came to the next hop."""
    end = time.monotonic() + PATIENCE_S
    while True:
        there = {to.partition("@")[0] for arrival in arrived for to in arrival.recipients}
        if accepted <= there:
            return
        assert time.monotonic() < end, f"{len(accepted - there)} of {len(accepted)} are missing"
        await _breathe()


async def _some_mail_arrives(one: Machine) -> None:
    async with next_hop(one) as arrived:
        with sending(one.address, clients=1) as load:
            end = time.monotonic() + PATIENCE_S
            while len(load.accepted) < 3 and time.monotonic() < end:
                await _breathe()
        assert len(load.accepted) >= 3
        await _arrived(arrived, load.accepted)


def test_looking_at_a_fresh_host_changes_nothing_and_says_what_it_would(servers: Servers) -> None:
    counts = servers.play("--check", "--diff")
    assert all(count["failed"] == 0 and count["changed"] > 20 for count in counts.values()), counts
    for one in servers.machines:
        assert one.ssh("ls -d /opt/waypost /etc/waypost 2>/dev/null || true") == ""


def test_it_is_installed_and_the_second_time_nothing_changes(servers: Servers) -> None:
    servers.play()
    assert {name: count["changed"] for name, count in servers.play().items()} == {"mail1": 0, "mail2": 0}, (
        servers.changed()
    )
    counts = servers.play("--check", "--diff")
    assert {name: count["changed"] for name, count in counts.items()} == {"mail1": 0, "mail2": 0}, servers.changed()


def test_each_process_is_its_own_user_and_all_services_run(servers: Servers) -> None:
    for one in servers.machines:
        assert one.ssh("systemctl list-units --failed --plain --no-legend 'waypost*'") == ""
        listed = one.ssh("ps -eo user:32,args | grep -E '[m]ailcore.process|[d]jango serve|[c]elery'")
        owners = {(line.split()[0], name) for line in listed.splitlines() for name in ROLES if name in line}
        assert owners == {(user, name) for name, user in ROLES.items()}
        exposed = [float(line) for line in one.ssh(EXPOSURE).split()]
        assert len(exposed) == 5
        assert max(exposed) <= 2.0


ROLES = {
    "process.receiver": "waypost-receiver",
    "process.manager": "waypost",
    "process.deliverer": "waypost-deliverer",
    "django serve": "waypost-portal",
    "celery": "waypost-portal",
}
EXPOSURE = (
    "for unit in core portal worker beat redis; do systemd-analyze security --no-pager waypost-$unit.service"
    " | sed -n 's/.*exposure level for [^:]*: \\([0-9.]*\\) .*/\\1/p'; done"
)


async def test_mail_goes_through_port_25(servers: Servers) -> None:
    for one in servers.machines:
        await _some_mail_arrives(one)


async def test_the_portal_signs_in_over_https_changes_a_limit_and_makes_a_report(servers: Servers) -> None:
    one = servers.machines[0]
    password = re.search(r"sign in as admin with (\S+)", one.ssh("cat /etc/waypost/first-password"))
    assert password is not None
    async with signed_in("mail1.example", one.address, password[1]) as page:
        await page.goto("/tuning/?scope=smtp")
        await page.fill('[name="value-destination_concurrency_limit"]', "7")
        await page.get_by_role("button", name="See what changes").click()
        await expect(page.locator("#dialog[open] table.diff")).to_be_visible(timeout=PATIENCE_MS)
        await page.fill("#why", "the provider asks for it")
        await page.locator("form.apply button[type=submit]").click()
        await page.wait_for_url("**/tuning/changes/**")
        limit = asked(one, "transport", "list")
        assert "7" in json.dumps(limit)
        await page.goto("/reports/")
        await page.fill("input[name=day]", datetime.now(UTC).date().isoformat())
        await page.click("text=Run now")
        report = page.locator("#run a:has-text('The report')")
        failed = page.locator("#run [role=alert]")
        await expect(report.or_(failed).first).to_be_visible(timeout=REPORT_MS)
        assert await failed.count() == 0, await page.locator("#run").inner_text()
        await report.click()
        await expect(page.locator("#balance")).to_contain_text("It balances.", timeout=PATIENCE_MS)


async def test_an_upgrade_under_load_loses_no_message_and_refuses_no_connection(servers: Servers) -> None:
    one = servers.machines[0]
    listening = one.ssh(SINCE)
    before, tuned = main_pid(one), one.ssh("cat /var/lib/waypost/tuned.toml")
    assert "7" in tuned
    async with next_hop(one) as arrived:
        with sending(one.address) as load:
            servers.version = SECOND
            await _in_thread(servers.play, "--limit", one.name)
            already = len(load.accepted)
            end = time.monotonic() + PATIENCE_S
            while len(load.accepted) < already + 10 and time.monotonic() < end:
                await _breathe()
        assert main_pid(one) != before
        assert SECOND in one.ssh("waypost --version")
        assert load.refused == 0
        assert one.ssh(SINCE) == listening  # the same sockets all the while
        assert already > 50
        await _arrived(arrived, load.accepted)
    assert one.ssh("cat /var/lib/waypost/tuned.toml") == tuned


async def test_the_way_back_is_a_variable_and_a_portal_alone_leaves_the_mail_alone(servers: Servers) -> None:
    one = servers.machines[0]
    core, portal = main_pid(one), main_pid(one, "waypost-portal")
    servers.variables["waypost_portal_version"] = FIRST
    servers.play("--limit", one.name)
    assert main_pid(one) == core
    assert main_pid(one, "waypost-portal") != portal
    servers.version = FIRST
    servers.play("--limit", one.name)
    assert main_pid(one) != core
    assert FIRST in one.ssh("waypost --version")
    await _some_mail_arrives(one)
    until_empty(one)
