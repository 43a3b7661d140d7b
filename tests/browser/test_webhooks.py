"""Webhooks in the browser, with a real core and the process that sends: made, tested, sent to, failing, paused."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from mailcore.lab.lab import Lab
from tests.appliance.webhooks.receiver import Receiver, receiving
from tests.appliance.webhooks.sending import Sending
from tests.browser.site import Site, site
from tests.eventually import PATIENCE_MS, eventually

BEHAVIOUR = "reject(bad*@example.org, 550):127.0.0.1:0"
PICTURES = os.environ.get("WAYPOST_PICTURES", "")  # a directory, for a person who looks at the pages


async def look(page: Page, name: str) -> None:
    if PICTURES:
        for width in (1440, 360):
            await page.set_viewport_size({"width": width, "height": 900})
            await page.screenshot(path=f"{PICTURES}/{name}-{width}.png", full_page=True)
        await page.set_viewport_size({"width": 1440, "height": 900})


async def made(it: Site, receiver: Receiver) -> Page:
    page = await it.sign_in("administrator")
    await page.goto(it.url("/webhooks/"))
    await look(page, "empty")
    await page.click("main a:has-text('New webhook')")
    await page.fill("[name=name]", "crm")
    await page.fill("[name=url]", "ftp://crm.example/")
    await page.check("[name=kinds][value=bounced]")
    await page.fill("[name=why]", "the CRM wants to know")
    await page.click("main button:has-text('Make the webhook')")
    await expect(page.locator("main")).to_contain_text("Must be https://host/path")
    await look(page, "form")
    await page.fill("[name=url]", receiver.url)
    await page.click("main button:has-text('Make the webhook')")
    await expect(page.locator("#secret")).to_contain_text("whs_")
    await look(page, "made")
    await page.click("main a:has-text('The webhook')")
    return page


@pytest.mark.long
async def test_a_webhook_is_made_tested_and_sent_a_bounce(tmp_path: Path) -> None:
    with receiving() as receiver:
        async with Lab([BEHAVIOUR]) as lab, site(tmp_path, lab, {"portal": {"webhook_retry_s_max": 1}}) as it:
            page = await made(it, receiver)
            sending = Sending(it.core)
            sending.start()
            try:
                await page.click("main button:has-text('Send a test')")
                await expect(page.locator("#state")).to_contain_text("204 No Content", timeout=PATIENCE_MS)
                assert receiver.got[0].events == []
                await it.core.send("bad@example.org")
                await eventually(lambda: len(receiver.got) > 1, "the bounce")
                assert [event["kind"] for event in receiver.got[1].events] == ["bounced"]
                receiver.behaviour = "broken"
                await it.core.send("bad@example.org")
                await eventually(lambda: len(sending.failures("crm")) > 2, "failures")
                await page.goto(it.url("/webhooks/"))
                await expect(page.locator("main table")).to_contain_text("failing")
                await look(page, "list")
                await page.click("main table a:has-text('crm')")
                await expect(page.locator("main table")).to_contain_text("500 Internal Server Error")
                await look(page, "failing")
                receiver.behaviour = "good"
                await page.fill("[name=act-why]", "they are working on it")
                await page.click("main button:has-text('Pause')")
                await expect(page.locator("#state")).to_contain_text("paused")
            finally:
                await asyncio.to_thread(sending.kill)
