"""From a fresh installation to the first signed message over a submission port, in the browser alone."""

from __future__ import annotations

import asyncio
import smtplib
import ssl
from pathlib import Path

from playwright.async_api import expect

from mailcore.lab.lab import Lab
from tests.browser.site import site
from tests.browser.test_kept import applied
from tests.end_to_end.appliance import free_port
from tests.end_to_end.test_kept import AUTHORITY
from tests.eventually import PATIENCE_S, eventually
from tests.running.catcher import Catcher


def submit(port: int, password: str) -> None:
    context = ssl.create_default_context(cadata=AUTHORITY.pem)
    with smtplib.SMTP("127.0.0.1", port, timeout=PATIENCE_S) as client:
        client._host = "mail.mine.example"  # type: ignore[attr-defined]  # the name that the certificate must have
        client.starttls(context=context)
        client.login("kim@mine.example", password)
        client.sendmail(
            "kim@mine.example", ["bo@far.example"], "From: kim@mine.example\r\nSubject: first\r\n\r\nHello.\r\n"
        )


async def test_domain_route_certificate_key_and_user_are_made_without_a_shell_and_mail_flows(tmp_path: Path) -> None:
    port = free_port()
    nowhere = {"deliverer": {"nameservers": ["127.0.0.1:9"]}}
    async with Lab(["accept:127.0.0.1:0"]) as lab, Catcher() as catcher, site(tmp_path, lab, nowhere) as it:
        page = await it.sign_in("administrator")
        await page.goto(it.url("/settings/kinds/relay/"))
        await page.fill("#relay-domains", "mine.example")
        await page.click("section.card:has(#group-1) button.primary")
        await applied(page)

        await page.goto(it.url("/settings/kinds/routes/rows/routes/"))
        await page.fill("#name", "far.example")
        await page.fill("#text", catcher.route)
        await page.click("main button.primary")
        await applied(page)

        issued = AUTHORITY.issue("mail.mine.example")
        await page.goto(it.url("/settings/certificates/"))
        await page.fill("#name", "mail")
        await page.fill("#certificate", issued.certificate + AUTHORITY.pem)
        await page.fill("#key", issued.key)
        await page.click("#add ~ form button[type=submit]")
        await applied(page)

        await page.goto(it.url("/settings/kinds/listeners/rows/listener/"))
        await page.fill("#address", f"127.0.0.1:{port}")
        await page.select_option("#purpose", "submission")
        await page.click("main button.primary")
        await applied(page)

        await page.goto(it.url("/settings/dkim/"))
        await page.fill("#domain", "mine.example")
        await page.click("#make ~ form button")
        await page.click("button:has-text('Check the record and sign')")
        await page.check("input[name=unpublished]")
        await page.click("button:has-text('Check the record and sign')")
        await applied(page)

        await page.goto(it.url("/settings/users/"))
        await page.fill("#user-name", "kim@mine.example")
        await page.check("input[name=make]")
        await page.click("#edit ~ form button.primary")
        password = await page.locator("section.card code").inner_text()
        await expect(page.locator("table")).to_contain_text("kim@mine.example")

        async def sent() -> bool:
            try:
                await asyncio.to_thread(submit, port, password)
            except smtplib.SMTPAuthenticationError:  # receivers read the users within a second
                return False
            return True

        await eventually(sent, "a login")
        await eventually(lambda: catcher.caught, "the message")
        _, recipients, data = catcher.caught[0]
        assert recipients == ["bo@far.example"]
        assert b"DKIM-Signature:" in data
        assert b"d=mine.example" in data
        await page.goto(it.url("/settings/history/"))
        await expect(page.locator("section.card")).to_have_count(5)
