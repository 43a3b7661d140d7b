"""The queue as it was, in a browser with a real core: picked on the overview, followed to the queue and to a message."""

from __future__ import annotations

import asyncio
import os
import time
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from playwright.async_api import Page, expect

from mailcore.lab.lab import Lab
from tests.browser.queue_steps import PATIENCE_MS
from tests.browser.site import site
from tests.browser.test_access import faults
from tests.running.exported_only import EXPORTING
from tests.running.running_core import route_to

SHOTS = os.environ.get("WAYPOST_SHOTS", "")  # a directory, for a person who wants to look
SECTIONS = {
    **EXPORTING,
    "scheduler": {"minimal_backoff_time": 30.0, "maximal_backoff_time": 60.0},
    "queue": {"retry_ladder_s": [30, 60]},
}


async def shot(page: Page, name: str) -> None:
    for width in (1440, 360) if SHOTS else ():
        await page.set_viewport_size({"width": width, "height": 900})
        await page.screenshot(path=f"{SHOTS}/{name}-{width}.png", full_page=True)
    await page.set_viewport_size({"width": 1440, "height": 900})


@pytest.mark.long
async def test_the_queue_of_a_moment_is_shown_from_the_overview_to_a_message(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0", "greylist(600):127.0.0.1:0"]) as lab:
        routes = {"later.example": route_to(lab, 1)}
        async with site(tmp_path, lab, SECTIONS, routes=routes) as it:
            held = await it.core.send("a@later.example", "b@later.example")
            await it.core.send("c@later.example", sender="other@sender.example")
            await asyncio.sleep(1.2)
            await it.core.order("hold", held, "wait for her")
            await asyncio.sleep(1.2)
            at = int(time.time())
            await asyncio.sleep(1.2)
            await it.core.order("delete", held, "not needed")
            page = await it.sign_in("operator")
            await page.goto(it.url("/"))
            await page.click("summary:has-text('At a moment')")
            zone = await page.evaluate("Intl.DateTimeFormat().resolvedOptions().timeZone")
            await page.fill("#at", datetime.fromtimestamp(at, ZoneInfo(zone)).strftime("%Y-%m-%dT%H:%M:%S"))
            await page.click("form.at button")
            await expect(page.locator(".notice.past")).to_contain_text("As it was at")
            await expect(page.locator("#then .figure").first).to_have_text("2", timeout=PATIENCE_MS)
            await expect(page.locator("#then")).to_contain_text("not known: events do not have them")
            assert not (await faults(page, "the overview of a moment"))
            await shot(page, "overview-then")
            await page.click("#then .figure a")
            await expect(page.locator("#then tbody tr")).to_have_count(2, timeout=PATIENCE_MS)
            row = page.locator("#then tbody tr", has_text=held)
            await expect(row).to_contain_text("held")
            await expect(row).to_contain_text("wait for her")
            await expect(page.locator("main button[data-act]")).to_have_count(0)
            await expect(page.locator("main input[type=checkbox]")).to_have_count(0)
            assert not (await faults(page, "the queue of a moment"))
            await shot(page, "queue-then")
            await page.click(f"#then a:text-is('{held}')")
            await expect(page.locator(".timeline")).to_contain_text("Hold")
            await expect(page.locator(".timeline")).not_to_contain_text("Delete")
            await expect(page.locator("main")).to_contain_text("of later times left out")
            assert not (await faults(page, "a message of a moment"))
            await shot(page, "message-then")
            await page.click("text=Queue at this moment")
            await page.click("main nav.lanes a:text-is('Held')")
            await expect(page.locator("#then tbody tr")).to_have_count(1, timeout=PATIENCE_MS)
            await page.click("text=Show it as it is now")
            await expect(page.locator(".notice.past")).to_have_count(0)
            await shot(page, "queue-now")
