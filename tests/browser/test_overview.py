"""The overview in the browser: it lives while mail flows, says when the core is gone, and comes back."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from mailcore.lab.lab import Lab
from tests.browser.site import site
from tests.eventually import PATIENCE_MS, eventually_blocking


async def amount(page: Page, name: str) -> int:
    words = await page.locator(f"[data-balance={name}]").inner_text()
    return int(re.sub(r"\D", "", words) or 0)


@pytest.mark.long
async def test_the_overview_lives_and_says_when_the_core_is_gone(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, site(tmp_path, lab) as it:
        core = it.core
        page = await it.sign_in("viewer", viewport={"width": 1280, "height": 900})
        await expect(page.locator("#core-status")).to_have_text("core: running", timeout=PATIENCE_MS)

        # Mail flows, and the numbers follow without the page being loaded again.
        await page.evaluate("window.stayed = true")
        place = await page.locator("#lanes-title").bounding_box()
        for number in range(3):
            await core.send(f"a{number}@example.org", f"b{number}@example.org")
        await expect(page.locator("[data-balance=accepted]")).to_have_text("6", timeout=PATIENCE_MS)
        await expect(page.locator("[data-balance=delivered]")).to_have_text("6", timeout=PATIENCE_MS)
        await expect(page.locator("#balance-verdict")).to_have_text("It balances.")
        await expect(page.locator("#rates .delivered .figure")).not_to_have_text("0", timeout=PATIENCE_MS)
        assert await page.evaluate("window.stayed")
        assert await page.locator("#lanes-title").bounding_box() == place  # nothing jumped
        assert await page.locator("#lines canvas").count() == 1
        await expect(page.locator("#disks .disk")).to_have_count(3, timeout=PATIENCE_MS)
        await expect(page.locator("#processes tbody tr")).to_have_count(5)

        # What is stuck shows where it lies.
        await it.core.inject("c@example.org", not_before=time.time() + 86_400)
        await expect(page.locator("#lanes tfoot .messages")).to_have_text("1", timeout=PATIENCE_MS)
        await expect(page.locator("#oldest a")).to_contain_text("author@sender.example", timeout=PATIENCE_MS)

        # A destination that is suspended is in trouble at once, with a link.
        host, port = lab.hops[0].address
        name = f"smtp:[{host}]:{port}"
        await core.ask("suspend", "the test says so", destination=name)
        await expect(page.locator("#trouble .badge")).to_contain_text("suspended", timeout=PATIENCE_MS)
        await expect(page.locator("#trouble a")).to_have_text(name)
        await core.ask("resume", "the test says so", destination=name)
        await expect(page.locator("#trouble tbody tr")).to_have_count(0, timeout=PATIENCE_MS)

        # Where the reader is stays: focus, and a dialog that is open, while the elements around them change.
        await page.locator("#lanes a").first.focus()
        await page.evaluate("document.activeElement.mark = true; document.getElementById('keys').showModal()")
        await page.evaluate("document.getElementById('keys').close(); document.querySelector('#lanes a').focus()")
        await it.core.inject("d@example.org", not_before=time.time() + 86_400)
        await expect(page.locator("#lanes tfoot .messages")).to_have_text("2", timeout=PATIENCE_MS)
        assert await page.evaluate("document.activeElement.mark")

        # The lines of a day are there, too.
        await page.get_by_role("button", name="24 h").click()
        await expect(page.get_by_role("button", name="24 h")).to_have_attribute("aria-pressed", "true")
        await page.get_by_role("button", name="15 min").click()

        # The core is killed: the page says so, with the age of what it shows, and goes on showing it.
        await asyncio.to_thread(core.stop)
        await expect(page.locator("#core-status")).to_have_text("core: not running", timeout=PATIENCE_MS)
        await expect(page.locator("#stale")).to_contain_text("What you see of it is")
        await expect(page.locator("#stale")).to_contain_text(re.compile(r"is \d+ (s|min).* old, of \d\d:\d\d:\d\d"))
        before = await page.locator("#stale").inner_text()
        await expect(page.locator("#stale")).not_to_have_text(before, timeout=PATIENCE_MS)
        assert await amount(page, "accepted") == 8
        await page.reload()  # the server, too, shows what it knew last
        await expect(page.locator("#stale")).to_contain_text("The core is not running.", timeout=PATIENCE_MS)
        assert await amount(page, "accepted") == 8

        # And back again; another manager continues the counts of the one before.
        await core.start()
        await expect(page.locator("#core-status")).to_have_text("core: running", timeout=PATIENCE_MS)
        await expect(page.locator("#stale")).to_be_hidden()
        await expect(page.locator("#balance-since")).to_contain_text("when the counts began")
        await expect(page.locator("[data-balance=queued_at_start]")).to_have_text("0")
        await expect(page.locator("[data-balance=accepted]")).to_have_text("8")
        await expect(page.locator("#balance-verdict")).to_have_text("It balances.")

        # The portal is killed and started again: the page finds it by itself.
        await it.stop()
        await expect(page.locator("#core-status")).to_contain_text("portal:", timeout=PATIENCE_MS)
        await it.start()
        await expect(page.locator("#core-status")).to_have_text("core: running", timeout=60_000)


@pytest.mark.long
async def test_several_portal_processes_share_the_port_and_end_together(tmp_path: Path) -> None:
    async with (
        Lab(["accept:127.0.0.1:0"]) as lab,
        site(tmp_path, lab, {"portal": {"processes": 2}}) as it,
    ):
        page = await it.sign_in("viewer")
        await expect(page.locator("#core-status")).to_have_text("core: running", timeout=PATIENCE_MS)
        assert it.process is not None
        children = children_of(it.process.pid)
        assert len(children) >= 2
        it.process.kill()  # they are told by the kernel, not by their supervisor
        await asyncio.to_thread(it.process.wait)
        await asyncio.to_thread(wait_for_the_end, children)


def children_of(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_for_the_end(pids: list[int]) -> None:
    eventually_blocking(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), f"the end of {pids}")


@pytest.mark.long
async def test_a_time_on_another_day_has_its_date(tmp_path: Path) -> None:
    """On the axis, which is painted and therefore asked for its labels, and below the chart."""
    at = int(time.time())
    lines = {name: [60.0, 60.0] for name in ("accepted", "delivered", "deferred", "bounced")}
    history = {"t": [at - 86_399, at], **lines}
    async with Lab(["accept:127.0.0.1:0"]) as lab, site(tmp_path, lab) as it:
        page = await it.sign_in("viewer")
        await page.route("**/live/history?span=day", lambda route: route.fulfill(json=history))
        yesterday, today = await page.evaluate(
            """(at) => window.waypost.formats.ticks([at - 86400, at], {hour: "2-digit", minute: "2-digit"})""", at
        )
        assert re.fullmatch(r"\d\d:\d\d\n\d{4}-\d\d-\d\d", yesterday)
        assert re.fullmatch(r"\d\d:\d\d", today)
        await page.get_by_role("button", name="24 h").click()
        legend = page.locator("#lines .u-legend .u-value").first
        chart = page.locator("#lines .u-over")
        await chart.hover(position={"x": 3, "y": 50})
        await expect(legend).to_have_text(re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"))
        box = await chart.bounding_box()
        assert box is not None
        await chart.hover(position={"x": box["width"] - 3, "y": 50})
        await expect(legend).to_have_text(re.compile(r"^\d\d:\d\d:\d\d$"))
        assert not it.complaints
