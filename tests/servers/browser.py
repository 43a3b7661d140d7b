"""The portal over HTTPS, through nginx of the server and its own certificate, in Debian's Chromium."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from playwright.async_api import Page, async_playwright

from tests.browser.chromium import CHROMIUM

__all__ = ["PATIENCE_MS", "SIGN_IN", "change_first_password", "signed_in"]

PATIENCE_MS = 120_000
SIGN_IN = "main button.primary[type=submit]"  # beside it may be the button for passkeys


@asynccontextmanager
async def signed_in(name: str, address: str, password: str, path: str = "/") -> AsyncIterator[Page]:
    """A page of the administrator, at https://NAME/, which is at that address. ``path``: where the sign-in leads."""
    arguments = [*CHROMIUM["args"], f"--host-resolver-rules=MAP {name} {address}"]
    async with async_playwright() as play:
        browser = await play.chromium.launch(**{**CHROMIUM, "args": arguments})
        context = await browser.new_context(ignore_https_errors=True, base_url=f"https://{name}")
        context.set_default_timeout(PATIENCE_MS)
        page = await context.new_page()
        await page.goto("/accounts/login/")
        await page.fill("input[name=login]", "admin")
        await page.fill("input[name=password]", password)
        await page.click(SIGN_IN)
        await page.wait_for_url(f"https://{name}{path}")
        yield page
        await browser.close()


async def change_first_password(name: str, address: str, password: str) -> str:
    """Signs in with the first password, which must be changed before anything else; returns the new one."""
    changed = secrets.token_urlsafe(12)
    async with signed_in(name, address, password, "/accounts/password/") as page:
        await page.fill("input[name=oldpassword]", password)
        await page.fill("input[name=password1]", changed)
        await page.fill("input[name=password2]", changed)
        await page.click("main button[type=submit]")
        await page.wait_for_url(f"https://{name}/")
    return changed
