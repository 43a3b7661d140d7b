"""Passkeys with Chromium's own virtual authenticator: made, used alone and as a second factor, and what one cannot do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from playwright.async_api import CDPSession, Page, expect

from mailcore.lab.lab import Lab
from tests.browser.site import PASSWORD, Site, site


async def authenticator(page: Page, *, is_verified: bool = True) -> tuple[CDPSession, str]:
    """A telephone or a security key of this page: with a finger that is known (``is_verified``), or a touch only."""
    tools = await page.context.new_cdp_session(page)
    await tools.send("WebAuthn.enable")
    options = {
        "protocol": "ctap2", "transport": "internal", "hasResidentKey": True, "hasUserVerification": True,
        "isUserVerified": is_verified, "automaticPresenceSimulation": True,
    }  # fmt: skip
    added = await tools.send("WebAuthn.addVirtualAuthenticator", {"options": options})
    return tools, added["authenticatorId"]


def named(it: Site, path: str) -> str:
    """An address with a name: browsers make no passkeys for 127.0.0.1."""
    return f"http://localhost:{it.port}{path}"


async def by_password(page: Page, it: Site, name: str) -> None:
    await page.goto(named(it, "/accounts/login/"))
    await page.fill("input[name=login]", name)
    await page.fill("input[name=password]", PASSWORD)
    await page.click("main button[type=submit]:text-is('Sign in')")


async def new_passkey(page: Page, it: Site, *, alone: bool = True) -> None:
    await page.goto(named(it, "/accounts/two-factor/"))
    await page.click("main >> text=New passkey")
    if "/reauthenticate/" in page.url:
        await page.fill("input[name=password]", PASSWORD)
        await page.click("main button[type=submit]")
    await page.wait_for_url("**/passkeys/add/**")
    await page.set_checked("input[name=passwordless]", alone)
    await page.click("text=Make the passkey")


async def out(page: Page, it: Site) -> None:
    await page.goto(named(it, "/accounts/logout/"))
    await page.click("main button[type=submit]")
    await page.wait_for_url("**/accounts/login/**")


async def test_a_passkey_signs_in_alone_and_counts_as_the_second_factor(tmp_path: Path) -> None:
    demanded = {"portal": {"second_factor_for": ["operator"]}}
    async with Lab(["accept:127.0.0.1:0"]) as lab, site(tmp_path, lab, demanded) as it:
        page = await it.page()
        tools, device = await authenticator(page)
        await by_password(page, it, "operator")
        await page.wait_for_url("**/two-factor/")
        await new_passkey(page, it)
        await page.locator("#recovery-codes code").nth(9).wait_for()
        await page.goto(named(it, "/accounts/two-factor/"))
        await expect(page.locator("main")).to_contain_text("signs in alone")
        await page.goto(named(it, "/audit/"))
        await expect(page.locator("table.audit")).to_contain_text("user.passkey")

        await out(page, it)
        await page.click("text=Sign in with a passkey")
        await page.wait_for_url(named(it, "/"))
        await page.goto(named(it, "/accounts/sessions/"))
        await expect(page.locator("main tbody tr").first).to_contain_text("passkey")

        # The password alone is half of it.
        await out(page, it)
        await by_password(page, it, "operator")
        await page.wait_for_url("**/two-factor/code/")
        assert "/accounts/two-factor/code/" in (await page.request.get(named(it, "/queue/"))).url
        await page.reload()  # the request has made another challenge
        await page.click("text=Use a passkey instead")
        await page.wait_for_url(named(it, "/"))

        # The only factor of a role that demands one stays.
        await page.goto(named(it, "/accounts/two-factor/"))
        await page.click("main >> text=Remove")
        if "/reauthenticate/" in page.url:
            await page.fill("input[name=password]", PASSWORD)
            await page.click("main button[type=submit]")
        await page.click("main button[type=submit]")
        await expect(page.locator("#notice")).to_contain_text("Not removed")

        # A device without its owner's finger.
        await out(page, it)
        await tools.send("WebAuthn.setUserVerified", {"authenticatorId": device, "isUserVerified": False})
        await page.click("text=Sign in with a passkey")
        await expect(page.locator("form[data-passkey] [role=alert]")).to_be_visible()
        assert "/accounts/login/" in page.url


@pytest.mark.long
async def test_a_credential_of_another_sign_in_or_user_is_refused(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, site(tmp_path, lab) as it:
        page = await it.page()
        await authenticator(page)
        await by_password(page, it, "viewer")
        await page.wait_for_url(named(it, "/"))
        await new_passkey(page, it)
        await page.locator("#recovery-codes code").nth(9).wait_for()
        await out(page, it)
        sent: list[str] = []
        page.on("request", lambda request: sent.append(request.post_data or "") if request.method == "POST" else None)
        await page.click("text=Sign in with a passkey")
        await page.wait_for_url(named(it, "/"))
        credential = next(each for each in (_field(text) for text in sent) if each)

        await out(page, it)
        assert "/accounts/login/" in await posted(page, it, json.dumps(credential)), "its challenge was used up"
        credential["response"]["userHandle"] = "MQ"  # of the first user
        assert "/accounts/login/" in await posted(page, it, json.dumps(credential))
        for nonsense in ("", "[]", "1", "{}", '{"response": {}}', '{"response": {"userHandle": "_"}}', "x" * 20_000):
            assert "/accounts/login/" in await posted(page, it, nonsense), nonsense[:40]
        assert "Traceback" not in (it.core.directory / "portal.err").read_text()


def _field(text: str) -> dict[str, Any]:
    found = parse_qs(text).get("credential")
    return json.loads(found[0]) if found else {}


async def posted(page: Page, it: Site, credential: str) -> str:
    """Sends a credential as the script does, after asking for a new challenge; returns where it leads."""
    await page.goto(named(it, "/accounts/login/"))
    token = await page.locator("form[data-passkey] input[name=csrfmiddlewaretoken]").input_value()
    place = named(it, "/accounts/passkeys/sign-in/")
    await page.request.get(place, headers={"Accept": "application/json"})
    answer = await page.request.post(place, form={"credential": credential, "csrfmiddlewaretoken": token})
    assert answer.status < 500, answer.status
    inside = await page.request.get(named(it, "/queue/"))
    return inside.url


async def test_at_an_address_without_a_name_the_page_says_so(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, site(tmp_path, lab) as it:
        page = await it.sign_in("viewer")
        await page.goto(it.url("/accounts/two-factor/"))
        await expect(page.locator("main")).to_contain_text("Passkeys work at an address with a name")
        assert await page.locator("main >> text=New passkey").count() == 0
