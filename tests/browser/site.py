"""The whole of it for a browser: a real core with a lab behind it, the portal as ./run starts it, and Debian's Chromium.

    async with Lab(["accept:127.0.0.1:0"]) as lab, site(tmp_path, lab) as it:
        await it.core.send("a@example.org")
        page = await it.sign_in("operator")
        await page.goto(it.url("/queue/"))

Users viewer, operator and administrator are there, with PASSWORD. Pages fail the test at a script error, a message of the
browser's console, or anything the Content-Security-Policy stopped (``it.complaints``).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, async_playwright, expect

from mailcore.lab.lab import Lab
from tests.eventually import PATIENCE_S
from tests.running.running_core import RunningCore, Sections, running
from tests.test_tidy import ROOT

__all__ = ["CHROMIUM", "PASSWORD", "Site", "free_port", "site"]

expect.set_options(timeout=30_000)  # ms; five seconds are too few beside a busy machine

PASSWORD = "a long enough password"
CHROMIUM: dict[str, Any] = {
    "executable_path": "/usr/bin/chromium",
    "args": [
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
        "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    ],
}  # fmt: skip
MAKE_USERS = f"""
from django.contrib.auth.models import Group, User
for name in ("viewer", "operator", "administrator"):
    user = User.objects.create_user(name, password={PASSWORD!r})
    user.groups.add(Group.objects.get(name=name))
"""
# No page and no test of one may depend on a text of the control socket.
REWORDED = """
import runpy, sys
from tests.faults import reword
reword()
sys.argv[0] = "manage.py"
runpy.run_path("manage.py", run_name="__main__")
"""


def free_port() -> int:
    """Below the ports that the kernel gives away by itself: the portal binds it seconds later, when a client may have it."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@cache
def prepared() -> Path:
    """A home/portal with its database, users and static files, made once a run and copied for each site."""
    directory = Path(tempfile.mkdtemp(prefix="wp-"))
    (directory / "waypost.toml").write_text('home = "."\n')
    environment = _environment(directory / "waypost.toml")
    for arguments in (["serve", "--prepare"], ["shell", "--no-imports", "--command", MAKE_USERS]):
        subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env=environment,
            check=True,
            capture_output=True,
            timeout=120,
        )
    return directory / "portal"


def _environment(config: Path) -> dict[str, str]:
    environment = {
        name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "DJANGO_SETTINGS_MODULE")
    }
    return environment | {"WAYPOST_CONFIG": str(config)}


class Site:
    def __init__(self, core: RunningCore, port: int, browser: Browser) -> None:
        self.core = core
        self.port = port
        self.browser = browser
        self.complaints: list[str] = []
        self.process: subprocess.Popen[bytes] | None = None

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    async def sign_in(self, role: str = "administrator", **context: Any) -> Page:
        """A page of a context of its own, signed in. ``context``: of playwright's new_context (viewport, color_scheme)."""
        page = await self.page(**context)
        await page.goto(self.url("/accounts/login/"))
        await page.fill("input[name=login]", role)
        await page.fill("input[name=password]", PASSWORD)
        await page.click("main button[type=submit]")
        await page.wait_for_url(self.url("/"))
        return page

    async def page(self, **context: Any) -> Page:
        made: BrowserContext = await self.browser.new_context(**{"timezone_id": "Europe/Vienna", **context})
        page = await made.new_page()
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.complaints.append(f"script: {error}"))
        return page

    def _console(self, message: ConsoleMessage) -> None:
        # What a page is answered with 4xx and 5xx is told by the browser, too; tests that ask for it look at the page.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.complaints.append(f"{message.type}: {message.text}")

    async def start(self) -> None:
        """The portal, as ./run starts it; what the core says to it has other words."""
        errors = (self.core.directory / "portal.err").open("ab")
        # In this thread: the kernel tells the portal when the thread that started it ends.
        self.process = subprocess.Popen(  # noqa: ASYNC220  # it takes a millisecond
            [sys.executable, "-c", REWORDED, "serve", "--with-parent", str(os.getpid())],
            cwd=ROOT,
            env=_environment(self.core.directory / "waypost.toml"),
            stderr=errors,
        )
        errors.close()
        end = asyncio.get_running_loop().time() + PATIENCE_S
        while not await asyncio.to_thread(self._answers):
            words = (self.core.directory / "portal.err").read_text()
            assert self.process.poll() is None, words
            assert asyncio.get_running_loop().time() < end, words
            await asyncio.sleep(0.1)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(self.url("/accounts/login/"), timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    async def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            await asyncio.to_thread(self.process.wait)


@asynccontextmanager
async def site(tmp_path: Path, lab: Lab, sections: Sections | None = None, **running_named: Any) -> AsyncIterator[Site]:
    """A core whose mail goes to ``lab``, the portal beside it, a browser. Ends with no complaint of the browser."""
    port = free_port()
    given = sections or {}
    merged: dict[str, Mapping[str, object]] = {
        **given, "portal": {"listen": f"127.0.0.1:{port}", **given.get("portal", {})},
    }  # fmt: skip
    async with running(tmp_path, lab, merged, **running_named) as core, async_playwright() as playwright:
        await asyncio.to_thread(shutil.copytree, await asyncio.to_thread(prepared), core.home / "portal")
        browser = await playwright.chromium.launch(**CHROMIUM)
        it = Site(core, port, browser)
        try:
            await it.start()
            yield it
        finally:
            await browser.close()
            await it.stop()
    assert not it.complaints, it.complaints
