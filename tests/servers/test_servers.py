"""Two servers, from a fresh Debian to an upgrade and back, and from backups to new ones, as an operator does it.

`./test --servers`: the tests are steps of one story, and run in this order. Two machines of one inventory: the first keeps the
portal's data in SQLite, the second in PostgreSQL. Releases are built from this checkout, the second with another number.
"""

from __future__ import annotations

import asyncio
import json
import re
import smtplib
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.async_api import expect

from mailcore.lab.arrival import Arrival
from tests.servers.browser import PATIENCE_MS, change_first_password, signed_in
from tests.servers.load import Load, sending
from tests.servers.machine import Machine, missing, run
from tests.servers.servers import (
    FIRST,
    SECOND,
    Servers,
    all_arrived,
    asked,
    booted,
    each_is_its_own_user,
    in_thread,
    listed,
    main_pid,
    next_hop,
    release,
    some_mail_arrives,
    until,
    until_empty,
)

Tell = Callable[[str], None]

SINCE = "systemctl show --property=ActiveEnterTimestampMonotonic --value waypost-core.socket"
REPORT_MS = 600_000  # Java starts, on a small machine that does other things
CLOSED_PORT = 9999
SERVICES = "waypost-core.socket waypost-core waypost-portal waypost-watch waypost-webhooks waypost-worker waypost-beat"
ANSWERS = "until waypost queue size >/dev/null 2>&1; do sleep 0.2; done"
REASON = '"restored from the backup"'
WHY = "the provider asks for it"
LOST = "/opt/waypost /etc/waypost /var/lib/waypost /var/log/waypost"

pytestmark = [
    pytest.mark.servers,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(bool(missing()), reason=missing() or "-"),
]


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    for version in (FIRST, SECOND):
        release(version, "3.11")
    with booted("bookworm", [1, 2]) as made:
        yield made


@pytest.fixture(scope="module")
def passwords() -> dict[str, str]:
    """Of the first administrators, as the first installation said them."""
    return {}


def test_a_wrong_variable_stops_before_anything_is_changed(servers: Servers) -> None:
    servers.variables["waypost_listen"] = ["25"]
    done = servers.ansible()
    servers.variables.clear()
    assert done.returncode != 0
    assert "waypost_listen is wrong: '25'; allowed: address:port" in done.stdout
    assert done.stdout.count("changed=0") == len(servers.machines)
    for one in servers.machines:
        nothing_is_there(one)


def test_looking_at_a_fresh_host_changes_nothing_and_says_what_it_would(servers: Servers) -> None:
    counts = servers.play("--check", "--diff")
    assert all(count["failed"] == 0 and count["changed"] > 20 for count in counts.values()), counts
    for one in servers.machines:
        nothing_is_there(one)


def test_it_is_installed_and_the_second_time_nothing_changes(
    servers: Servers, passwords: dict[str, str], tell: Tell
) -> None:
    began = time.monotonic()
    counts = servers.play()
    tell(
        f"installed on both in {time.monotonic() - began:.0f} s: {', '.join(map(str, changes(counts)))} tasks changed something"
    )
    servers.nothing_changes()
    servers.nothing_would_change()
    for one in servers.machines:
        password = re.search(r"sign in as admin with (\S+)", one.ssh("cat /etc/waypost/first-password"))
        assert password is not None
        passwords[one.name] = password[1]


def test_each_process_is_its_own_user_and_all_services_run(servers: Servers, tell: Tell) -> None:
    for one in servers.machines:
        one.ssh("test -s /usr/local/share/man/man1/waypost-queue.1")
        one.ssh("bash -c '. /usr/local/share/bash-completion/completions/waypost && complete -p waypost'")
        tell(f"{one.name}: exposure of core, portal, watch, webhooks, worker, beat, Redis: {each_is_its_own_user(one)}")


async def test_mail_goes_through_port_25(servers: Servers) -> None:
    for one in servers.machines:
        await some_mail_arrives(one)


async def test_the_portal_signs_in_over_https_and_changes_a_limit(servers: Servers, passwords: dict[str, str]) -> None:
    for one in servers.machines:
        passwords[one.name] = await change_first_password(f"{one.name}.example", one.address, passwords[one.name])
        async with signed_in(f"{one.name}.example", one.address, passwords[one.name]) as page:
            await page.goto("/tuning/?scope=smtp")
            await page.fill('[name="value-destination_concurrency_limit"]', "7")
            await page.get_by_role("button", name="Review changes").click()
            await expect(page.locator("#dialog[open] table.diff")).to_be_visible(timeout=PATIENCE_MS)
            await page.fill("#why", WHY)
            await page.locator("form.apply button[type=submit]").click()
            await page.wait_for_url("**/tuning/changes/**")
        assert "7" in json.dumps(asked(one, "transport", "list"))


async def test_the_portal_makes_a_report(servers: Servers, passwords: dict[str, str]) -> None:
    one = servers.machines[0]
    async with signed_in(f"{one.name}.example", one.address, passwords[one.name]) as page:
        await page.goto("/reports/")
        await page.fill("input[name=day]", datetime.now(UTC).date().isoformat())
        await page.click("text=Run now")
        report = page.locator("#run a:has-text('The report')")
        failed = page.locator("#run [role=alert]")
        await expect(report.or_(failed).first).to_be_visible(timeout=REPORT_MS)
        assert await failed.count() == 0, await page.locator("#run").inner_text()
        await report.click()
        await expect(page.locator("#balance")).to_contain_text("It balances.", timeout=PATIENCE_MS)


async def test_an_upgrade_under_load_loses_no_message_and_refuses_no_connection(servers: Servers, tell: Tell) -> None:
    one = servers.machines[0]
    listening = one.ssh(SINCE)
    before, tuned = main_pid(one), one.ssh("cat /var/lib/waypost/tuned.toml")
    assert "7" in tuned
    async with next_hop(one) as arrived:
        with sending(one.address) as load:
            servers.version = SECOND
            await in_thread(servers.play, "--limit", one.name)
            already = len(load.accepted)
            await until(lambda: len(load.accepted) >= already + 10, "ten more messages to be accepted")
        assert main_pid(one) != before
        assert SECOND in one.ssh("waypost --version")
        assert load.refused == 0
        assert one.ssh(SINCE) == listening  # the same sockets all the while
        assert already > 50
        tell(f"upgrade: {await all_arrived(arrived, load)}")
    assert one.ssh("cat /var/lib/waypost/tuned.toml") == tuned


async def test_the_way_back_is_a_variable_and_a_portal_alone_leaves_the_mail_alone(servers: Servers) -> None:
    one = servers.machines[0]
    core, portal = main_pid(one), main_pid(one, "waypost-portal")
    servers.variables["waypost_portal_version"] = FIRST
    servers.play("--limit", one.name, "--tags", "portal,reports")
    assert main_pid(one) == core
    assert main_pid(one, "waypost-portal") != portal
    servers.version = FIRST
    servers.variables.clear()
    servers.play("--limit", one.name)
    assert main_pid(one) != core
    assert FIRST in one.ssh("waypost --version")
    await some_mail_arrives(one)
    await until_empty(one)


async def test_what_was_backed_up_comes_back_and_its_queue_is_held(
    servers: Servers, passwords: dict[str, str], tell: Tell
) -> None:
    """The first machine is destroyed and made anew; the second loses all of Waypost and its database."""
    first, second = servers.machines
    asked_for = {one.name: one.ssh("cat /etc/waypost/waypost.toml") for one in servers.machines}
    kept = {one.name: await backed_up(one, servers.place) for one in servers.machines}
    servers.destroy(first.number)
    servers.machines[0] = servers.boot(first.number)
    second.ssh(f"systemctl stop {SERVICES} waypost-redis nginx && rm -rf {LOST}")
    second.ssh("runuser -u postgres -- dropdb waypost")
    for one in servers.machines:
        nothing_is_there(one)
    servers.play()
    for one in servers.machines:
        load, backup = kept[one.name]
        assert passwords[one.name] not in one.ssh("cat /etc/waypost/first-password")
        restore(one, backup)
        await the_queue_is_held_and_released(one, load)
        tell(f"{one.name} restored: {len(load.accepted)} messages held, released, arrived")
        assert one.ssh("cat /etc/waypost/waypost.toml") == asked_for[one.name]
        await the_portal_is_the_old_one(one, passwords[one.name])
    servers.nothing_would_change()


async def test_a_firewall_closes_all_but_what_is_named(servers: Servers) -> None:
    one = servers.machines[1]
    part = ("--limit", one.name, "--tags", "proxy")
    one.ssh(f"systemd-run --unit=another-port python3 -m http.server {CLOSED_PORT}")
    await until(lambda: one.open(CLOSED_PORT), "another port to be open")
    servers.variables["waypost_firewall"] = True
    assert servers.play("--check", "--diff", *part)[one.name]["changed"] > 0
    assert one.open(CLOSED_PORT)
    servers.play(*part)
    assert [port for port in (22, 25, 443, CLOSED_PORT) if one.open(port)] == [22, 25, 443]
    servers.nothing_would_change(*part)
    await some_mail_arrives(one)


async def test_another_port_is_added_to_a_server_in_use(servers: Servers, tell: Tell) -> None:
    one = servers.machines[1]
    async with next_hop(one) as arrived:
        with sending(one.address) as load:
            servers.variables["waypost_listen"] = ["0.0.0.0:25", "0.0.0.0:587"]
            await in_thread(servers.play, "--limit", one.name)
            already = len(load.accepted)
            await until(lambda: len(load.accepted) >= already + 10, "ten more messages to be accepted")
        tell(f"another port: {await all_arrived(arrived, load)}")
    for port in (25, 587):
        with smtplib.SMTP(one.address, port, timeout=60) as client:
            assert client.noop()[0] == 250
        await some_mail_arrives(one, port)


async def test_a_machine_that_starts_again_is_as_it_was(servers: Servers) -> None:
    one = servers.machines[1]
    one.ssh("systemctl stop another-port")  # it was for once
    one.reboot()
    one.ssh(f"systemd-run --unit=another-port python3 -m http.server {CLOSED_PORT}")
    one.ssh(ANSWERS)
    assert [port for port in (22, 25, 443, 587, CLOSED_PORT) if one.open(port)] == [22, 25, 443, 587]
    await some_mail_arrives(one)
    each_is_its_own_user(one)


async def test_a_firewall_that_is_no_longer_wanted_is_gone(servers: Servers) -> None:
    one = servers.machines[1]
    servers.variables.clear()
    servers.play("--limit", one.name, "--tags", "core,proxy")
    assert [port for port in (25, 587, CLOSED_PORT) if one.open(port)] == [25, CLOSED_PORT]
    await some_mail_arrives(one)
    await until_empty(one)


async def test_a_portal_that_is_no_longer_wanted_goes_and_comes_back_as_it_was(
    servers: Servers, passwords: dict[str, str]
) -> None:
    one = servers.machines[1]
    servers.variables.update({"waypost_portal": False, "waypost_reports": False})
    assert servers.play("--check", "--diff", "--limit", one.name)[one.name]["changed"] > 0
    assert one.open(443)
    servers.play("--limit", one.name)
    assert [port for port in (25, 443) if one.open(port)] == [25]
    assert (
        one.ssh("systemctl list-units --no-legend 'waypost-*.service' | grep -o 'waypost-[a-z]*'") == "waypost-core\n"
    )
    servers.nothing_would_change("--limit", one.name)
    await some_mail_arrives(one)
    servers.variables.clear()
    servers.play("--limit", one.name)
    await the_portal_is_the_old_one(one, passwords[one.name])
    servers.nothing_would_change("--limit", one.name)


async def test_what_a_play_that_was_killed_has_changed_is_read_by_the_next(servers: Servers) -> None:
    one = servers.machines[1]
    part = ("--limit", one.name)
    one.ssh("touch /etc/waypost/tls/certificate.pem /etc/nginx/sites-available/waypost")  # written, and nobody told
    core, nginx = main_pid(one), one.ssh("systemctl show -P StateChangeTimestampMonotonic nginx")
    assert servers.play("--check", *part)[one.name]["changed"] > 0
    assert main_pid(one) == core
    servers.play(*part)
    assert main_pid(one) != core
    assert one.ssh("systemctl show -P StateChangeTimestampMonotonic nginx") != nginx
    servers.nothing_would_change(*part)
    await some_mail_arrives(one)


def changes(counts: dict[str, dict[str, int]]) -> list[int]:
    return [count["changed"] for count in counts.values()]


def nothing_is_there(one: Machine) -> None:
    assert one.ssh(f"ls -d {LOST} 2>/dev/null || true") == ""


def held(one: Machine) -> int:
    return len(listed(one, "queue", "list", "--lane", "hold", "--reason", REASON, "--limit", "1000"))


async def backed_up(one: Machine, place: Path) -> tuple[Load, Path]:
    """Mail that waits, as its next hop is away, and a backup with it, on this side."""
    with sending(one.address, clients=2) as load:
        await until(lambda: len(load.accepted) >= 20, "twenty messages to be accepted")
    path = json.loads(one.ssh("mkdir -m 700 backups && waypost backup backups --queue --json"))["file"]
    kept = place / f"{one.name}.tar.zst"
    run("scp", *one.ssh_options, f"root@{one.address}:{path}", kept)
    one.ssh(f"waypost backup --verify {path} && rm -r backups")
    return load, kept


def restore(one: Machine, backup: Path) -> None:
    """As docs/install.md says it."""
    run("scp", *one.ssh_options, backup, f"root@{one.address}:backup.tar.zst")
    one.ssh(f"systemctl stop {SERVICES}")
    if one.number == 2:
        one.ssh("runuser -u postgres -- dropdb waypost")
        one.ssh("runuser -u postgres -- createdb --owner waypost-portal --encoding UTF8 --template template0 waypost")
    one.ssh("waypost restore backup.tar.zst --move-aside")
    one.ssh(f"systemctl start {SERVICES} && {ANSWERS}")


async def the_queue_is_held_and_released(one: Machine, load: Load) -> None:
    waiting = len(load.accepted)
    async with next_hop(one) as arrived:
        await until(lambda: held(one) == waiting, f"{waiting} messages to be held")
        assert arrived == []
        await new_mail_passes(one, arrived)
        arrived.clear()
        one.ssh(f"waypost queue release --all-matching --reason {REASON} --yes")
        said = await all_arrived(arrived, load)
        await until_empty(one)
        assert len(arrived) == waiting, said  # none of them twice


async def new_mail_passes(one: Machine, arrived: list[Arrival]) -> None:
    with smtplib.SMTP(one.address, 25, timeout=60) as client:
        await asyncio.to_thread(
            client.sendmail, "author@sender.example", ["new@example.org"], "Subject: new\r\n\r\n.\r\n"
        )
    await until(lambda: bool(arrived), "the new message to arrive")
    assert [arrival.recipients for arrival in arrived] == [("new@example.org",)]


async def the_portal_is_the_old_one(one: Machine, password: str) -> None:
    """Its accounts, its audit, and what was tuned."""
    assert "7" in json.dumps(asked(one, "transport", "list"))
    async with signed_in(f"{one.name}.example", one.address, password) as page:
        await page.goto("/audit/")
        await expect(page.locator("table.audit")).to_contain_text(WHY, timeout=PATIENCE_MS)
