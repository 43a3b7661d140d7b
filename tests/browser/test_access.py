"""Every page, in light and dark, for who reads it by keyboard or by voice: axe-core finds nothing serious or critical.

Runs over all sections there are, and what they lead to.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page

from mailcore.lab.lab import Lab
from tests.browser.queue_steps import SLOW, send_deferred
from tests.browser.site import Site, site

GRAVE = ("serious", "critical")
# What the sections lead to and no section's first link shows.
FURTHER = [
    "/accounts/password/",
    "/accounts/two-factor/",
    "/accounts/two-factor/activate/",
    "/accounts/logout/",
    "/admin/auth/user/",
    "/admin/auth/user/add/",
    "/admin/auth/user/1/change/",
    "/admin/auth/user/1/delete/",
    "/admin/auth/user/1/password/",
    "/admin/auth/group/",
    "/admin/axes/accessattempt/",
    "/admin/audit/entry/",
    "/admin/django_celery_beat/periodictask/",
    "/audit/1/",
    "/audit/?since=yesterday",
    "/audit/?since=2026-13-01T00:00",
    "/queue/changes/",
    "/queue/search/?q=nobody",
    "/tuning/history/",
    "/no/such/page",
]


async def test_no_page_keeps_anybody_out(tmp_path: Path) -> None:
    async with Lab(["reject(1, 450):127.0.0.1:0"]) as lab, site(tmp_path, lab, SLOW) as it:
        await send_deferred(it, 3, "from@example.net")
        found: list[str] = []
        for scheme in ("light", "dark"):
            stranger = await it.page(color_scheme=scheme, bypass_csp=True)
            await stranger.goto(it.url("/accounts/login/"))
            found += await faults(stranger, f"{scheme} signing in")
            page = await it.sign_in("administrator", color_scheme=scheme, bypass_csp=True)
            for path in [*await sections(page), *FURTHER]:
                await page.goto(it.url(path))
                found += await faults(page, f"{scheme} {path}")
                if (inner := await first_row(page)) is not None and scheme == "light":
                    await page.goto(it.url(inner))
                    found += await faults(page, f"{scheme} {inner}")
            await keys(page, it)
            found += await faults(page, f"{scheme} the list of keys")
        assert not found, "\n".join(found)


async def sections(page: Page) -> list[str]:
    return [str(await link.get_attribute("href")) for link in await page.locator("nav.side a").all()]


async def first_row(page: Page) -> str | None:
    """What the first row of a table opens."""
    link = page.locator("table[data-rows] [data-open]").first
    return await link.get_attribute("href") if await link.count() else None


async def keys(page: Page, it: Site) -> None:
    await page.goto(it.url("/audit/"))
    await page.keyboard.press("?")
    await page.locator("dialog#keys[open]").wait_for()


async def faults(page: Page, where: str) -> list[str]:
    results = await Axe().run(page)
    said: list[dict[str, Any]] = results.response["violations"]
    return [
        f"{where}: {each['id']} ({each['impact']}): {each['help']}: {[node['html'][:120] for node in each['nodes'][:3]]}"
        for each in said
        if each["impact"] in GRAVE
    ]
