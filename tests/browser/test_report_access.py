"""Report pages read by keyboard or by screen reader: axe-core finds nothing, in light and dark; rows are walked,
a table that scrolls is reached, and a list that changes while it is open keeps its place.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from appliance.reports.report_store import Period
from mailcore.lab.lab import Lab
from tests.appliance.reports.made import make_report, tables
from tests.browser.site import Site, _environment, site
from tests.browser.test_access import faults
from tests.test_tidy import ROOT

RUNS = """
from datetime import date
from django.utils import timezone
from appliance.reports.models import Run, State
def run(day, state, **named):
    Run.objects.create(day=date(2026, 11, day), state=state, who="somebody", begun_at=timezone.now(), **named)
for state, words in ((State.DONE, ""), (State.FAILED, "no Java"), (State.RED, "It does not balance."), (State.STOPPED, "")):
    run(18, state, words=words, log="some words")
run(19, State.RUNNING, stage="reasons", share=0.5)
"""
CHANGED = "from appliance.reports.models import Run; Run.objects.filter(pk=5).update(state='failed', words='no Java')"
# One of each kind, with the most on it: a day that does not balance, a run that failed, a form.
PAGES = (
    "/reports/",
    "/reports/day/2026-11-18/",
    "/reports/runs/2/",
)
ALL_PAGES = (
    "/reports/", "/reports/day/2026-11-18/", "/reports/day/2026-11-17/", "/reports/day/2026-11-16/", "/reports/day/2026-11-15/",
    "/reports/day/2026-11-19/", "/reports/day/2026-11-01/", "/reports/week/2026-11-09/", "/reports/month/2026-11-01/",
    "/reports/runs/1/", "/reports/runs/2/", "/reports/runs/3/", "/reports/runs/5/", "/reports/schedules/",
)  # fmt: skip


def shell(it: Site, code: str) -> None:
    config = it.core.directory / "waypost.toml"
    subprocess.run(
        [sys.executable, "manage.py", "shell", "--no-imports", "--command", code], cwd=ROOT, env=_environment(config),
        check=True, capture_output=True, timeout=100,
    )  # fmt: skip


def made(it: Site) -> None:
    root = it.core.home / "reports"
    root.mkdir(exist_ok=True)
    none = {"totals": [dict.fromkeys(tables()["totals"][0], 0)]}
    make_report(root, Period.DAY, date(2026, 11, 15), given=none)
    for day, balances in ((16, True), (17, None), (18, False)):
        make_report(root, Period.DAY, date(2026, 11, day), balances)
    deleted = make_report(
        root, Period.WEEK, date(2026, 11, 9), False, missing=["2026-11-12"], damaged=["a file: damaged"]
    )
    (deleted / "senders.deleted").touch()
    make_report(root, Period.MONTH, date(2026, 11, 1))
    shell(it, RUNS)


@pytest.mark.parametrize(
    ("scheme", "paths"),
    [
        pytest.param("light", PAGES, id="light"),
        *(pytest.param(scheme, ALL_PAGES, id=f"all-{scheme}", marks=pytest.mark.long) for scheme in ("light", "dark")),
    ],
)
async def test_no_page_of_the_reports_keeps_anybody_out(tmp_path: Path, scheme: str, paths: tuple[str, ...]) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, site(tmp_path, lab) as it:
        await asyncio.to_thread(made, it)
        found: list[str] = []
        page = await it.sign_in("administrator", color_scheme=scheme, bypass_csp=True)
        for path in paths:
            await page.goto(it.url(path))
            found += await faults(page, path)
        assert not found, "\n".join(found)


@pytest.mark.long
async def test_lists_and_tables_are_walked_by_keyboard(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, site(tmp_path, lab) as it:
        await asyncio.to_thread(made, it)
        page = await it.sign_in("viewer")
        await page.goto(it.url("/reports/"))
        await page.keyboard.press("j")
        await expect(page.locator("#run-5")).to_be_focused()
        await asyncio.to_thread(shell, it, CHANGED)  # while the page is open
        await expect(page.locator("#made")).to_contain_text("no Java", timeout=30_000)
        await expect(page.locator("#run-5")).to_be_focused()
        await page.keyboard.press("Enter")
        await page.wait_for_url(it.url("/reports/runs/5/"))
        await page.goto(it.url("/reports/day/2026-11-18/"))
        await reaches(page, "#destinations .scroll")


async def reaches(page: Page, place: str) -> None:
    """By the tabulator key, and then the arrows scroll it."""
    await page.locator(f"{place}").focus()
    await expect(page.locator(place)).to_be_focused()
    await page.keyboard.press("Tab")
    await expect(page.locator(f"{place} thead a").first).to_be_focused()
