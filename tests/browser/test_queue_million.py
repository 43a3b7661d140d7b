"""The queue's page with a million messages behind it: the first page's time in the browser is measured and printed, and so are
the bytes and the time of a first load of overview and queue."""

from __future__ import annotations

import asyncio
import shutil
import statistics
from pathlib import Path

import pytest
from playwright.async_api import expect

from bench.fill import fill
from mailcore.lab.lab import Lab
from mailcore.queue.identity import NAME
from tests.browser.queue_steps import PATIENCE_MS, SLOW
from tests.browser.site import site
from tests.browser.wire import FIRST_LOAD_BYTES, USABLE, first_load
from tests.running.running_core import route_to

MESSAGES = 1_000_000
FIRST_PAGE_S = 0.3  # a person takes this for at once
LATER_S = 86_400.0
READY = "() => performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd / 1000"


def _later(_: int) -> float:
    return LATER_S


@pytest.mark.long
@pytest.mark.timeout(1800)
async def test_the_first_page_of_a_million_comes_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lane = {**SLOW, "queue": {"retry_ladder_s": [600, 4000]}}
    async with Lab(["accept:127.0.0.1:0"]) as lab, site(tmp_path, lab, lane) as it:
        it.core.stop()
        for name in ("queue", "spool"):  # its restart positions would count for more than those that are filled in
            shutil.rmtree(it.core.home / name)
        for path in (it.core.home / NAME, it.core.home / "events" / NAME):
            path.unlink(missing_ok=True)  # as of a version without identities
        await asyncio.to_thread(fill, it.core.home, MESSAGES, route_to(lab, 0), due_in=_later)
        await it.core.start()
        page = await it.sign_in("operator")
        times = []
        for _ in range(7):
            await page.goto(it.url("/queue/"))
            await expect(page.locator("#rows tr")).to_have_count(100)
            times.append(float(await page.evaluate(READY)))
        await expect(page.locator(".total .live-count")).to_have_text(
            f"{MESSAGES:,}".replace(",", "\u202f"), timeout=PATIENCE_MS
        )
        deep = []
        for _ in range(3):
            await page.click("a[rel=next]")
            await page.wait_for_load_state()
            deep.append(float(await page.evaluate(READY)))
        await page.click("a[rel=prev]")
        await expect(page.locator("#reading")).to_contain_text("page 3")

        loads = {}
        for address in USABLE:
            loads[address] = [await first_load(it, address) for _ in range(5)]
            assert max(load.bytes for load in loads[address]) <= FIRST_LOAD_BYTES, loads[address][0].table

        # A filter that matches one message near the end reads on, says how far it is, and can be stopped.
        await page.goto(it.url(f"/queue/?recipient=r{MESSAGES - 1}@*"))
        await expect(page.locator("#reading")).to_contain_text("examined so far")
        await page.click("#reading [data-stop]")
        await expect(page.locator("#reading")).to_contain_text("Stopped")
        await page.click("#reading [data-go-on]")
        await expect(page.locator("#rows tr")).to_have_count(1, timeout=10 * PATIENCE_MS)
        with capsys.disabled():
            print(
                f"\nfirst page of {MESSAGES} messages: median {statistics.median(times):.3f} s, worst {max(times):.3f} s;"
                f" next pages: worst {max(deep):.3f} s"
            )
            for address, loaded in loads.items():
                usable = [load.usable_s for load in loaded]
                print(f"{address}: {max(load.bytes for load in loaded)} bytes, usable after", end=" ")
                print(f"median {statistics.median(usable):.3f} s, worst {max(usable):.3f} s")
        assert statistics.median(times) <= FIRST_PAGE_S
