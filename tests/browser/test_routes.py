"""Routes in the browser, with a real core: where an address would go."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import expect

from mailcore.lab.lab import Lab
from tests.browser.site import site
from tests.running.running_core import route_to

HOSTILE = "a@<img src=x onerror=alert(1)>\u202e.example"


@pytest.mark.long
async def test_an_address_is_followed_and_a_hostile_one_does_no_harm(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab:
        routes = {"name.example": "smtp:[nowhere.invalid]"}
        async with site(tmp_path, lab, routes=routes) as it:
            page = await it.sign_in("viewer")
            await page.goto(it.url("/routes/"))
            await expect(page.locator("table").last).to_contain_text("sender.example")
            await page.fill("#address", "a@example.org")
            await page.click("main button:has-text('Look up')")
            found = page.locator("#resolved")
            await expect(found.locator("table.hosts")).to_contain_text("127.0.0.1")
            await expect(found.locator("dl a")).to_have_text(route_to(lab, 0))

            await page.fill("#address", "a@name.example")
            await page.click("main button:has-text('Look up')")
            await expect(found.locator(".notice.warning")).not_to_be_empty(timeout=15_000)

            await page.fill("#address", HOSTILE)
            await page.click("main button:has-text('Look up')")
            await expect(found).to_contain_text("would go nowhere")
            await expect(found).to_contain_text("\\u202e")
            assert await found.locator("img").count() == 0
