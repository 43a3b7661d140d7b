"""Our check of the sender on the page of a message, wide and narrow; the claims of its header are not among the results."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import expect

from mailcore.lab.lab import Lab
from tests.authenticity.mail import rsa_key, signed
from tests.browser.site import site
from tests.deliverer.dns_server import NameServer, answering

RECORDS = {
    "s._domainkey.shop.example TXT": [f'"{rsa_key()[1]}"'],
    "_dmarc.shop.example TXT": ['"v=DMARC1; p=reject"'],
    "shop.example TXT": ['"v=spf1 -all"'],
}
FORGED = b"Authentication-Results: bank.example; spf=pass; dkim=pass; dmarc=pass\r\n"


@pytest.mark.long
async def test_the_page_of_a_message_has_our_results_and_not_those_of_its_header(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, answering(NameServer(RECORDS)) as names:
        sections: dict[str, dict[str, object]] = {
            "relay": {"networks": ["192.0.2.0/24"], "domains": ["example.org"]},
            "deliverer": {"nameservers": [names.text]},
            "authenticity": {"evaluate": "mx", "authserv_id": "mx.example.org", "dmarc": "quarantine"},
        }
        async with site(tmp_path, lab, sections) as it:
            data = FORGED + signed().replace(b"noon", b"night")
            held = await it.core.send("b@example.org", sender="ann@shop.example", data=data)
            sent = await it.core.send("b@example.org", sender="ann@shop.example", data=signed())
            await it.core.until_removed(sent)
            for width in (1440, 360):
                page = await it.sign_in("viewer", viewport={"width": width, "height": 900})
                await page.goto(it.url(f"/queue/{held}/"))
                await expect(page.locator("#checks .badge")).to_have_text(
                    ["SPF fail", "DKIM fail", "ARC none", "DMARC fail"]
                )
                await expect(page.locator("table.headers")).to_contain_text("bank.example; spf=pass")
                assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
                await page.goto(it.url(f"/queue/{sent}/"))
                await expect(page.locator("#checks .badge")).to_have_text(
                    ["SPF fail", "DKIM pass", "ARC none", "DMARC pass"]
                )
