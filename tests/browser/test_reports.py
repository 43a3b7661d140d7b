"""Reports in the browser: a run asked for on the page, tables that sort where they are, bars; wide and narrow."""

from __future__ import annotations

import asyncio
from datetime import date
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from appliance.reports.report_store import Period
from mailcore.lab.lab import Lab
from tests.appliance.reports.made import make_report, tables
from tests.browser.site import site
from tests.browser.test_access import faults
from tests.browser.test_report_letter import BROKEN_WORDS

DAY = date(2026, 11, 18)
REACHING_OUT = """[...document.querySelectorAll("body *")]
    .map(each => [each.tagName, each.id, each.className, each.getBoundingClientRect().right])
    .filter(each => each[3] > window.innerWidth)"""


def some_reports(home: Path) -> None:
    root = home / "reports"
    root.mkdir(exist_ok=True)
    for number in range(1, 19):
        make_report(
            root, Period.DAY, date(2026, 11, number), number != 18, tables(destinations=300 if number == 18 else 12)
        )
    make_report(root, Period.WEEK, date(2026, 11, 9))


async def fits(page: Page) -> None:
    width = await page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert width[0] <= width[1], f"wider than the window: {await page.evaluate(REACHING_OUT)}"


@pytest.mark.parametrize(("width", "scheme"), [pytest.param(1280, "light", marks=pytest.mark.long), (360, "dark")])
async def test_a_report_is_read_sorted_and_taken_along(tmp_path: Path, width: int, scheme: str) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, site(tmp_path, lab) as it:
        await asyncio.to_thread(some_reports, it.core.home)
        page = await it.sign_in("viewer", viewport={"width": width, "height": 800}, color_scheme=scheme)
        await page.goto(it.url("/reports/"))
        await fits(page)
        await page.click("text=Wed 2026-11-18")
        await expect(page.locator("#balance")).to_contain_text("It does not balance")
        await expect(page.locator("#balance")).to_contain_text("0123456789ABCDEF")
        await expect(page.locator("[data-lines=inside] canvas")).to_be_visible()
        await expect(page.locator("[data-lines=trend] canvas")).to_be_visible()
        await fits(page)
        assert await page.evaluate(BROKEN_WORDS) == []

        first = page.locator("#destinations tbody tr:first-child td:first-child")
        await expect(first).to_have_text("smtp:domain298.example")
        by_attempts = page.locator("#sort-destinations-attempts")
        await by_attempts.focus()
        await page.keyboard.press("Enter")
        await expect(first).to_contain_text("smtp:=cmd")
        await expect(page.locator("#destinations thead [aria-sort]")).to_have_attribute("aria-sort", "ascending")
        await expect(by_attempts).to_be_focused()  # the keyboard's place stays
        await page.click("#reasons thead a >> nth=0")
        await expect(page.locator("#reasons thead [aria-sort]")).to_have_attribute("aria-sort", "ascending")
        await expect(first).to_contain_text("smtp:=cmd")  # the other table stayed as it was
        await page.reload()  # and so do both over a reload
        await expect(first).to_contain_text("smtp:=cmd")
        await expect(page.locator("#reasons thead [aria-sort]")).to_have_attribute("aria-sort", "ascending")

        async with page.expect_download() as download:
            await page.click("#destinations a:has-text('CSV')")
        path = await (await download.value).path()
        assert path.read_bytes().count(b"\r\n") == 301
        await page.click("a[rel=prev]")
        await expect(page.locator("#balance")).to_contain_text("It balances.")
        await fits(page)
        assert await faults(page, scheme) == []  # with fewer rows: of 6 000 elements it takes 16 s


@pytest.mark.long
async def test_run_now_while_nothing_makes_reports_says_that_it_waits(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, site(tmp_path, lab) as it:
        page = await it.sign_in("operator")
        await page.goto(it.url("/reports/"))
        await page.fill("input[name=day]", "2026-11-18")
        await page.click("text=Run now")
        await expect(page.locator("#run")).to_contain_text("waiting")
        await page.click("#run button:has-text('Stop')")
        await expect(page.locator("#run")).to_contain_text("stopped")
        await expect(page.locator("h1")).to_contain_text("Wednesday 18 November 2026")
