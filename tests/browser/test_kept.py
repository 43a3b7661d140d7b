"""Certificates, DKIM keys and maps in the browser, with a real core: in force, or refused with the fault at its field."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from playwright.async_api import Page, expect

from mailcore.lab.lab import Lab
from tests.browser.site import site
from tests.doctor.sample_host import certificate
from tests.end_to_end.appliance import free_port
from tests.end_to_end.test_kept import AUTHORITY, offered, use
from tests.end_to_end.test_mail_users import until
from tests.end_to_end.test_reload import Clients
from tests.running.running_core import RunningCore, recipients_of

SHOTS = os.environ.get("WAYPOST_SHOTS", "")  # a directory, for a person who wants to look


async def shots(page: Page, name: str) -> None:
    for width in (1440, 360) if SHOTS else ():
        await page.set_viewport_size({"width": width, "height": 900})
        await page.screenshot(path=f"{SHOTS}/{name}-{width}.png", full_page=True)
    if SHOTS:
        await page.set_viewport_size({"width": 1280, "height": 900})


async def put_one_of_each(core: RunningCore) -> None:
    """A certificate, a DKIM key, a map and a user, and settings that use some of them."""
    await core.ask("kept_make", kind="certificate", names=["mx.example.org"])
    issued = AUTHORITY.issue("mx.example.org")
    made = await core.ask(
        "kept_put", kind="certificate", name="mx", text=issued.certificate + AUTHORITY.pem, key=issued.key
    )
    await core.ask("kept_make", kind="dkim", domain="example.org", selector="s1")
    await core.ask("kept_put", kind="map", name="aliases", text="all@example.org kim@example.org\n")
    await core.ask("user_put", name="kim@example.org", new=True, password="a good password")
    await use(core, made["file"], "receiver", "tls_certificate")


async def applied(page: Page) -> None:
    await page.fill("#why", "a test")
    await page.click("main button:has-text('Apply')")
    await expect(page.locator(".notice.success")).to_contain_text("in force", timeout=30_000)


async def test_a_certificate_is_handed_in_under_load_and_its_key_is_on_no_page(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, site(tmp_path, lab) as it:
        page = await it.sign_in("administrator")
        await page.goto(it.url("/settings/certificates/"))
        await expect(page.locator(".empty")).to_contain_text("No certificate")
        good, other = AUTHORITY.issue("mx.example.org"), AUTHORITY.issue("other.example")
        await page.fill("#name", "mx")
        await page.fill("#certificate", good.certificate + AUTHORITY.pem)
        await page.fill("#key", other.key)
        await page.click("#add ~ form button[type=submit]")
        await expect(page.locator("#key-wrong")).to_contain_text("does not belong to the first certificate")
        assert await page.input_value("#key") == ""
        await shots(page, "certificate-fault")
        await page.fill("#key", good.key)
        await page.click("#add ~ form button[type=submit]")
        await expect(page.locator("table")).to_contain_text("[receiver] tls_certificate")
        secret = "".join(good.key.splitlines()[1:-1])[30:60]
        assert secret not in await page.content()
        with Clients(it.core.port) as clients:
            await applied(page)
            assert await asyncio.to_thread(offered, it.core) == ("mx.example.org",)
            second = AUTHORITY.issue("mx.example.org", "smtp.example.org")
            (tmp_path / "chain.pem").write_text(second.certificate + AUTHORITY.pem)
            (tmp_path / "key.pem").write_text(second.key)
            await page.goto(it.url("/settings/certificates/"))
            await page.fill("#name", "mx")
            await page.set_input_files("#certificate_file", tmp_path / "chain.pem")
            await page.set_input_files("#key_file", tmp_path / "key.pem")
            await page.click("#add ~ form button[type=submit]")
            await applied(page)
            assert await asyncio.to_thread(offered, it.core) == ("mx.example.org", "smtp.example.org")
        assert clients.wrong == []
        for path in ("certificates/", "history/", "export/", ""):
            text = await (await page.request.get(it.url(f"/settings/{path}"))).text()
            assert secret not in text
        await page.goto(it.url("/settings/certificates/"))
        await shots(page, "certificates")
        await page.goto(it.url("/audit/"))
        await expect(page.locator("main")).to_contain_text("certificate.add")

        await page.goto(it.url("/settings/certificates/"))
        await page.fill("#names", "new.example.org")
        await page.click("button:has-text('Request for an authority')")
        request = await page.input_value("textarea[readonly]")
        await page.fill("#name", "new")
        await page.fill("#certificate", AUTHORITY.sign_request(request) + AUTHORITY.pem)
        await page.click("#add ~ form button[type=submit]")
        await applied(page)
        assert await asyncio.to_thread(offered, it.core) == ("new.example.org",)


async def test_a_dkim_key_is_made_and_signs_when_its_record_is_there_or_one_insists(tmp_path: Path) -> None:
    nowhere = {"deliverer": {"nameservers": ["127.0.0.1:9"]}}
    async with Lab(["accept:127.0.0.1:0"]) as lab, site(tmp_path, lab, nowhere) as it:
        page = await it.sign_in("administrator")
        await page.goto(it.url("/settings/dkim/"))
        await page.fill("#domain", "not a domain")
        await page.click("#make ~ form button")
        await expect(page.locator("#domain-wrong")).to_contain_text("must be a domain")
        await page.fill("#domain", "sender.example")
        assert await page.input_value("#selector") == "s1"
        await page.click("#make ~ form button")
        await expect(page.locator(".notice.success")).to_contain_text("Publish its record")
        assert (await page.input_value("textarea")).startswith("v=DKIM1; k=rsa; p=")
        await shots(page, "dkim")
        await page.click("button:has-text('Check the record and sign')")
        await expect(page.locator(".notice.error")).to_contain_text("did not answer within 5 s")
        await page.check("input[name=unpublished]")
        await page.click("button:has-text('Check the record and sign')")
        await applied(page)
        await page.goto(it.url("/settings/dkim/"))
        await expect(page.locator("main .badge")).to_contain_text("signs")


async def test_aliases_are_edited_and_a_wrong_line_is_named(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, site(tmp_path, lab) as it:
        page = await it.sign_in("administrator")
        await page.goto(it.url("/settings/maps/"))
        await page.click("a:has-text('Add Aliases')")
        await page.fill("#map-name", "aliases")
        await page.fill("#text", "# ours\nall@example.org\n")
        await page.click("#edit ~ form button")
        await expect(page.locator("#text-wrong")).to_contain_text("line 2: ")
        await shots(page, "map-fault")
        await page.fill("#text", "# ours\nall@example.org kim@example.org\n")
        await page.click("#edit ~ form button")
        await applied(page)
        await it.core.control.close()
        await it.core.send("all@example.org")
        await it.core.until_empty()
        assert recipients_of(lab.messages) == ["kim@example.org"]
        await page.goto(it.url("/settings/maps/"))
        await shots(page, "maps")
        await page.click("a:has-text('Edit aliases')")
        assert "all@example.org kim@example.org" in await page.input_value("#text")


async def test_a_user_is_added_with_a_password_that_is_shown_once_and_sends(tmp_path: Path) -> None:
    port, pem = free_port(), certificate(tmp_path, "mail.example.org", 90)
    sections = {"receiver": {"tls_certificate": str(pem), "tls_key": str(pem)}}
    async with Lab(["accept:127.0.0.1:0"]) as lab, site(tmp_path, lab, sections) as it:
        page = await it.sign_in("administrator")
        with it.core.config.open("a") as file:
            file.write(f"\n[[listener]]\naddress = '127.0.0.1:{port}'\npurpose = 'submission'\n")
        await it.core.again()
        await page.goto(it.url("/settings/users/"))
        await page.fill("#user-name", "kim@example.org")
        await page.fill("#messages_per_hour", "many")
        await page.click("#edit ~ form button.primary")
        await expect(page.locator("#messages-wrong")).to_contain_text("whole number")
        await page.fill("#messages_per_hour", "50")
        await page.fill("#password", "short")
        await page.click("#edit ~ form button.primary")
        await expect(page.locator("#password-wrong")).to_contain_text("8 characters")
        await page.check("input[name=make]")
        await page.click("#edit ~ form button.primary")
        password = await page.locator("section.card code").inner_text()
        await shots(page, "users")
        await until(it.core, port, "kim@example.org", True, password)
        await page.goto(it.url("/settings/users/"))
        assert password not in await page.content()
        await page.click("button:has-text('Disable')")
        await expect(page.locator("main .badge")).to_contain_text("disabled")
        await until(it.core, port, "kim@example.org", False, password)
        await page.goto(it.url("/audit/"))
        text = await page.content()
        assert "user.change" in text
        assert password not in text
