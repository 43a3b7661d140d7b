"""The queue in a browser: filters, pages, every change from check box to audit, with a real core and lab behind it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import expect

from mailcore.faults import Code
from mailcore.lab.lab import Lab
from tests.browser.queue_steps import (
    PATIENCE_MS,
    SLOW,
    change_all,
    close,
    give_reason,
    open_queue,
    result,
    select,
    send_deferred,
)
from tests.browser.site import site
from tests.faults import other_words
from tests.running.running_core import route_to


async def test_messages_are_filtered_selected_changed_and_brought_back(tmp_path: Path) -> None:
    async with Lab(["reject(1, 450):127.0.0.1:0", "accept:127.0.0.1:0"]) as lab, site(tmp_path, lab, SLOW) as it:
        spam = await send_deferred(it, 4, "spam@sender.example")
        good = await send_deferred(it, 3, "good@sender.example", "example.net")
        page = await it.sign_in("operator", viewport={"width": 1280, "height": 900})

        # Filters live in the URL.
        await open_queue(it, page)
        await expect(page.locator("#rows tr")).to_have_count(7)
        await page.fill("input[name=sender]", "SPAM@*")
        await page.click("#filters button[type=submit]")
        await page.wait_for_url("**/queue/?sender=SPAM*")
        await expect(page.locator("#rows tr")).to_have_count(4)
        await asyncio.sleep(1.1)  # a fast machine is here before the mail is a second old, and the list is read once
        await open_queue(it, page, "?reason=450&recipient=*@example.net&older_than=1s&smaller_than=1MB&lane=retry.*")
        await expect(page.locator("#rows tr")).to_have_count(3)
        await expect(page.locator("#rows tr").first).to_contain_text("deferred")
        await open_queue(it, page, "?larger_than=1MB")
        await expect(page.locator("#pager")).to_contain_text("No message matches")
        await page.goto(it.url("/queue/?older_than=soon"))
        await expect(page.locator(".errorlist")).to_contain_text("Not a valid duration")

        # A page is selected and deleted; the undo brings back exactly these.
        await it.core.order("delete", good[0], why="another deletion")
        await open_queue(it, page, "?sender=spam@*")
        await page.check("#pick-page")
        await expect(page.locator("#chosen")).to_have_text("4")
        await page.click("#acts button:text-is('Delete')")
        await page.fill("#dialog input[name=why]", "no")
        await page.click("#dialog form button[type=submit]")
        await expect(page.locator("#dialog .errorlist")).to_contain_text("at least 3")
        await give_reason(page, "a spam wave")
        await result(page, "4 messages deleted")
        await close(page)
        await expect(page.locator("#pager")).to_contain_text("No message matches")
        await open_queue(it, page, "?lane=deleted")
        await expect(page.locator("#rows tr")).to_have_count(5)
        await page.click("text=Undo…")
        await page.click("#dialog form.undo button[type=submit]")
        await result(page, "4 messages undeleted")
        await close(page)
        await expect(page.locator("#rows tr")).to_have_count(1)
        assert {item["queue_id"] for item in await it.core.listed(lane="deleted")} == {good[0]}
        await it.core.order("undelete", good[0])

        # Hold, release, retry, reroute, bounce: of single ones.
        await it.core.until_in(good[0], "retry.")
        for queue_id in spam:
            await it.core.until_in(queue_id, "retry.")
        await open_queue(it, page)
        await select(page, good[1], good[2])
        await page.click("#acts button:text-is('Hold')")
        await give_reason(page, "is looked at")
        await result(page, "2 messages held")
        await close(page)
        await open_queue(it, page, "?lane=hold&reason=looked")
        await expect(page.locator("#rows tr")).to_have_count(2)
        await select(page, good[1])
        await page.click("#acts button:text-is('Retry now')")
        await give_reason(page)
        await expect(page.locator("#dialog")).to_contain_text(other_words(Code.CONFLICT))
        await close(page)
        await select(page, good[1])
        await page.click("#acts button:text-is('Release')")
        await give_reason(page)
        await result(page, "1 message released")
        await close(page)
        before = lab.hops[0].counters.connections
        await it.core.until_in(good[1], "retry.")
        await open_queue(it, page)
        await select(page, spam[0])
        await page.click("#acts button:text-is('Retry now')")
        await give_reason(page)
        await result(page, "1 message due at once")
        await close(page)

        async def tried() -> bool:
            return lab.hops[0].counters.connections > before

        await it.core.eventually(tried, "another try")
        await it.core.until_in(spam[0], "retry.")
        await open_queue(it, page)
        await select(page, spam[0])
        await page.click("#acts button:text-is('Reroute')")
        await give_reason(page, route="nothing:[192.0.2.1]:25")
        await expect(page.locator("#dialog")).to_contain_text("no transport")
        await give_reason(page, route=route_to(lab, 1))
        await result(page, "1 message rerouted")
        await lab.wait_for(1)
        assert lab.hops[1].messages[0].sender == "spam@sender.example"
        await close(page)
        await open_queue(it, page)
        await select(page, spam[1])
        await page.click("#acts button:text-is('Bounce')")
        await give_reason(page)
        await result(page, "1 message bounced")
        await close(page)
        await lab.wait_for(2)  # the bounce, for sender.example, goes to the last hop
        await page.goto(it.url("/queue/changes/"))
        await expect(page.locator("tbody tr").first).to_contain_text("bounce")


async def test_all_that_match_are_counted_deleted_and_brought_back(tmp_path: Path) -> None:
    async with Lab(["reject(1, 450):127.0.0.1:0"]) as lab, site(tmp_path, lab, SLOW) as it:
        first = await send_deferred(it, 3, "wave@sender.example")
        page = await it.sign_in("operator")
        await open_queue(it, page, "?sender=wave@*")
        await change_all(page, "Delete")
        await expect(page.locator("#matched")).to_have_text("3")
        # What comes after the count is not touched.
        newer = await send_deferred(it, 1, "wave@sender.example")
        await give_reason(page, "all of the wave")
        await result(page, "3 messages deleted")
        assert [item["queue_id"] for item in await it.core.listed()] == newer
        await page.click("#dialog form.undo button[type=submit]")
        await result(page, "3 messages undeleted")
        await close(page)
        for queue_id in first:
            await it.core.until_in(queue_id, "retry.")

        # Without a filter the number is typed.
        await open_queue(it, page)
        await change_all(page, "Hold")
        await give_reason(page, typed="3")
        await expect(page.locator("#dialog .errorlist")).to_contain_text("This is not 4")
        await give_reason(page, typed="4")
        await result(page, "4 messages held")
        await close(page)
        assert len(await it.core.listed(lane="hold")) == 4

        # Reroute asks for the route first.
        await open_queue(it, page, "?lane=hold")
        await page.check("#all-matching")
        await page.click("#acts button:text-is('Reroute')")
        await page.fill("#dialog input[name=route]", "relay")
        await page.click("#dialog form button[type=submit]")
        await expect(page.locator("#dialog .errorlist")).to_contain_text("transport:next hop")
        await page.fill("#dialog input[name=route]", route_to(lab, 0))
        await page.click("#dialog form button[type=submit]")
        await expect(page.locator("#matched")).to_have_text("4", timeout=PATIENCE_MS)
        await give_reason(page)
        await result(page, "4 messages rerouted")


@pytest.mark.long
async def test_a_viewer_looks_and_changes_nothing(tmp_path: Path) -> None:
    async with Lab(["reject(1, 450):127.0.0.1:0"]) as lab, site(tmp_path, lab, SLOW) as it:
        (queue_id,) = await send_deferred(it, 1, "a@sender.example")
        page = await it.sign_in("viewer")
        await open_queue(it, page)
        await expect(page.locator("#rows tr")).to_have_count(1)
        await expect(page.locator("[data-act], #rows input")).to_have_count(0)
        answer = await page.request.get(it.url(f"/queue/change/delete/?m={queue_id}"))
        assert answer.status == 403
        await page.goto(it.url(f"/queue/{queue_id}/"))
        await expect(page.locator("main")).to_contain_text("Why it is waiting")
        await expect(page.locator("main button", has_text="Delete")).to_have_count(0)
        assert (await page.request.get(it.url(f"/queue/{queue_id}/body/"))).status == 403
        await page.locator("a", has_text="Queue").first.click()
        async with page.expect_download() as download:
            await page.click("a:text-is('CSV')")
        text = (await (await download.value).path()).read_text()
        assert text.splitlines()[1].startswith(f'"{queue_id}","deferred"')
