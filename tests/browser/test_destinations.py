"""Destinations in the browser, with a real core and next hops that misbehave: suspending, dying, half speed for a while."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.async_api import Page, expect

from mailcore.faults import Code
from mailcore.lab.behaviour import Reply, Stage
from mailcore.lab.lab import Lab
from tests.browser.site import Site, site
from tests.faults import other_words
from tests.running.running_core import Sections, route_to

LIMIT = "destination_concurrency_limit"
HOSTILE = "4.2.0 <img src=x onerror=alert(1)>\x1b[31m"
SECTIONS: Sections = {
    "scheduler": {"minimal_backoff_time": 60.0, "maximal_backoff_time": 60.0},  # dead for as long as a test takes
    "transports.smtp": {"initial_destination_concurrency": 1},  # so that one failure is a cohort
}


def path_of(name: str) -> str:
    return f"/destinations/{quote(name, safe=':')}/"


async def give_reason(page: Page, button: str, why: str) -> None:
    """In the open dialog; back on the page when the core has answered."""
    await page.fill("#dialog input[name=why]", why)
    async with page.expect_navigation():
        await page.click(f"#dialog button:has-text('{button}')")
    await expect(page.locator("#notice .success")).to_be_visible()


async def queued_of(it: Site, name: str) -> int:
    answer = await it.core.ask("destinations")
    return int(answer["queued"].get(name, 0))


@pytest.mark.long
async def test_a_suspension_keeps_mail_until_it_is_resumed(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, site(tmp_path, lab) as it:
        name = route_to(lab, 0)
        page = await it.sign_in("operator")
        await page.goto(it.url(path_of(name)))
        await page.click("text=Suspend…")
        await page.select_option("#dialog select[name=how]", "open")
        await page.click("#dialog button:has-text('Suspend')")  # without a reason
        await expect(page.locator("#dialog .errorlist")).to_contain_text("Enter a reason")
        await give_reason(page, "Suspend", "their disk is full")
        await expect(page.locator("#destination .states")).to_contain_text("suspended")
        await it.core.send("a@example.org")
        assert await queued_of(it, name) == 1
        await expect(page.locator("#destination-cards [data-field=queued]")).to_have_text("1")  # live
        assert not lab.messages

        await page.goto(it.url("/destinations/?trouble=1"))
        row = page.locator("tr[data-destination]")
        await expect(row).to_have_count(1)
        await expect(row.locator(".states")).to_contain_text("suspended")
        await page.keyboard.press("j")
        await page.keyboard.press("Enter")
        await page.wait_for_url(it.url(path_of(name)))
        await page.click("text=Resume…")
        await give_reason(page, "Resume", "they are back")
        await lab.wait_for(1)
        await it.core.until_empty()
        await expect(page.locator("#destination-cards [data-field=queued]")).to_have_text("0")
        await expect(page.locator("#lines-window canvas")).to_be_visible()

        await page.goto(it.url("/destinations/?trouble=1"))
        await expect(page.locator("main")).to_contain_text("No destination matches")


async def set_value(page: Page, value: str, duration: str, why: str) -> None:
    await page.fill("#dialog input[name=value]", value)
    await page.fill("#dialog input[name=duration]", duration)
    await give_reason(page, "Set", why)


@pytest.mark.long
async def test_a_value_for_a_time_is_seen_in_the_window_and_ends(tmp_path: Path) -> None:
    async with Lab(["slow(0.7):127.0.0.1:0"]) as lab, site(tmp_path, lab) as it:
        name = route_to(lab, 0)
        page = await it.sign_in("operator")
        await page.goto(it.url(path_of(name)))
        await page.click("text=Override a value…")
        await set_value(page, "10%", "1h", "a tenth of the speed")
        shown = page.locator(f"tr[data-parameter={LIMIT}]")
        await expect(shown).to_contain_text("tuned live")
        await expect(shown.locator("td").first).to_contain_text("2")
        for number in range(12):
            await it.core.send(f"r{number}@example.org")
        await expect(page.locator(".card [data-field=limit]")).to_have_text("2")  # live
        await expect(page.locator(".card [data-field=busy]")).to_have_text("2")
        await lab.wait_for(12, 60)
        await it.core.until_empty()
        assert lab.hops[0].counters.connections_peak <= 2

        await shown.locator("text=Remove…").click()
        await give_reason(page, "Remove", "full speed again")
        await page.reload()
        await expect(shown).to_contain_text("default")

        await shown.locator("text=Change…").click()
        await page.fill("#dialog input[name=value]", "none")
        await page.fill("#dialog input[name=why]", "a mistake")
        await page.click("#dialog button:has-text('Set')")
        await expect(page.locator("#dialog .dialog-notice")).to_contain_text(other_words(Code.INVALID, "value"))
        await set_value(page, "3", "2s", "slower for a moment")

        async def over() -> bool:
            value = (await it.core.ask("transports", destination=name))["scopes"][name][LIMIT]
            return bool(value["value"] == 20 and value["origin"] == "default")

        await it.core.eventually(over, "the end of the value for a time")
        await page.reload()
        await expect(shown).to_contain_text("default")


@pytest.mark.long
async def test_trouble_is_shown_with_the_remotes_own_words_which_do_no_harm(tmp_path: Path) -> None:
    async with Lab(["reject(1.0, 421, connect):127.0.0.1:0", "rst(ehlo):127.0.0.1:0", "accept:127.0.0.1:0"]) as lab:
        lab.hops[2].behaviour.add(Stage.RCPT, lambda _: Reply(450, HOSTILE))
        routes = {"reset.example": route_to(lab, 1), "hostile.example": route_to(lab, 2)}
        refusing, resetting, hostile = (route_to(lab, hop) for hop in range(3))
        async with site(tmp_path, lab, SECTIONS, routes=routes) as it:
            for domain in ("example.org", "reset.example", "hostile.example"):
                await it.core.send(f"a@{domain}")

            async def heard_of() -> bool:
                known = (await it.core.ask("destinations"))["destinations"]
                dead = all(known.get(name, {}).get("dead_until") for name in (refusing, resetting))
                return dead and "450" in str(await it.core.ask("destinations"))

            await it.core.eventually(heard_of, "two dead destinations and one that is odd")
            page = await it.sign_in("viewer")
            await page.goto(it.url("/destinations/?trouble=1"))
            await expect(page.locator("tr[data-destination]")).to_have_count(3)
            row = page.locator(f"tr[data-destination='{refusing}']")
            await expect(row.locator(".states")).to_contain_text("dead until")
            await expect(row).to_contain_text("Refused by the lab")
            await expect(page.locator(f"tr[data-destination='{hostile}']")).to_contain_text(
                "onerror=alert(1)>\\x1b[31m"
            )
            assert await page.locator("main img").count() == 0
            await row.locator("a").click()
            await expect(page.locator(".replies")).to_contain_text("421")
            await expect(page.locator("#destination > p.bad")).to_contain_text("Refused by the lab")
            assert await page.locator("text=Suspend…").count() == 0  # a viewer only looks
            await page.goto(it.url(path_of(hostile)))
            await expect(page.locator(".replies")).to_contain_text("onerror=alert(1)>")
            assert await page.locator("main img").count() == 0
            await page.goto(it.url("/destinations/?q=onerror"))
            await expect(page.locator("tr[data-destination]")).to_have_count(1)
