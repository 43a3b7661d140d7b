"""Settings in the browser, with a real core: changed, in force, recorded, returned to, refused with the fault at its field."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import expect

from mailcore.lab.lab import Lab
from tests.browser.site import site
from tests.end_to_end.appliance import free_port
from tests.end_to_end.test_effects import RESTING, resting, send
from tests.end_to_end.test_reload import Clients
from tests.running.running_core import route_to

SHOTS = os.environ.get("WAYPOST_SHOTS", "")  # a directory, for a person who wants to look


async def test_a_setting_is_checked_applied_under_load_and_returned_to(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0", "accept:127.0.0.1:0"]) as lab:
        second = route_to(lab, 1)
        async with site(tmp_path, lab) as it:
            page = await it.sign_in("administrator")
            await page.goto(it.url("/settings/"))
            await expect(page.locator("table")).to_contain_text("routes")

            await page.fill("#key", "relay.domains")
            await page.fill("#value", "['not a domain']")
            await page.click("main button:has-text('Check')")
            await expect(page.locator(".notice.error")).to_contain_text("relay.domains")
            await page.click("text=Back to the settings")
            assert await page.input_value("#key") == "relay.domains"

            await page.fill("#key", 'routes."moved.example"')
            await page.fill("#value", second)
            await page.click("main button:has-text('Check')")
            await expect(page.locator("table")).to_contain_text(second)
            await expect(page.locator("main")).to_contain_text("manager, control")
            if SHOTS:
                await page.screenshot(path=f"{SHOTS}/settings-check.png", full_page=True)
            with Clients(it.core.port) as clients:
                await page.fill("#why", "moved to the new host")
                await page.click("main button:has-text('Apply')")
                await expect(page.locator(".notice.success")).to_contain_text("in force", timeout=30_000)
            assert clients.wrong == []
            await expect(page.locator("table")).to_contain_text("changed here")
            await it.core.control.close()
            assert (await it.core.ask("resolve", address="a@moved.example"))["destination"] == second

            await page.click("summary:has-text('Several at once')")
            await page.fill(
                "#toml", "[relay]\ndomains = ['one.example', 'two.example']\n[bounce]\nbounce_size_limit = 40000\n"
            )
            await page.click("details button:has-text('Check')")
            await page.fill("#why", "two domains")
            await page.click("main button:has-text('Apply')")
            await expect(page.locator(".notice.success")).to_be_visible(timeout=30_000)
            for width in (1440, 360) if SHOTS else ():
                await page.set_viewport_size({"width": width, "height": 900})
                await page.screenshot(path=f"{SHOTS}/settings-{width}.png", full_page=True)

            await page.goto(it.url("/settings/history/"))
            if SHOTS:
                await page.screenshot(path=f"{SHOTS}/settings-history-360.png", full_page=True)
            await expect(page.locator("section.card")).to_have_count(2)
            await expect(page.locator("section.card").last).to_contain_text("moved to the new host")
            await page.click("section.card:last-of-type button")
            await expect(page.locator("table")).to_contain_text("[relay] domains")
            await page.fill("#why", "back again")
            await page.click("main button:has-text('Apply')")
            await expect(page.locator(".notice.success")).to_be_visible(timeout=30_000)
            await expect(page.locator("table")).not_to_contain_text("two.example")
            text = await (await page.request.get(it.url("/settings/export/"))).text()
            assert '"moved.example"' in text
            assert "home =" not in text


async def test_a_change_says_what_it_would_do_before_it_is_applied(tmp_path: Path) -> None:
    """The page fetches the effects; without its script a button asks for them."""
    dead = f"smtp:[127.0.0.1]:{free_port()}"
    sections: dict[str, dict[str, object]] = {"relay": {"networks": ["127.0.0.0/8"], "domains": ["mine.example"]}}
    async with Lab(["accept:127.0.0.1:0"]) as lab, site(tmp_path, lab, RESTING | sections, routes={"*": dead}) as it:
        for number in range(3):
            await asyncio.to_thread(send, it.core, "s@client.example", f"a@r{number}.example", "b@moved.example")
        await resting(it.core, 3)
        page = await it.sign_in("administrator")
        await page.goto(it.url("/settings/"))
        await page.click("summary:has-text('Several at once')")
        toml = f"relay.networks = []\n[routes]\n'moved.example' = '{route_to(lab, 0)}'\n'r1.example' = 'error:5.1.2 gone'\n"
        await page.fill("#toml", toml)
        await page.click("details button:has-text('Check')")
        found = page.locator("#effects-found")
        await expect(found).to_contain_text("4 recipients of 3 messages", timeout=30_000)
        await expect(found).to_contain_text("bounces")
        await expect(found).to_contain_text("outside [relay] networks")
        await expect(found).to_contain_text("1 next hop concerned, 1 tried")
        await expect(page.locator("main button:has-text('Apply')")).to_be_visible()
        assert (await Axe().run(page)).violations_count == 0
        for width in (1440, 360) if SHOTS else ():
            await page.set_viewport_size({"width": width, "height": 900})
            await page.screenshot(path=f"{SHOTS}/effects-{width}.png", full_page=True)


async def test_two_administrators_do_not_overwrite_each_other(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, site(tmp_path, lab) as it:
        pages = [await it.sign_in("administrator") for _ in range(2)]
        for number, page in enumerate(pages):
            await page.goto(it.url("/settings/?key=relay.domains"))
            await page.fill("#value", f"['d{number}.example']")
            await page.click("main button:has-text('Check')")
            await page.fill("#why", "because")
        await pages[0].click("main button:has-text('Apply')")
        await expect(pages[0].locator(".notice.success")).to_be_visible(timeout=30_000)
        await pages[1].click("main button:has-text('Apply')")
        await expect(pages[1].locator(".notice.error")).to_contain_text("Not done")
        await expect(pages[1].locator("table")).to_contain_text("d0.example")
        assert "d0.example" in (it.core.home / "managed.toml").read_text()
