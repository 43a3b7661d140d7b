"""The package of the reports on a bare Debian 12 and 13: beside the other, a report made in the portal, its removal."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest
from playwright.async_api import expect

from tests.servers.browser import PATIENCE_MS, change_first_password, signed_in
from tests.servers.machine import BARE, Machine, missing
from tests.servers.packages import APT, package
from tests.servers.servers import FIRST, HOP_PORT, booted, each_is_its_own_user, some_mail_arrives
from tests.servers.test_package import set_up

pytestmark = [
    pytest.mark.servers,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(bool(missing()), reason=missing() or "-"),
]
SYSTEMS = [("bookworm", "3.11", 10), ("trixie", "3.13", 11)]
NAMES = ("waypost", "waypost-reports")
REPORT_MS = 600_000  # Spark starts on a machine that does other things, too


@pytest.fixture(scope="module", params=SYSTEMS, ids=lambda each: each[0])
def one(request: pytest.FixtureRequest) -> Iterator[Machine]:
    suite, python, number = request.param
    built = {name: package(FIRST, python, name) for name in NAMES}
    with booted(suite, [number], BARE) as made:
        for name, path in built.items():
            shutil.copy(path, made.machines[0].tree / "root" / f"{name}.deb")
        yield made.machines[0]


async def test_the_portal_makes_a_report(one: Machine, tell: Callable[[str], None]) -> None:
    began = time.monotonic()
    await asyncio.to_thread(one.ssh, f"{APT} update && {APT} install --yes ./waypost.deb ./waypost-reports.deb", 1200)
    installed = time.monotonic()
    password = (await asyncio.to_thread(set_up, one))["password"]
    ready = time.monotonic()
    exposed = await asyncio.to_thread(each_is_its_own_user, one)
    tell(f"exposure of core, portal, watch, webhooks, worker, beat, Redis: {exposed}")
    settings = (
        f's/^"\\*" = .*/"*" = "smtp:[{one.host}]:{HOP_PORT}"/',
        r's/^networks = ./networks = ["10.25.0.0\/16", /',
    )
    edit = " ".join(f"-e '{each}'" for each in settings)
    await asyncio.to_thread(one.ssh, f"sed -i {edit} /etc/waypost/waypost.toml && waypost reload")
    await some_mail_arrives(one)
    name = f"{one.name}.example"
    password = await change_first_password(name, one.address, password)
    async with signed_in(name, one.address, password) as page:
        await page.goto("/reports/")
        await page.fill("input[name=day]", datetime.now(UTC).date().isoformat())
        asked = time.monotonic()
        await page.click("text=Run now")
        report = page.locator("#run a:has-text('The report')")
        failed = page.locator("#run [role=alert]")
        await expect(report.or_(failed).first).to_be_visible(timeout=REPORT_MS)
        assert await failed.count() == 0, await page.locator("#run").inner_text()
        made = time.monotonic()
        await report.click()
        await expect(page.locator("#balance")).to_contain_text("It balances.", timeout=PATIENCE_MS)
    tell(
        f"both packages: apt {installed - began:.1f} s, setup {ready - installed:.1f} s; the first report {made - asked:.1f} s"
    )


def test_its_removal_stops_its_services_and_no_others(one: Machine) -> None:
    one.ssh(f"{APT} purge --yes waypost-reports", 300)
    left = one.ssh("systemctl list-units --all --plain --no-legend 'waypost-*.service'").splitlines()
    assert sorted(line.split()[0].removesuffix(".service") for line in left) == [
        "waypost-core", "waypost-portal", "waypost-watch", "waypost-webhooks",
    ]  # fmt: skip
    one.ssh("test ! -e /etc/waypost/redis.conf && ! grep -q REDIS_URL /etc/waypost/portal.env")
    assert "apt install waypost-reports" in one.ssh("waypost report 2026-11-20 2>&1 || true")
    found = set_up(one)
    assert (found["changes"], found["problems"]) == ([], [])
