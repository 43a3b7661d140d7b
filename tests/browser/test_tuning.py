"""Tuning in the browser: a limit followed by the window and by the sink's connections, what-if, ends, returns, refusals."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.async_api import Locator, Page, expect

from mailcore.control.client import Refused
from mailcore.faults import Code
from mailcore.lab.lab import Lab
from tests.browser.site import Site, site
from tests.eventually import PATIENCE_MS
from tests.faults import other_words
from tests.running.running_core import RunningCore, route_to

LIMIT = "destination_concurrency_limit"


async def open_values(it: Site, page: Page, scope: str) -> None:
    await page.goto(it.url(f"/tuning/?scope={quote(scope)}"))
    await expect(page.locator(f'[name="value-{LIMIT}"]')).to_be_visible()


async def ask_diff(page: Page, **values: str) -> None:
    for name, value in values.items():
        await page.fill(f'[name="value-{name}"]', value)
    await page.get_by_role("button", name="Review changes").click()
    await expect(page.locator("#dialog[open] table.diff")).to_be_visible(timeout=PATIENCE_MS)


async def apply(page: Page, why: str) -> None:
    await page.fill("#why", why)
    await page.locator("form.apply button[type=submit]").click()
    await page.wait_for_url("**/tuning/changes/**", timeout=PATIENCE_MS)


async def in_force(core: RunningCore, scope: str) -> Any:
    return (await core.ask("transports", destination=scope))["scopes"][scope][LIMIT]["value"]


async def send(core: RunningCore, messages: int) -> None:
    for number in range(messages):
        await core.send(f"r{number}@example.org", heard=False)


def cell(page: Page, name: str) -> Locator:
    return page.locator(f'table[data-windows] [data-cell="{name}"]')


async def test_a_limit_is_predicted_applied_followed_and_returned(tmp_path: Path) -> None:
    async with Lab(["slow(3):127.0.0.1:0"]) as lab, site(tmp_path, lab) as it:
        scope = route_to(lab, 0)
        counters = lab.hops[0].counters
        page = await it.sign_in("operator")
        await send(it.core, 600)  # they must outlast the pages on a slow machine

        async def many() -> bool:
            return counters.connections_now > 5

        await it.core.eventually(many, "more than five connections")
        await open_values(it, page, scope)
        await ask_diff(page, **{LIMIT: "2"})
        await page.get_by_role("button", name="Predict the effect").click()
        await expect(page.locator("#what-if-result .prediction canvas")).to_have_count(2, timeout=PATIENCE_MS)
        await expect(page.locator("#what-if-result")).to_contain_text("An estimate")
        await expect(page.locator("#what-if-result")).to_contain_text("while new mail keeps arriving")
        subject = page.locator("[data-subject] option:checked")
        await expect(subject).to_have_text(f"Window of {scope}")
        await expect(page.locator("#what-if-result table.compared")).to_contain_text(
            "Time until the backlog is delivered"
        )
        await apply(page, "the provider throttles us")

        await expect(page.locator("table.changes")).to_contain_text("in force")
        await expect(page.locator(".afterwards canvas")).to_have_count(2, timeout=PATIENCE_MS)
        await expect(page.locator(".prediction")).to_contain_text("Assumptions")
        for name in ("limit", "window", "busy"):
            await expect(cell(page, name)).to_have_text("2", timeout=PATIENCE_MS)

        async def two() -> bool:
            return counters.connections_now <= 2

        await it.core.eventually(two, "two connections")
        assert await in_force(it.core, scope) == 2

        await page.goto(it.url("/tuning/history/"))
        await page.get_by_role("button", name="Revert change 1").click()
        await expect(page.locator("#why")).to_have_value("Revert of change 1: the provider throttles us")
        await page.locator("form.apply button[type=submit]").click()
        await page.wait_for_url("**/tuning/changes/**")
        await expect(cell(page, "limit")).to_have_text("20", timeout=PATIENCE_MS)
        await expect(cell(page, "window")).to_have_text(re.compile(r"^([5-9]|1\d|20)$"), timeout=PATIENCE_MS)
        await it.core.eventually(many, "more than five connections again")
        await page.goto(it.url("/tuning/history/"))
        await expect(page.locator("#change-1")).to_contain_text("returned")
        await expect(page.locator("#change-2")).to_contain_text("in force")


@pytest.mark.long
async def test_a_value_for_five_seconds_ends_by_itself(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, site(tmp_path, lab) as it:
        scope = "smtp:.example.org"
        page = await it.sign_in("operator")
        await page.goto(it.url("/tuning/"))
        await page.select_option("#transport", "smtp")
        await page.fill("#pattern", ".Example.org")
        await page.get_by_role("button", name="Show").click()
        await expect(page.locator(".scope-title")).to_have_text("smtp: all below example.org")
        await ask_diff(page, **{LIMIT: "3", "destination_concurrency_positive_feedback": "1/concurrency"})
        await expect(page.locator("table.diff tbody tr")).to_have_count(2)
        await page.get_by_role("button", name="Predict the effect").click()
        await expect(page.locator("#what-if-result .prediction")).to_be_visible(timeout=PATIENCE_MS)
        await page.fill("[name=amount]", "5")
        await page.select_option("[name=unit]", "s")
        assert await page.locator("[name=ends][value=for]").is_checked()
        await apply(page, "only for a moment")
        assert await in_force(it.core, scope) == 3

        async def over() -> bool:
            return bool(await in_force(it.core, scope) == 20)

        await it.core.eventually(over, "the end of what was set for five seconds")
        await page.goto(it.url("/tuning/history/"))
        await expect(page.locator("table.changes .badge")).to_have_text(["expired"] * 2)
        await it.core.ask("set", scope=scope, parameter=LIMIT, value=9)
        await page.reload()
        await expect(page.locator("main")).to_contain_text("Changed outside the portal")
        await open_values(it, page, scope)
        row = page.locator(f'tr[data-parameter="{LIMIT}"]')
        await expect(row).to_contain_text("changed outside the portal")
        await row.get_by_role("checkbox").check()
        await expect(page.locator("#draft-count")).to_have_text("1 value changed, not applied")
        await ask_diff(page)
        await apply(page, "nobody knows why it was there")
        assert await in_force(it.core, scope) == 20


@pytest.mark.long
async def test_wrong_values_other_operators_and_a_core_that_is_gone(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, site(tmp_path, lab) as it:
        first, second = await it.sign_in("operator"), await it.sign_in("administrator")
        await open_values(it, first, "smtp")
        await first.fill("#find", "deliveries process limit")
        await expect(first.locator("tr[data-parameter]:visible")).to_have_count(1)
        await first.fill("#find", "")
        await ask_diff(first, **{LIMIT: "0", "process_limit": "50"})
        wrong = first.locator("#dialog tbody tr", has_text=LIMIT)
        await expect(wrong).to_contain_text(other_words(Code.INVALID, "changes[0].value"))
        await expect(first.locator("form.apply")).to_have_count(0)
        await first.get_by_role("button", name="Back to the values").click()

        # Two look at the same value; who comes second sees what the first one did.
        await open_values(it, second, "smtp")
        await ask_diff(second, **{LIMIT: "7"})
        await ask_diff(first, **{LIMIT: "4", "process_limit": "100"})
        await apply(first, "four are enough")
        await second.fill("#why", "seven are better")
        await second.locator("form.apply button[type=submit]").click()
        await expect(second.locator("#dialog")).to_contain_text("Changed in the meantime")
        await expect(second.locator("table.diff .before")).to_contain_text("when you opened the page: 20")
        assert (await it.core.ask("transports"))["scopes"]["smtp"][LIMIT]["value"] == 4
        assert await second.locator("#why").input_value() == "seven are better"

        # The core stands still: that is said, and nothing was sent. It is killed and comes back: then it goes.
        manager = it.core.processes()["manager"]
        os.kill(manager, signal.SIGSTOP)
        try:
            await second.locator("form.apply button[type=submit]").click()
            await expect(second.locator("#dialog .dialog-notice")).to_contain_text(
                other_words(Code.UNAVAILABLE), timeout=PATIENCE_MS
            )
        finally:
            os.kill(manager, signal.SIGKILL)

        async def back() -> bool:
            if it.core.processes()["manager"] == manager:
                return False
            try:  # the control process may still hold the connection to the killed one
                return bool(await it.core.ask("transports"))
            except Refused:
                return False

        await it.core.eventually(back, "the manager to be back")
        assert (await it.core.ask("transports"))["scopes"]["smtp"][LIMIT]["value"] == 4
        await second.locator("form.apply button[type=submit]").click()
        await second.wait_for_url("**/tuning/changes/**", timeout=PATIENCE_MS)
        assert (await it.core.ask("transports"))["scopes"]["smtp"][LIMIT]["value"] == 7

        it.core.stop()
        await open_gone(it, second)
        await it.core.control.close()
        await it.core.start()
        await second.reload()
        await expect(second.locator("#change-2")).to_contain_text("in force")


async def open_gone(it: Site, page: Page) -> None:
    """Without a core the page says so, and the history is still there."""
    answer = await page.goto(it.url("/tuning/?scope=smtp"))
    assert answer is not None
    assert answer.status == 503
    await expect(page.locator("main")).to_contain_text("The core is not running")
    await page.goto(it.url("/tuning/history/"))
    await expect(page.locator("main")).to_contain_text("The values in force are unknown")
    await expect(page.locator("table.changes")).to_contain_text("four are enough")
