"""The browser of a run: started by the first test that asks for it, and shared by all that follow in this process.

A start of Chromium and of Playwright's driver costs more than most tests do in them. What a test leaves behind (cookies, cache,
pages) is in contexts of its own, which end with it (tests/browser/site.py).
"""

from __future__ import annotations

import asyncio
from typing import Any

from playwright.async_api import Browser, Playwright, async_playwright

__all__ = ["CHROMIUM", "SHARED", "SharedBrowser"]

CHROMIUM: dict[str, Any] = {
    "executable_path": "/usr/bin/chromium",
    "args": [
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
        "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    ],
}  # fmt: skip


class SharedBrowser:
    """Belongs to one event loop, that of the session (tests/browser/conftest.py)."""

    def __init__(self) -> None:
        self._playwright: Playwright | None = None
        self._browser: Browser | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def get(self) -> Browser:
        """Returns the browser. Starts it if there is none, and another one if that of an earlier test has crashed."""
        if self._playwright is None:
            self._loop = asyncio.get_running_loop()
            self._playwright = await async_playwright().start()
        assert self._loop is asyncio.get_running_loop(), "all tests with a browser share the loop of the session"
        if self._browser is None or not self._browser.is_connected():
            self._browser = await self._playwright.chromium.launch(**CHROMIUM)
        return self._browser

    async def close(self) -> None:
        """Ends the browser and its driver."""
        if self._browser is not None:
            await self._browser.close()
        if self._playwright is not None:
            await self._playwright.stop()
        self._browser = self._playwright = self._loop = None


SHARED = SharedBrowser()
