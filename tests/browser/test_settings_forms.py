"""Forms of settings by kind in the browser, with a real core: domains, routes, listeners, transports, policies and milters."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from playwright.async_api import Page, ViewportSize, expect

from mailcore.lab.lab import Lab
from tests.browser.site import site
from tests.browser.test_access import NARROW, WIDE, faults
from tests.browser.test_kept import applied, put_one_of_each, shots
from tests.end_to_end.appliance import free_port
from tests.end_to_end.test_reload import Clients
from tests.running.running_core import route_to


async def check(page: Page) -> None:
    await page.click("main button.primary:has-text('Check')")


async def test_each_kind_is_changed_under_load_and_a_fault_is_at_its_field(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0", "accept:127.0.0.1:0"]) as lab, site(tmp_path, lab) as it:
        page = await it.sign_in("administrator")
        with Clients(it.core.port) as clients:
            await page.goto(it.url("/settings/kinds/relay/"))
            await shots(page, "relay")
            await page.fill("#relay-domains", "mine.example\nnot a domain")
            await page.click("section.card:has(#group-1) button.primary")
            await expect(page.locator("#relay-domains-wrong1")).to_contain_text("must be a domain")
            await page.fill("#relay-domains", "mine.example\n.other.example")
            await page.click("section.card:has(#group-1) button.primary")
            await expect(page.locator("table")).to_contain_text(".other.example")
            await applied(page)

            await page.goto(it.url("/settings/kinds/routes/"))
            await page.click("a:has-text('Add a route') >> nth=0")
            await page.fill("#name", "mine.example")
            await page.fill("#text", "nowhere:x")
            await check(page)
            await expect(page.locator(".notice.error")).to_contain_text("nowhere")
            await page.fill("#text", route_to(lab, 1))
            await check(page)
            await applied(page)

            await page.goto(it.url("/settings/kinds/transports/"))
            await page.click("a:has-text('Add a transport')")
            await page.fill("#name", "provider")
            await page.fill("#process_limit", "0")
            await check(page)
            await expect(page.locator("#process_limit-wrong1")).to_contain_text("between 1 and 10000")
            await shots(page, "transport-fault")
            await page.fill("#process_limit", "7")
            await page.select_option("#tls", "encrypt")
            await check(page)
            await applied(page)

            await page.goto(it.url("/settings/kinds/tls/"))
            await page.click("a:has-text('Add a policy')")
            await page.fill("#name", "example.org")
            await page.select_option("#level", "verify")
            await check(page)
            await applied(page)

            await page.goto(it.url("/settings/kinds/milters/"))
            await page.click("a:has-text('Add a milter')")
            await page.fill("#address", "unix:/run/none/milter.sock")
            await check(page)
            await expect(page.locator(".notice.error").first).to_contain_text("milters")
            port = free_port()
            await page.goto(it.url("/settings/kinds/listeners/"))
            await page.click("a:has-text('Add a listener')")
            await page.fill("#address", f"127.0.0.1:{port}")
            await page.select_option("#auth", "required")
            await check(page)
            await expect(page.locator(".notice.error").first).to_contain_text("needs a certificate")
            await page.select_option("#auth", "")
            await check(page)
            await applied(page)
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
        assert clients.wrong == []
        await it.core.control.close()
        found = {tuple(each["key"]): each["value"] for each in (await it.core.ask("settings"))["settings"]}
        assert found["relay", "domains"] == ["mine.example", ".other.example"]
        assert found["routes", "mine.example"] == route_to(lab, 1)
        assert found["transports", "provider", "process_limit"] == 7
        assert found["tls_policy", "example.org", "level"] == "verify"
        assert {"address": f"127.0.0.1:{port}"} in found["listener",]
        await page.goto(it.url("/settings/kinds/routes/"))
        await shots(page, "routes")
        await page.click("a:has-text('Change mine.example')")
        await page.click("button.danger")
        await applied(page)
        await it.core.control.close()
        assert ["routes", "mine.example"] not in [each["key"] for each in (await it.core.ask("settings"))["settings"]]


@pytest.mark.long
async def test_a_route_of_the_file_is_removed_and_returned(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, site(tmp_path, lab) as it:
        page = await it.sign_in("administrator")
        await page.goto(it.url("/settings/kinds/routes/"))
        await page.click("a:has-text('Change *')")
        await shots(page, "row-of-the-file")
        await page.click("button.danger")
        await expect(page.locator("tbody")).to_contain_text("[routes] *")
        await applied(page)
        await shots(page, "settings-with-a-removal")
        await page.goto(it.url("/settings/kinds/routes/"))
        await expect(page.locator("tbody").first).to_contain_text("removed here; the file still has it")
        await shots(page, "routes-with-a-removal")
        await page.click("a:has-text('Change *')")
        await expect(page.locator("main .notice:not(#stale)")).to_contain_text("the file still has it")
        await shots(page, "row-removed")
        await page.click("button:has-text('Return * of the file')")
        await applied(page)
        await page.goto(it.url("/settings/kinds/routes/"))
        await expect(page.locator("main")).not_to_contain_text("removed here")


async def test_two_administrators_and_a_hand_in_the_file_overwrite_nothing(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, site(tmp_path, lab) as it:
        pages = [await it.sign_in("administrator") for _ in range(2)]
        for page in pages:
            await page.goto(it.url("/settings/kinds/relay/"))
        button = "section.card:has(#group-1) button.primary"
        await pages[0].fill("#relay-domains", "first.example")
        await pages[0].click(button)
        await applied(pages[0])
        await pages[1].fill("#relay-domains", "second.example")
        await pages[1].click(button)
        await expect(pages[1].locator(".notice.warning[role=alert]")).to_contain_text("changed meanwhile")
        assert await pages[1].input_value("#relay-domains") == "second.example", "what was entered is kept"
        assert "second.example" not in (it.core.home / "managed.toml").read_text()
        await pages[1].click(button)
        with it.core.config.open("a") as file:
            file.write("\n[bounce]\nbounce_size_limit = 40000\n")
        await pages[1].fill("#why", "a test")
        await pages[1].click("main button:has-text('Apply')")
        await expect(pages[1].locator(".notice.error")).to_contain_text("Not done")
        assert "second.example" not in (it.core.home / "managed.toml").read_text()
        await applied(pages[1])
        assert "second.example" in (it.core.home / "managed.toml").read_text()


async def test_a_portal_that_is_killed_in_the_middle_leaves_the_change_whole(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, site(tmp_path, lab) as it:
        page = await it.sign_in("administrator")
        await page.goto(it.url("/settings/kinds/relay/"))
        await page.fill("#relay-domains", "mine.example")
        await page.click("section.card:has(#group-1) button.primary")
        await page.fill("#why", "a test")
        clicked = asyncio.create_task(page.click("main button:has-text('Apply')", no_wait_after=True))
        await asyncio.sleep(0.05)
        await it.stop()
        await asyncio.wait([clicked])
        await it.start()
        await page.goto(it.url("/settings/kinds/relay/"))
        known = await it.core.insist(lambda: it.core.ask("settings"))
        there = ["relay", "domains"] in [each["key"] for each in known["settings"] if each["origin"] == "managed"]
        assert (await page.input_value("#relay-domains") == "mine.example") is there
        history = (await it.core.ask("settings_history"))["states"]
        assert len(history) == int(there)
        await page.goto(it.url("/audit/"))
        await expect(page.locator("main")).to_be_visible()
        # The look at the effects may be under way when the portal is killed.
        it.complaints[:] = [each for each in it.complaints if "htmx:" not in each]


PAGES = (
    "", "history/", "certificates/", "dkim/", "maps/", "users/", "users/?name=kim@example.org", "kinds/relay/", "kinds/routes/",
    "kinds/transports/", "kinds/listeners/", "kinds/tls/", "kinds/milters/", "kinds/alerts/", "kinds/reports/",
    "kinds/section-greylist/", "kinds/section-queue/",
    "kinds/routes/rows/routes/?row=*", "kinds/transports/rows/transports/", "kinds/listeners/rows/listener/",
)  # fmt: skip


@pytest.mark.parametrize(
    ("scheme", "viewport", "paths"),
    [
        pytest.param("dark", NARROW, PAGES[::3], id="some"),
        pytest.param("dark", NARROW, PAGES, marks=pytest.mark.long, id="dark-narrow"),
        pytest.param("light", WIDE, PAGES, marks=pytest.mark.long, id="light-wide"),
    ],
)
async def test_the_pages_are_readable_for_everybody(
    tmp_path: Path, scheme: str, viewport: ViewportSize, paths: Sequence[str]
) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, site(tmp_path, lab) as it:
        page = await it.sign_in("administrator", color_scheme=scheme, viewport=viewport, bypass_csp=True)
        viewer = await it.sign_in("viewer", color_scheme=scheme, viewport=viewport, bypass_csp=True)
        await put_one_of_each(it.core)
        found: list[str] = []
        for path in paths:
            for each in (page, viewer):
                answer = await each.goto(it.url(f"/settings/{path}"))
                assert answer is not None
                assert answer.status == 200, path
                found += await faults(each, path)
        for path, button in (
            ("kinds/transports/rows/transports/", "main button.primary"),
            ("users/", "#edit ~ form button.primary"),
        ):
            await page.goto(it.url(f"/settings/{path}"))
            await page.evaluate("document.querySelectorAll('[required]').forEach(each => each.required = false)")
            await page.click(button)
            found += await faults(page, f"{path} with a fault")
        assert not found, "\n".join(found)
