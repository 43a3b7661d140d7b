"""A message whose segments are gone, in a browser: it is found, and its page has its timeline, out of the exported events."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import expect

from mailcore.lab.lab import Lab
from tests.browser.queue_steps import PATIENCE_MS
from tests.browser.site import site
from tests.running.exported_only import EXPORTING, until_forgotten

MARKUP = "<img src=x onerror=alert(1)>"


@pytest.mark.long
async def test_a_message_that_no_segment_knows_is_found_and_told(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, site(tmp_path, lab, EXPORTING) as it:
        data = f"Message-ID: <{MARKUP}@x.example>\r\n\r\nHello.\r\n".encode()
        queue_id = await it.core.send("a@example.org", "b@example.org", sender='"<b>x</b>"@sender.example', data=data)
        await it.core.until_removed(queue_id)
        await until_forgotten(it.core, queue_id)
        page = await it.sign_in("viewer")
        page.on("dialog", lambda dialog: it.complaints.append(dialog.message))
        for kind, typed in (("recipient", "B@example.org"), ("sender", "*<b>*"), ("message_id", "<<img*")):
            await page.goto(it.url("/queue/search/"))
            await page.fill("#q", typed)
            await page.click("main form button[type=submit]")
            await expect(page.locator(f"#reading-{kind}")).to_contain_text("search complete", timeout=PATIENCE_MS)
            await expect(page.locator(f"#rows-{kind} tr")).to_have_count(1)
            await expect(page.locator(f"#rows-{kind} tr")).to_contain_text("delivered")
            assert await page.locator("main img, main b").count() == 0
        await page.click(f"#rows-message_id a:text-is('{queue_id}')")
        await page.wait_for_url(f"**/queue/{queue_id}/")
        await expect(page.locator(".state-line")).to_contain_text("delivered")
        await expect(page.locator(".timeline li").first).to_contain_text("Accepted")
        await expect(page.locator(".timeline li.attempt")).to_have_count(1)
        await expect(page.locator(".timeline li.attempt")).to_contain_text("250 2.0.0 Ok")
        await expect(page.locator(".timeline li.attempt rect.d title")).to_have_count(1)
        await expect(page.locator(".timeline li").last).to_contain_text("Finished")
        await expect(page.locator("#recipients tr")).to_have_count(2)
        await expect(page.locator("#recipients")).to_contain_text("b@example.org")
        await expect(page.locator("main")).not_to_contain_text("its history is incomplete")
        assert await page.locator("main img, main b").count() == 0
