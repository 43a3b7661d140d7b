"""The page of one message in a browser: its timeline, its body, and what hostile mail does there (nothing)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.async_api import expect

from mailcore.lab.lab import Lab
from tests.browser.queue_steps import PATIENCE_MS, SLOW, close, give_reason, open_queue, result
from tests.browser.site import site
from tests.faults import OTHER_WORDS

MARKUP = "<img src=x onerror=alert(1)>"
TURNED = "\u202egnp.exe"
HOSTILE = (
    f'From: "{MARKUP}" <a@b.example>\r\n'
    f"Subject: {MARKUP} \x1b[31m {TURNED}\r\n"
    f"Message-ID: <{MARKUP}@x.example>\r\n"
    "MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n"
    f"--b\r\nContent-Type: text/html; charset=utf-8\r\n\r\n{MARKUP} {TURNED}\r\n"
    f'--b\r\nContent-Type: application/pdf\r\nContent-Disposition: attachment; filename="=1+1{MARKUP}.pdf"\r\n\r\nbytes\r\n'
    "--b--\r\n"
).encode()


@pytest.mark.long
async def test_a_greylisted_message_has_a_timeline_and_is_found_when_it_is_gone(tmp_path: Path) -> None:
    async with Lab(["greylist(0.5):127.0.0.1:0"]) as lab, site(tmp_path, lab) as it:
        queue_id = await it.core.send("a@example.org", "b@example.org")
        await it.core.until_removed(queue_id)
        page = await it.sign_in("viewer")
        await page.fill("#search", queue_id.lower())
        await page.press("#search", "Enter")
        await page.wait_for_url(f"**/queue/{queue_id}/")
        await expect(page.locator(".state-line")).to_contain_text("delivered")
        attempts = page.locator(".timeline li.attempt")
        assert await attempts.count() >= 2
        await expect(attempts.first).to_contain_text("450 4.2.0 Greylisted")
        await expect(attempts.last).to_contain_text("250")
        assert re.fullmatch(r"d: \d+\.\d{3} s", await attempts.last.locator("rect.d title").text_content() or "")
        await expect(page.locator("#recipients tr")).to_have_count(2)
        await expect(page.locator("#recipients tr").first).to_contain_text("a@example.org")
        await expect(page.locator("main")).not_to_contain_text("Why it is waiting")

        # By recipient, by Message-ID, and nothing.
        for typed, found in (("b@EXAMPLE.org", 1), ("one@sender.example", 1), ("*@nowhere.example", 0)):
            await page.goto(it.url("/queue/search/"))
            await page.fill("#q", typed)
            await page.click("main form button[type=submit]")
            await expect(page.locator("#reading-message_id")).to_contain_text("search complete", timeout=PATIENCE_MS)
            await expect(page.locator("#reading-recipient")).to_contain_text("search complete", timeout=PATIENCE_MS)
            await expect(page.locator("tbody tr", has_text=queue_id)).to_have_count(found)
        await page.goto(it.url("/queue/0123456789ABC/"))
        await expect(page.locator("#unknown")).to_have_text(OTHER_WORDS)


async def test_a_body_is_read_by_who_may_and_nothing_hostile_comes_to_life(tmp_path: Path) -> None:
    async with Lab(["reject(1, 450):127.0.0.1:0"]) as lab, site(tmp_path, lab, SLOW) as it:
        sender = '"=cmd|<b>x</b>"@sender.example'
        queue_id = await it.core.send("a@example.org", sender=sender, data=HOSTILE)
        await it.core.until_in(queue_id, "retry.")
        page = await it.sign_in("administrator")
        page.on("dialog", lambda dialog: it.complaints.append(dialog.message))
        await open_queue(it, page)
        await expect(page.locator("#rows")).to_contain_text('"=cmd|<b>x</b>"@sender.example')
        assert await page.locator("main img, main b").count() == 0
        async with page.expect_download() as download:
            await page.click("a:text-is('CSV')")
        text = (await (await download.value).path()).read_text()
        assert '"\'""=cmd' in text or '"""=cmd' in text
        await page.goto(it.url(f"/queue/{queue_id}/"))
        headers = page.locator("table.headers")
        await expect(headers).to_contain_text(f"Subject {MARKUP} \\x1b[31m \\u202egnp.exe", use_inner_text=False)
        await expect(page.locator("#waiting li[data-state=deferred]")).to_contain_text("1 recipient for")
        assert await page.locator("main img").count() == 0
        await page.click("text=View body")
        await expect(page.locator("pre.body")).to_have_text(f"{MARKUP} \\u202egnp.exe")
        await expect(page.locator("tbody")).to_contain_text("application/pdf")
        await page.click("main a:text-is('Raw')")
        await expect(page.locator("pre.body")).to_contain_text("\\x1b[31m")
        assert await page.locator("main img").count() == 0
        async with page.expect_download() as download:
            await page.click("text=Download .eml")
        assert (await (await download.value).path()).read_bytes().endswith(HOSTILE)

        # It is held from its own page, with a hostile reason, and shows who and why.
        await page.goto(it.url(f"/queue/{queue_id}/"))
        await page.click(".state-line button:text-is('Hold')")
        await give_reason(page, f"why {MARKUP}")
        await result(page, "1 message held")
        await close(page)
        await expect(page.locator(".timeline li.administrative")).to_contain_text(f"why {MARKUP} (change")
        await expect(page.locator("#waiting li[data-state=held]")).to_contain_text("1 recipient")
        buttons = page.locator(".state-line button")
        await expect(buttons).to_have_text(["Release", "Reroute", "Bounce", "Delete"])
        await page.goto(it.url("/audit/"))
        await expect(page.locator("main")).to_contain_text("message.read_body")
        assert await page.locator("main img").count() == 0


@pytest.mark.long
async def test_a_message_for_many_shows_them_a_page_at_a_time(tmp_path: Path) -> None:
    async with Lab(["reject(1, 450):127.0.0.1:0"]) as lab, site(tmp_path, lab, SLOW) as it:
        queue_id = await it.core.send(*(f"r{number}@example.org" for number in range(450)))
        await it.core.until_in(queue_id, "retry.")
        page = await it.sign_in("viewer")
        await page.goto(it.url(f"/queue/{queue_id}/"))
        rows = page.locator("#recipients tr")
        for count in (200, 400, 450):
            await expect(rows).to_have_count(count)
            if count < 450:
                await page.click("#recipients-more button")
        await expect(page.locator("#recipients-more button")).to_have_count(0)
        await expect(rows.last).to_contain_text("r449@example.org")
