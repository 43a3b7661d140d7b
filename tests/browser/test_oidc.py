"""Single sign-on in a browser: from the button over a provider and back, with the role of a group; a provider that is down."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import expect

from mailcore.lab.lab import Lab
from tests.appliance.accounts.fake_provider import CLIENT, SECRET, FakeProvider
from tests.browser.site import site


async def test_a_person_signs_in_at_the_provider_and_the_group_gives_the_role(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET)
    with FakeProvider() as provider:
        provider.person = {
            "sub": "42", "email": "kim@example.org", "email_verified": True, "preferred_username": "kim", "groups": ["ops"],
        }  # fmt: skip
        oidc = {
            "issuer": provider.issuer, "client_id": CLIENT, "client_secret_file": str(tmp_path / "secret"),
            "name": "Example Login", "make_users": True, "operator_groups": ["ops"],
        }  # fmt: skip
        async with Lab(["accept:127.0.0.1:0"]) as lab, site(tmp_path, lab, {"oidc": oidc}) as it:
            page = await it.page()
            await page.goto(it.url("/queue/"))
            await page.click("main >> text=Example Login")
            await page.wait_for_url(it.url("/queue/"))
            await expect(page.locator("summary").first).to_have_text("kim")
            assert await page.locator("nav.side >> text=Audit").count() == 1, "an operator"
            await page.goto(it.url("/accounts/sessions/"))
            await expect(page.locator("main tbody")).to_contain_text("single sign-on")

            await page.click("main tbody >> text=Sign out")
            await page.wait_for_url("**/accounts/login/**")
            provider.person["groups"] = []
            await page.click("main >> text=Example Login")
            await expect(page.locator("main")).to_contain_text("None of your groups gives you a role here")

            provider.failing["/token"] = 500
            await page.goto(it.url("/accounts/oidc/"))
            await expect(page.locator("main")).to_contain_text("Example Login is not available at the moment")
