"""A retry of all that match in the browser: scheduled mail is chosen or not, and a dead destination in the way is resumed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from mailcore.lab.lab import Lab
from tests.browser.queue_steps import give_reason, open_queue
from tests.browser.site import site
from tests.browser.test_destinations import SECTIONS
from tests.running.running_core import route_to

LONG = {**SECTIONS, "queue": {"retry_ladder_s": [600]}}


async def ask_for_retry(page: Page) -> None:
    await page.check("#all-matching")
    await page.click("#acts button:text-is('Retry now')")


@pytest.mark.long
async def test_a_retry_leaves_scheduled_mail_alone_and_offers_to_resume_the_dead(tmp_path: Path) -> None:
    async with Lab(["close(connect):127.0.0.1:0"]) as lab, site(tmp_path, lab, LONG) as it:
        name = route_to(lab, 0)
        await it.core.until_in(await it.core.send("a@example.org"), "retry.")
        scheduled = await it.core.inject("b@example.org", not_before=time.time() + 3600)
        await it.core.until_in(scheduled, "retry.")
        page = await it.sign_in("operator")
        await open_queue(it, page, "?recipient=*@example.org")
        await ask_for_retry(page)
        await page.click("#dialog button:text-is('Count them')")
        await expect(page.locator("#matched")).to_have_text("1")
        await page.click("#dialog button:text-is('Cancel')")
        await ask_for_retry(page)
        await page.check("#dialog input[name=scheduled]")
        await page.click("#dialog button:text-is('Count them')")
        await expect(page.locator("#matched")).to_have_text("2")
        await expect(page.locator("#dialog")).to_contain_text("Scheduled mail is retried, too")
        await give_reason(page, "they are back")
        await expect(page.locator("#dialog")).to_contain_text("This destination is dead")
        await lab.hops[0].set_behaviour("accept")
        await page.click("#dialog button:text-is('Resume…')")
        await expect(page.locator("#dialog")).to_contain_text(f"Resume {name}")
        await page.fill("#dialog input[name=why]", "they are back")
        await page.click("#dialog button:text-is('Resume')")
        await expect(page.locator("#notice .success")).to_be_visible()
        await expect(page.locator("#destination .states")).to_contain_text("ready")
