"""Open pages and their sessions, in a browser: what a page asks for by itself says so, and prolongs nothing; who signs out in
one window hears no more in the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.async_api import Request, expect

from mailcore.lab.lab import Lab
from tests.browser.site import site
from tests.eventually import PATIENCE_MS

AGAIN = "waypost-again"


def asked_again(url: str) -> Callable[[Request], bool]:
    return lambda request: url in request.url and AGAIN in request.headers


@pytest.mark.long
async def test_what_a_page_asks_for_by_itself_says_so(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, site(tmp_path, lab) as it:
        queue_id = await it.core.inject("c@example.org", not_before=time.time() + 86_400)
        page = await it.sign_in_by_form("operator")
        asked: list[tuple[str, str | None]] = []

        def note(request: Request) -> None:
            if "hx-request" in request.headers:
                asked.append((request.url.removeprefix(it.url("")), request.headers.get(AGAIN)))

        page.on("request", note)
        for path, again in (
            ("/positions/", "/positions/"),
            (f"/queue/{queue_id}/", f"/queue/{queue_id}/waiting/"),
            ("/reports/", "/reports/?seen="),
        ):
            asked.clear()
            async with page.expect_request(asked_again(again)):
                await page.goto(it.url(path))
            assert {header for _, header in asked} == {"1"}, asked
        asked.clear()
        await page.goto(it.url(f"/queue/{queue_id}/"))
        await page.click("button:has-text('Hold')")
        await expect(page.locator("#dialog[open]")).to_be_visible()
        assert [header for url, header in asked if "/change/hold/" in url] == [None], "somebody did that"


async def test_who_signs_out_in_one_window_hears_no_more_in_the_other(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, site(tmp_path, lab) as it:
        page = await it.sign_in_by_form("viewer")
        await expect(page.locator("#core-status")).to_have_text("core: running", timeout=PATIENCE_MS)
        other = await page.context.new_page()
        await other.goto(it.url("/queue/"))
        await other.click("summary")
        await other.click("text=Sign out")
        await other.wait_for_url("**/accounts/login/**")
        await expect(page.locator("#core-status")).to_have_text("portal: signed out", timeout=PATIENCE_MS)
        await expect(page.locator("#stale")).to_contain_text("and no longer live")
        # It asked to listen again, and was sent to sign in: the browser says that this is no stream.
        it.complaints[:] = [each for each in it.complaints if "EventSource's response" not in each]


async def test_a_session_ended_from_another_browser_ends_with_its_stream(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, site(tmp_path, lab) as it:
        lost = await it.sign_in_by_form("viewer")
        await expect(lost.locator("#core-status")).to_have_text("core: running", timeout=PATIENCE_MS)
        here = await it.sign_in_by_form("viewer")
        await here.goto(it.url("/accounts/sessions/"))
        rows = here.locator("main tbody tr")
        assert await rows.count() == 3, "the third was begun when the portal was prepared"
        assert "Chrome" in await rows.first.inner_text()
        await here.click("text=End all other sessions")
        await expect(rows).to_have_count(1)
        await expect(lost.locator("#core-status")).to_have_text("portal: signed out", timeout=PATIENCE_MS)
        await lost.goto(it.url("/queue/"))
        assert "/accounts/login/" in lost.url
        it.complaints[:] = [each for each in it.complaints if "EventSource's response" not in each]
