"""Every page, in light and dark, wide, narrow and at 200 %: axe-core finds nothing, no number of seconds is left for the reader
to divide, no page is wider than its window, and nothing is cut off or lies over something else (fitting.py).

The pages are those of pages.py, with something on them and without, and the dialogs that they open.
"""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page, ViewportSize, expect

from mailcore.lab.lab import Lab
from tests.browser.fitting import misfits
from tests.browser.pages import (
    NOT_PAGES,
    SAME_WITHOUT_ANYTHING,
    covered,
    listing,
    plain,
    prepare,
    sign_in_with_code,
    wanted,
)
from tests.browser.queue_steps import SLOW, change_all, open_queue
from tests.browser.site import PASSWORD, Site, site
from tests.eventually import PATIENCE_MS

SECONDS_READ = 120  # a number of seconds above it is one to divide
WIDE, NARROW = ViewportSize(width=1440, height=900), ViewportSize(width=360, height=800)
ZOOMED = ViewportSize(width=720, height=450)  # a window of 1440 x 900 at 200 %
# In ./test: one of each kind of page, with something on it.
SOME = frozenset(
    (
        "/", "/queue/", "/alerts/", "/destinations/", "/tuning/", "/settings/", "/log/", "/positions/", "/audit/", "/reports/",
        "/admin/auth/user/add/", "/accounts/login/", "/accounts/two-factor/", "/accounts/tokens/", "/api/v1/", "/no/such/page",
    )
)  # fmt: skip
VIEWPORTS = {"wide": WIDE, "narrow": NARROW, "zoomed": ZOOMED}
LOOKS = [  # the last: whether all pages are looked at, and before there is anything on them, too
    pytest.param("light", WIDE, False, id="some"),
    *(
        pytest.param(scheme, VIEWPORTS[width], True, marks=pytest.mark.long, id=f"{scheme}-{width}")
        for scheme, width in product(("light", "dark"), VIEWPORTS)
    ),
]
# The words of a page without what stands beside a readable value (data-raw), addresses, ids, logs and what is typed.
WORDS = """() => {
  const copy = document.body.cloneNode(true);
  const apart = "[data-raw], pre, code, .mono, .reply, .reason, time, svg, script, template, dialog:not([open])";
  for (const each of copy.querySelectorAll(apart)) each.remove();
  return copy.textContent.replace(/\\s+/g, " ");
}"""
_SECONDS = re.compile(r"(?<![\w.:\[-])(\d[\d\u202f]*(?:\.\d+)?)\s*(?:s|sec|seconds?)\b")
_UNGROUPED = re.compile(r"(?<![\w.:/\[\]#-])\d{5,}(?![\w:/\[-])")


def test_every_page_that_can_be_asked_for_is_in_the_list() -> None:
    assert set(plain()) >= SAME_WITHOUT_ANYTHING
    assert wanted() - covered() == set(), "a new page: add it to PAGES or NOT_PAGES in tests/browser/pages.py"
    assert covered() & NOT_PAGES == set()


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("scheme", "viewport", "whole"), LOOKS)
async def test_no_page_keeps_anybody_out(tmp_path: Path, scheme: str, viewport: ViewportSize, whole: bool) -> None:
    look = {"color_scheme": scheme, "viewport": viewport, "bypass_csp": True, "device_scale_factor": scale_of(viewport)}
    async with Lab(["reject(1, 450):127.0.0.1:0"]) as lab, site(tmp_path, lab, SLOW) as it:
        found: list[str] = []

        async def visit(page: Page, path: str) -> None:
            if not (whole or path in SOME or path.startswith("/queue/1")):  # the page of a message
                return
            answer = await page.goto(it.url(path))
            assert answer is not None
            assert answer.status < 500, f"{path}: {answer.status}"
            found.extend(await faults(page, path))

        page = await it.sign_in_by_form("administrator", **look)
        if whole:  # the first hour of an installation
            for path in [*plain(), "/destinations/smtp:x.example/"]:
                await visit(page, path)

        places = await prepare(it, lab)
        for path in [*(listing() if whole else plain()), *places.paths("administrator")]:
            await visit(page, path)
        found += await dialogs(page, it)
        viewer = await it.sign_in_by_form("viewer", **look)
        for path in places.paths("viewer"):
            await visit(viewer, path)

        stranger = await it.page(**look)
        for path in places.paths(""):
            await visit(stranger, path)
        await stranger.goto(it.url("/accounts/login/"))
        await fill(stranger, "coded", "wrong")
        found += await faults(stranger, "a wrong password")
        await fill(stranger, "coded", PASSWORD)
        await stranger.wait_for_url("**/two-factor/code/**")
        found += await faults(stranger, "the code")
        await sign_in_with_code(it, stranger)
        for path in places.paths("coded"):
            await visit(stranger, path)
        locked = await it.page(**look)
        await locked.goto(it.url("/accounts/login/"))
        for _ in range(5):
            if await locked.locator("input[name=login]").count():
                await fill(locked, "viewer", "wrong")
        found += await faults(locked, "a locked account")

        # The core is down.
        it.core.stop()
        await expect(page.locator("#core-status")).to_have_attribute("data-state", "down", timeout=PATIENCE_MS)
        for path in ("/", "/queue/", "/destinations/", "/tuning/", "/positions/"):
            await page.goto(it.url(path))
            found += await faults(page, f"{path} while the core is down")
        await it.core.start()
        assert not found, f"{scheme} {viewport['width']}:\n" + "\n".join(found)


def scale_of(viewport: ViewportSize) -> int:
    """Returns the device's pixels of a CSS pixel."""
    return 2 if viewport == ZOOMED else 1


async def dialogs(page: Page, it: Site) -> list[str]:
    """What is wrong with the dialogs, each of them open."""
    found: list[str] = []
    await page.goto(it.url("/audit/"))
    await page.keyboard.press("?")
    await page.locator("dialog#keys[open]").wait_for()
    found += await faults(page, "the list of keys")
    await open_queue(it, page)
    await change_all(page, "Hold")
    found += await faults(page, "a change of all that match")
    await page.goto(it.url("/tuning/"))
    await page.fill("[name=value-maximal_queue_lifetime]", "86400")
    await page.click(".draft-bar button[type=submit]")
    await expect(page.locator("#dialog")).to_contain_text("= 1 day")
    found += await faults(page, "the review of parameters")
    return found


async def fill(page: Page, name: str, password: str) -> None:
    await page.fill("input[name=login]", name)
    await page.fill("input[name=password]", password)
    await page.click("main button[type=submit]")
    await page.wait_for_load_state()


OF_WHOLE_PAGES = ("landmark-one-main", "page-has-heading-one", "region")


async def faults(page: Page, where: str, *, is_mail: bool = False) -> list[str]:
    """What is wrong with the page that is open: what axe-core finds, numbers to divide, and a page that is too wide.

    ``is_mail``: a mail program shows it inside of a page of its own, which has the landmarks.
    """
    results = await Axe().run(page)
    said: list[dict[str, Any]] = results.response["violations"]
    if is_mail:
        said = [each for each in said if each["id"] not in OF_WHOLE_PAGES]
    found = [
        f"{where}: {each['id']} ({each['impact']}): {each['help']}: {[node['html'][:120] for node in each['nodes'][:3]]}"
        for each in said
    ]
    found += [f"{where}: {each}" for each in bare_numbers(await page.evaluate(WORDS))]
    if not is_mail:
        found += [f"{where}: {each}" for each in await misfits(page)]
    width, window = await page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    if width > window:
        found.append(f"{where}: {width} px wide in a window of {window} px")
    return found


def bare_numbers(words: str) -> list[str]:
    """Numbers of seconds to divide, and numbers of five digits and more that are not in groups, with the words around them."""
    seconds = [each for each in _SECONDS.finditer(words) if float(each[1].replace("\u202f", "")) > SECONDS_READ]
    return [
        f"a number to divide or to count: {words[max(each.start() - 30, 0) : each.end() + 20]!r}"
        for each in (*seconds, *_UNGROUPED.finditer(words))
    ]


@pytest.mark.parametrize(
    ("words", "count"),
    [
        ("kept for 432000 seconds", 2), ("in 300 s", 1), ("in 4\u202f000 s", 1), ("0.5 to 90 seconds", 0), ("5 min 30 s", 0),
        ("20000 messages", 1), ("20\u202f000 messages", 0), ("smtp:[127.0.0.1]:39027", 0),
        ("127.0.0.1:39027", 0), ("1K0XAS0QKD000", 0),
    ],
)  # fmt: skip
def test_numbers_that_need_arithmetic_are_found(words: str, count: int) -> None:
    assert len(bare_numbers(words)) == count
