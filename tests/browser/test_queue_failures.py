"""The core killed or stopped while somebody changes the queue: clear words, nothing half done, nothing hanging."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from playwright.async_api import expect

from mailcore.lab.lab import Lab
from tests.browser.queue_steps import (
    PATIENCE_MS,
    SLOW,
    change_all,
    give_reason,
    open_queue,
    result,
    select,
    send_deferred,
)
from tests.browser.site import Site, site

IMPATIENT = {**SLOW, "portal": {"core_timeout_s": 1.0, "change_timeout_s": 1.5}}


class Stopped:
    """SIGSTOP of one process for a while: it is there, and says nothing."""

    def __init__(self, it: Site, name: str) -> None:
        self._pid = it.core.processes()[name]

    def __enter__(self) -> None:
        os.kill(self._pid, signal.SIGSTOP)

    def __exit__(self, *_: object) -> None:
        os.kill(self._pid, signal.SIGCONT)


@pytest.mark.long
async def test_a_change_that_nobody_answers_is_told_and_made_whole_or_not_at_all(tmp_path: Path) -> None:
    async with Lab(["reject(1, 450):127.0.0.1:0"]) as lab, site(tmp_path, lab, IMPATIENT) as it:
        ids = await send_deferred(it, 3, "a@sender.example")
        page = await it.sign_in("operator")

        # The manager is silent: asked for before it is stopped, the change waits for its answer.
        await open_queue(it, page)
        await select(page, ids[0])
        await page.click("#acts button:text-is('Delete')")
        await page.wait_for_selector("#dialog input[name=why]")
        with Stopped(it, "manager"):
            await give_reason(page)
            await expect(page.locator("#dialog .dialog-notice")).to_contain_text(
                "has not answered", timeout=PATIENCE_MS
            )
        await page.click("#dialog form [data-close]")
        await it.core.until_in(ids[0], "deleted", deleted=True)  # it was asked, so it was done
        await page.goto(it.url("/queue/changes/"))
        await expect(page.locator("tbody tr").first).to_contain_text("not known")
        await page.click("tbody tr a")
        await page.click("form.undo button[type=submit]")
        await expect(page.locator("#change")).to_contain_text("1 message undeleted", timeout=PATIENCE_MS)

        # Control is silent: pages and pieces say so within their time.
        with Stopped(it, "control"):
            answer = await page.goto(it.url("/queue/"))
            assert answer is not None
            assert answer.status == 503
            await expect(page.locator("main")).to_contain_text("The core does not answer")
        await it.core.until_in(ids[0], "retry.")

        # Control is killed while it is asked; nothing is changed, and a second try works.
        await open_queue(it, page)
        await select(page, ids[1])
        await page.click("#acts button:text-is('Hold')")
        await page.wait_for_selector("#dialog input[name=why]")
        with Stopped(it, "supervisor"):
            control = it.core.processes()["control"]
            os.kill(control, signal.SIGKILL)
            await give_reason(page)
            await expect(page.locator("#dialog .dialog-notice")).to_contain_text(
                "The core is not running", timeout=PATIENCE_MS
            )
        await it.core.ready()
        assert await it.core.listed(lane="hold") == []
        await give_reason(page)
        await result(page, "1 message held")


@pytest.mark.long
async def test_a_change_of_all_that_match_survives_the_browser_and_tells_when_the_core_dies(tmp_path: Path) -> None:
    async with Lab(["reject(1, 450):127.0.0.1:0"]) as lab, site(tmp_path, lab, IMPATIENT) as it:
        await send_deferred(it, 3, "a@sender.example")
        page = await it.sign_in("operator")
        await open_queue(it, page, "?sender=a@*")
        with Stopped(it, "control"):
            await page.check("#all-matching")
            await page.click("#acts button:text-is('Delete')")
            await expect(page.locator("#dialog")).to_contain_text("could not be counted", timeout=PATIENCE_MS)
            await page.click("#dialog [data-close]")
        await open_queue(it, page, "?sender=a@*")
        await change_all(page, "Delete")
        tag = (await page.locator("#dialog form").get_attribute("hx-post") or "").split("/")[-3]
        with Stopped(it, "manager"):
            await give_reason(page, "a wave")
            await expect(page.locator("#dialog")).to_contain_text("of 3 deleted")
            await page.close()  # the browser goes away

            page = await it.sign_in("operator")
            await page.goto(it.url(f"/queue/changes/{tag}/"))
            await expect(page.locator("#change")).to_contain_text("the final result is unknown", timeout=PATIENCE_MS)
        found = {item["queue_id"] for item in await it.core.listed()} | {
            item["queue_id"] for item in await it.core.listed(lane="deleted")
        }
        assert len(found) == 3  # each is there once, changed or not
        await page.goto(it.url("/audit/"))
        await expect(page.locator("main")).to_contain_text("queue.delete")
