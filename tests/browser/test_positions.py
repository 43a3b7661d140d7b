"""Restart positions in the browser, with a real core: the lanes, what keeps their segments, no jump at a refresh."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import expect

from mailcore.lab.lab import Lab
from tests.browser.site import site
from tests.running.running_core import route_to


@pytest.mark.long
async def test_the_lanes_are_shown_and_stay_as_the_reader_left_them(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, site(tmp_path, lab) as it:
        await it.core.ask("suspend", destination=route_to(lab, 0))
        await it.core.send("a@example.org")
        page = await it.sign_in("viewer")
        await page.goto(it.url("/positions/"))
        for lane in ("incoming.0", "journal", "local"):
            await expect(page.locator(f"tr[data-lane='{lane}'] svg")).to_be_visible()
        await expect(page.locator("#recovery")).not_to_be_empty()
        details = page.locator("#segments-incoming0")
        await details.locator("summary").click()
        await expect(details.locator("tr[data-kept-by='newest'] .kept")).not_to_be_empty()
        await details.locator("summary").focus()
        async with page.expect_response("**/positions/"):
            pass
        async with page.expect_response("**/positions/"):  # so the one before has been shown
            pass
        assert await details.get_attribute("open") is not None
        assert await page.evaluate("document.activeElement.closest('details').id") == "segments-incoming0"

        await it.core.kill_now("manager")  # whether it is away or back, the page goes on
        async with page.expect_response("**/positions/"):
            pass
        await it.core.ready()
        await expect(page.locator("tr[data-lane='incoming.0'] svg")).to_be_visible()
        await expect(page.locator("#recovery")).not_to_be_empty()
