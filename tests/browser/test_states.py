"""Every page in every state that is not the usual one: nothing there yet, nothing found, an answer on its way, the core away,
the stream cut. Each says so in a sentence with what to do, and none shows old figures as if they were new (states.py)."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
from playwright.async_api import Page, Route, ViewportSize, expect

from mailcore.lab.lab import Lab
from tests.browser.pages import listing
from tests.browser.queue_steps import SLOW, send_deferred
from tests.browser.site import Site, site
from tests.browser.states import EMPTY, LOADING, STATES
from tests.browser.test_access import NARROW, WIDE
from tests.eventually import eventually

SOME = ("/", "/queue/", "/reports/", "/webhooks/")  # in ./test
BROKEN = ("Traceback", "Error at /", "Portal error", "undefined", "NaN", "None.")
OLD = re.compile(r"What you see of it is \d+ (s|min).* old, of \d\d:\d\d:\d\d")
CUT = re.compile(r"What you see is of \d\d:\d\d:\d\d and no longer live\. The page tries again\.")


def test_every_page_has_its_line() -> None:
    wanted = {path for path in listing() if not path.startswith("/admin/")}
    assert wanted - STATES.keys() == set(), "a new page: add it to STATES in tests/browser/states.py"


async def words_of(page: Page) -> str:
    """The words of a page as a reader sees them, in one line."""
    words: str = await page.locator("main").inner_text()
    return " ".join(words.split())


async def looked_at(it: Site, page: Page, path: str, *wanted: str) -> list[str]:
    """Opens a page; returns what is wrong with it."""
    await page.goto(it.url(path))
    found: list[str] = []

    async def says_all() -> bool:
        words = (await words_of(page)).casefold()
        found[:] = [f"{path} does not say {each!r}" for each in wanted if each.casefold() not in words]
        return not found

    try:
        await eventually(says_all, look_every_s=0.1)
    except AssertionError:
        return [*found, f"{path} says: {await words_of(page)}"]
    words = await words_of(page)
    return [f"{path} says {each!r}" for each in BROKEN if each in words]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("viewport", "whole"),
    [
        pytest.param(WIDE, False, id="some"),
        pytest.param(WIDE, True, marks=pytest.mark.long, id="wide"),
        pytest.param(NARROW, True, marks=pytest.mark.long, id="narrow"),
    ],
)
async def test_every_page_says_what_to_do(tmp_path: Path, viewport: ViewportSize, whole: bool) -> None:
    paths = list(STATES) if whole else SOME
    found: list[str] = []
    async with Lab(["reject(1, 450):127.0.0.1:0"]) as lab, site(tmp_path, lab, SLOW) as it:
        page = await it.sign_in("administrator", viewport=viewport)
        for path in paths:
            found += await looked_at(it, page, path, STATES[path].first)

        if whole:
            await send_deferred(it, 1, "from@example.net")
            for path, words in EMPTY.items():
                found += await looked_at(it, page, path, words)
            found += await while_loading(it, page)

        await page.goto(it.url("/"))
        await expect(page.locator("#core-status")).to_have_text("core: running")
        it.core.stop()
        await expect(page.locator("#core-status")).to_have_text("core: not running")
        for path in paths:
            found += await looked_at(it, page, path, *STATES[path].away)
            await expect(page.locator("#stale")).to_contain_text(OLD)
            await expect(page.locator("#stale")).to_contain_text("waypost doctor")
        await it.core.start()
    assert not found, "\n".join(found)


async def while_loading(it: Site, page: Page) -> list[str]:
    """Looks at pages whose answers are kept back; no table without rows is shown meanwhile."""

    async def keep_back(route: Route) -> None:
        if route.request.resource_type not in ("xhr", "fetch", "eventsource"):
            await route.continue_()

    found: list[str] = []
    await page.route("**/*", keep_back)
    for path, words in LOADING.items():
        found += await looked_at(it, page, path, words)
        for table in await page.locator("main table:visible").all():
            if not await table.locator("tbody tr").count():
                found.append(f"{path} shows an empty table while it loads")
    await page.unroute_all(behavior="ignoreErrors")
    return found


@pytest.mark.long
async def test_a_portal_that_falls_silent_leaves_no_figures_that_look_new(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, site(tmp_path, lab) as it:
        page = await it.sign_in("viewer")
        await expect(page.locator("#core-status")).to_have_text("core: running")
        assert it.process is not None
        os.kill(it.process.pid, signal.SIGSTOP)  # its connections stay open
        try:
            await expect(page.locator("#stale")).to_contain_text(CUT)
            await expect(page.locator("#core-status")).to_have_text("portal: no answer")
        finally:
            os.kill(it.process.pid, signal.SIGCONT)
        await expect(page.locator("#core-status")).to_have_text("core: running")
        await expect(page.locator("#stale")).to_be_hidden()
        await it.stop()  # killed: connections are refused
        await expect(page.locator("#stale")).to_contain_text(CUT)
