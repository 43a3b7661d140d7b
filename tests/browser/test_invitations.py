"""An invitation from the administrator's form through the queue to the first session, in a browser; two use it at once."""

from __future__ import annotations

import asyncio
import email
import email.policy
import re
from pathlib import Path
from urllib.parse import urlsplit

from playwright.async_api import Page, expect

from mailcore.lab.lab import Lab
from tests.browser.site import Site, site

OWN = "a password of my own"


async def link_in_mail(it: Site, boss: Page) -> str:
    """The link, read from the mail in the queue: its next hop defers it."""
    await boss.locator("main a[href^='/queue/1']").first.click()
    queue_id = urlsplit(boss.url).path.strip("/").rpartition("/")[2]
    answer = await boss.request.get(it.url(f"/queue/{queue_id}/eml/"))
    text = str(email.message_from_bytes(await answer.body(), policy=email.policy.default).get_content())
    found = re.search(r"/accounts/invitation/#\S+", text)
    assert found is not None, text
    return found[0]


async def choose_password(page: Page) -> None:
    await page.fill("input[name=new_password1]", OWN)
    await page.fill("input[name=new_password2]", OWN)
    await page.click("main button[type=submit]")


async def test_an_invited_person_gets_in_by_the_link_and_of_two_at_once_one(tmp_path: Path) -> None:
    async with Lab(["reject(1, 450):127.0.0.1:0"]) as lab, site(tmp_path, lab) as it:
        boss = await it.sign_in("administrator")
        await boss.goto(it.url("/admin/auth/user/"))
        await boss.click("main >> text=Invitations")
        await boss.fill("input[name=address]", "ina@example.org")
        await boss.fill("input[name=username]", "ina")
        await boss.select_option("select[name=role]", "operator")
        await boss.fill("input[name=why]", "starts on Monday")
        await boss.click("text=Send the invitation")
        await expect(boss.locator("#notice")).to_contain_text("the mail to ina@example.org is in the queue")
        link = await link_in_mail(it, boss)

        pages = [await it.page() for _ in range(2)]
        asked: list[str] = []
        for page in pages:
            page.on("request", lambda request: asked.append(f"{request.url} {request.headers.get('referer', '')}"))
            await page.goto(it.url(link))
            await page.wait_for_url("**/accounts/invitation/accept/")
            await expect(page.locator("main")).to_contain_text("ina")
        code = link.partition("#")[2]
        assert not [each for each in asked if code in each.replace(it.url(link), "")], "in no address and no referrer"
        await asyncio.gather(*map(choose_password, pages))
        await asyncio.gather(*[page.wait_for_url(lambda url: not url.endswith("/accept/")) for page in pages])
        reached = sorted(urlsplit(page.url).path for page in pages)
        assert reached == ["/", "/accounts/invitation/"], reached
        (ina,) = [page for page in pages if urlsplit(page.url).path == "/"]
        await expect(ina.locator("h1")).to_have_text("Overview")
        assert await ina.locator("nav.side >> text=Audit").count() == 1
        (late,) = [page for page in pages if page is not ina]
        await expect(late.locator("#notice")).to_contain_text("does not work")
        assert link.partition("#")[2] not in (it.core.directory / "portal.err").read_text()
