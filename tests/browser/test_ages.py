"""Ages in the browser, with a real core: a cell leads to just the messages it counts."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import expect

from mailcore.lab.lab import Lab
from tests.browser.site import site
from tests.running.running_core import route_to


@pytest.mark.long
async def test_a_cell_leads_into_the_queue_and_a_new_count_is_shown(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0", "accept:127.0.0.1:0"]) as lab:
        routes = {"other.example": route_to(lab, 1)}
        async with site(tmp_path, lab, routes=routes) as it:
            names = [route_to(lab, 0), route_to(lab, 1)]
            for name in names:
                await it.core.ask("suspend", destination=name)
            page = await it.sign_in("viewer")
            await page.goto(it.url("/queue/ages/"))
            await expect(page.locator("#ages")).to_contain_text("The queue is empty.")
            for number in range(3):
                await it.core.send(f"r{number}@example.org")
            other = await it.core.send("a@other.example", "a@example.org")

            await page.click("text=Count again")
            table = page.locator("table.ages")
            await expect(table.locator("tbody tr")).to_have_count(3)
            sums = table.locator("tr.sums td")
            await expect(sums.nth(0)).to_have_text("4")
            await expect(sums.nth(1)).to_have_text("4")  # each once, the one for both as well
            row = table.locator("tr", has_text=names[1])
            await expect(row.locator("td").nth(1)).to_have_class("heat heat-1")
            await row.locator("td").nth(1).locator("a").click()
            await page.wait_for_url("**/queue/?destination=*")
            await expect(page.locator("main")).to_contain_text(other)
            assert "younger_than" in page.url
