"""The mail log in the browser, with a real core: lines come as they are written, and are filtered."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from playwright.async_api import expect

from mailcore.lab.lab import Lab
from tests.browser.site import site
from tests.browser.test_access import faults
from tests.running.exported_only import EXPORTING

SHOTS = os.environ.get("WAYPOST_SHOTS", "")  # a directory, for a person who wants to look


async def test_lines_come_as_they_are_written_and_are_filtered(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, site(tmp_path, lab) as it:
        page = await it.sign_in("viewer")
        await page.goto(it.url("/log/"))
        await expect(page.locator("table.log")).to_contain_text("started")
        queue_id = await it.core.send("reader@example.org")
        other = await it.core.send("other@example.net")
        row = page.locator("table.log tr", has_text="reader@example.org")
        await expect(row.first).to_contain_text("sent")
        await expect(page.locator("table.log")).to_contain_text(other)
        for width in (1440, 360) if SHOTS else ():
            await page.set_viewport_size({"width": width, "height": 900})
            await page.screenshot(path=f"{SHOTS}/log-{width}.png", full_page=True)
        await page.goto(it.url("/log/?recipient=later@example.org"))
        await expect(page.locator(".no-lines")).to_be_visible()
        await it.core.send("later@example.org")
        await expect(page.locator("table.log td", has_text="later@example.org").first).to_be_visible()
        await expect(page.locator(".no-lines")).not_to_be_visible()
        await page.goto(it.url("/log/?recipient=reader@*&status=sent"))
        await expect(page.locator("table.log tbody tr")).to_have_count(1)
        await page.click(f"table.log a:has-text('{queue_id}')")
        await expect(page.locator("table.log")).to_contain_text("accepted")
        await expect(page.locator("table.log")).not_to_contain_text(other)
        await page.click("text=The whole message")
        await expect(page.locator("main")).to_contain_text("reader@example.org")


@pytest.mark.long
async def test_older_lines_come_out_of_events_when_the_files_are_gone(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, site(tmp_path, lab, EXPORTING) as it:
        queue_id = await it.core.send("reader@example.org")
        await it.core.until_removed(queue_id)
        await it.core.ask("size_at", time=time.time())  # which exports
        it.core.stop()
        await it.core.control.close()
        for path in (it.core.home / "log").glob("mail.*"):
            path.unlink()
        await it.core.start()
        page = await it.sign_in("viewer")
        await page.goto(it.url("/log/"))
        await expect(page.locator("table.log tr.from-events")).to_have_count(1)
        row = page.locator("table.log tr", has_text="reader@example.org")
        await expect(row.first).to_contain_text("sent")
        assert not (await faults(page, "the log out of events"))
        for width in (1440, 360) if SHOTS else ():
            await page.set_viewport_size({"width": width, "height": 900})
            await page.screenshot(path=f"{SHOTS}/log-events-{width}.png", full_page=True)
