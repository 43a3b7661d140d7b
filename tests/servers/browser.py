"""The portal over HTTPS, through nginx of the server and its own certificate, in Debian's Chromium."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from playwright.async_api import Page, async_playwright

from tests.browser.chromium import CHROMIUM

__all__ = ["PATIENCE_MS", "signed_in"]

PATIENCE_MS = 120_000


@asynccontextmanager
async def signed_in(name: str, address: str, password: str) -> AsyncIterator[Page]:
    """A page of the administrator, at https://NAME/, which is at that address."""
    arguments = [*CHROMIUM["args"], f"--host-resolver-rules=MAP {name} {address}"]
    async with async_playwright() as play:
        browser = await play.chromium.launch(**{**CHROMIUM, "args": arguments})
        context = await browser.new_context(ignore_https_errors=True, base_url=f"https://{name}")
        context.set_default_timeout(PATIENCE_MS)
        page = await context.new_page()
        await page.goto("/accounts/login/")
        await page.fill("input[name=login]", "admin")
        await page.fill("input[name=password]", password)
        await page.click("main button[type=submit]")
        await page.wait_for_url(f"https://{name}/")
        yield page
        await browser.close()
