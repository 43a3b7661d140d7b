"""The command palette by keyboard alone."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import expect

from mailcore.lab.lab import Lab
from tests.browser.site import site
from tests.end_to_end.appliance import free_port
from tests.end_to_end.test_effects import RESTING, resting, send

SHOTS = os.environ.get("WAYPOST_SHOTS", "")


async def test_anything_is_reached_by_typing(tmp_path: Path) -> None:
    dead = f"smtp:[127.0.0.1]:{free_port()}"
    async with Lab(["accept:127.0.0.1:0"]) as lab, site(tmp_path, lab, RESTING, routes={"*": dead}) as it:
        await asyncio.to_thread(send, it.core, "s@client.example", "a@one.example")
        await resting(it.core, 1)
        page = await it.sign_in("operator")
        await page.goto(it.url("/"))
        await page.keyboard.press("Control+k")
        options = page.locator("#palette-found [role=option]")
        await expect(options.first).to_contain_text("Overview")
        await page.keyboard.type("limits 127")
        await expect(options.first).to_contain_text(f"Limits of {dead}")
        assert (await Axe().run(page)).violations_count == 0
        for width in (1440, 360) if SHOTS else ():
            await page.set_viewport_size({"width": width, "height": 900})
            await page.screenshot(path=f"{SHOTS}/palette-{width}.png")
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(re.compile(r"/tuning/\?scope=smtp"))

        await page.wait_for_load_state()
        # Enter at once goes to what was typed, and not to what was listed before.
        await page.keyboard.press("Control+k")
        await page.keyboard.type("held")
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(re.compile(r"/queue/\?lane=hold"))
        await page.wait_for_load_state()  # the keys are heard from then on
        await page.keyboard.press("Control+k")
        await page.keyboard.type("a@one.example")
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(re.compile(r"/queue/search/\?q=a%40one\.example"))
        await page.wait_for_load_state()
        await page.keyboard.press("Control+k")
        await page.keyboard.type("positions")
        await expect(options.first).to_contain_text("Restart positions")
        await page.keyboard.press("Escape")
        await expect(page.locator("#palette")).to_be_hidden()
