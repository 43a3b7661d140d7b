"""The portal of a node with two shards, in the browser: with both, and with one that does not answer: nothing of it is zero."""

from __future__ import annotations

import os
from pathlib import Path

from playwright.async_api import Page, expect

from mailcore.lab.lab import Lab
from mailcore.queue.queue_id import shard_of
from tests.browser.fitting import misfits
from tests.browser.site import Site, site
from tests.eventually import PATIENCE_MS
from tests.running.running_core import Sections
from tests.running.running_shards import RunningShards

SHOTS = os.environ.get("WAYPOST_SHOTS", "")
MESSAGES = 12
SLOW: Sections = {
    "queue": {"retry_ladder_s": [600]},
    "scheduler": {"minimal_backoff_time": 600, "maximal_backoff_time": 600},
    "supervisor": {"silent_s": 600},
}
PAGES = {
    "queue": "/queue/",
    "destinations": "/destinations/",
    "tuning": "/tuning/",
    "log": "/log/",
    "webhooks": "/webhooks/",
    "positions": "/positions/",
    "reports": "/reports/",
    "overview": "/",
}


async def every_page_fits(it: Site, page: Page, state: str) -> None:
    """Each page at both widths; with WAYPOST_SHOTS there are pictures to look at."""
    for width in (1440, 360):
        await page.set_viewport_size({"width": width, "height": 900})
        for name, path in PAGES.items():
            await page.goto(it.url(path))
            await expect(page.locator("#core-status")).to_contain_text("core: ", timeout=PATIENCE_MS)
            assert await misfits(page) == [], (state, name, width)
            if SHOTS:
                await page.screenshot(path=Path(SHOTS) / f"{state}-{name}-{width}.png", full_page=True)


async def test_with_a_shard_that_does_not_answer_no_page_takes_a_part_for_the_whole(tmp_path: Path) -> None:
    async with Lab(["reject(1.0, 450):127.0.0.1:0"]) as lab, site(tmp_path, lab, SLOW, shards=2) as it:
        core = it.core
        assert isinstance(core, RunningShards)
        ids = await core.send_many(MESSAGES)
        for each in ids:
            await core.until_in(each, "retry")
        of_first = len([each for each in ids if shard_of(each) == 0])
        assert 0 < of_first < MESSAGES
        page = await it.sign_in("administrator")
        await expect(page.locator("#rates .messages .figure")).to_have_text(f"{MESSAGES}", timeout=PATIENCE_MS)
        await every_page_fits(it, page, "both")
        await page.goto(it.url("/queue/"))
        await expect(page.locator("tbody a[href^='/queue/']").filter(has_text=ids[0])).to_be_visible(
            timeout=PATIENCE_MS
        )
        await expect(page.locator("#queue-total")).to_have_text(f"{MESSAGES}", timeout=PATIENCE_MS)

        await core.stopped("supervisor@1")
        for process in ("control@1", "manager@1"):
            await core.kill_now(process)
        await page.goto(it.url("/"))
        await expect(page.locator("#stale")).to_contain_text("The numbers are incomplete", timeout=PATIENCE_MS)
        await expect(page.locator("#rates .messages .figure")).to_have_text(f"≥ {of_first}", timeout=PATIENCE_MS)
        await expect(page.locator("main")).not_to_contain_text("Deliveries go out one at a time")
        await expect(page.locator("#balance-verdict")).to_contain_text("It is not known", timeout=PATIENCE_MS)
        await page.goto(it.url("/queue/"))
        await expect(page.locator("#queue-total")).to_have_text(f"at least {of_first}", timeout=PATIENCE_MS)
        await expect(page.locator("#reading .warn")).to_contain_text("shard 1", timeout=PATIENCE_MS)
        await expect(page.locator("#reading")).not_to_contain_text("all there are")
        await page.goto(it.url("/destinations/"))
        await expect(page.locator("#stale")).to_contain_text("The numbers are incomplete", timeout=PATIENCE_MS)
        await every_page_fits(it, page, "away")
