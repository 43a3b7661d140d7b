"""Alerts in the browser, with a real core and a real watch: a test arrives, an alert appears by itself, and is acknowledged."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.async_api import expect

from mailcore.lab.lab import Lab
from tests.browser.site import Site, _environment, site
from tests.browser.test_kept import applied, shots
from tests.eventually import PATIENCE_MS
from tests.running.catcher import Catcher
from tests.test_tidy import ROOT


def started(it: Site) -> subprocess.Popen[bytes]:
    """The watch, as ./run starts it."""
    command = [sys.executable, "manage.py", "watch", "--with-parent", str(os.getpid())]
    return subprocess.Popen(command, cwd=ROOT, env=_environment(it.core.directory / "waypost.toml"))


@pytest.mark.long
async def test_who_is_warned_is_set_in_the_browser_alone_while_the_watch_runs(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, Catcher() as catcher, site(tmp_path, lab) as it:
        watch = started(it)
        try:
            page = await it.sign_in("administrator")
            await page.goto(it.url("/alerts/"))
            await expect(page.locator("main .notice.warning a")).to_have_text("Settings, Alerts")
            await page.goto(it.url("/settings/kinds/alerts/"))
            await shots(page, "alerts")
            await page.fill("#alerts-recipients", "nobody")
            await page.click("section.card:has(#group-1) button.primary")
            await expect(page.locator("#alerts-recipients-wrong1")).to_be_visible()
            await shots(page, "alerts-fault")
            await page.fill("#alerts-recipients", "on-call@example.org")
            await page.fill("#alerts-smtp", catcher.route.partition(":")[2].replace("[", "").replace("]", ""))
            await page.click("section.card:has(#group-1) button.primary")
            await expect(page.locator("main")).to_contain_text("No process starts again")
            await shots(page, "alerts-check")
            await applied(page)
            await page.goto(it.url("/alerts/"))
            await page.click("main button:has-text('Send a test to each')")
            await expect(page.locator("#notices")).to_contain_text("250 catcher.example", timeout=PATIENCE_MS)
            assert [recipients for _, recipients, _ in catcher.caught] == [["on-call@example.org"]]

            await page.goto(it.url("/settings/kinds/alerts/"))
            for rule in ("disk", "dkim"):
                await page.check(f"#alerts-off input[value={rule}]")
            await page.fill("#alerts-interval_s", "1")
            await page.click("section.card:has(#group-2) button.primary")
            await applied(page)
            await page.goto(it.url("/alerts/rules/disk/"))
            await expect(page.locator("dl.facts")).to_contain_text("off")
            await shots(page, "alerts-rule-off")
            assert 'off = ["disk", "dkim"]' in (it.core.home / "managed.toml").read_text()
        finally:
            watch.kill()
            await asyncio.to_thread(watch.wait)


@pytest.mark.long
async def test_a_test_arrives_and_an_alert_appears_and_is_acknowledged(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, Catcher() as catcher:
        alerts = {
            "recipients": ["on-call@example.org"],
            "smtp": catcher.route.partition(":")[2].replace("[", "").replace("]", ""),
            "interval_s": 1.0,
            "core_away_s": 1,
            "off": ["disk"],
        }
        async with site(tmp_path, lab, {"alerts": alerts}) as it:
            watch = started(it)
            try:
                page = await it.sign_in("operator")
                await page.goto(it.url("/alerts/"))
                await page.click("main button:has-text('Send a test to each')")
                await expect(page.locator("#notices")).to_contain_text("250 catcher.example", timeout=PATIENCE_MS)
                assert [recipients for _, recipients, _ in catcher.caught] == [["on-call@example.org"]]

                await page.goto(it.url("/"))
                await expect(page.locator("#needs .notice.error")).to_have_count(0)
                it.core.stop()
                alert = page.locator("#needs .notice.error")
                await expect(alert).to_contain_text("The core does not answer", timeout=PATIENCE_MS)
                await expect(page.locator("#alerts-count")).to_contain_text("1")

                await alert.locator("a:has-text('Alert')").click()
                await page.fill("[name=acknowledge-why]", "I start it again")
                await page.click("main button:has-text('Acknowledge')")
                await expect(page.locator("dl.facts")).to_contain_text("by operator: I start it again")
                await page.click("main a:has-text('The page that shows why')")
                await expect(page.locator("h1")).to_have_text("Overview")
                await expect(alert).to_contain_text("acknowledged by operator")
            finally:
                watch.kill()
                await asyncio.to_thread(watch.wait)
                await it.core.start()
