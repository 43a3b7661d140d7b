"""Signing in with TOTP, being locked, the administration and the audit, in a browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from mailcore.lab.lab import Lab
from tests.browser.site import PASSWORD, Site, site
from tests.browser.totp import code, fresh_code

OWN = "a password of my own"
WRONG_AND_LOCKED = 5  # [portal] lockout_failures


async def password(page: Page, it: Site, name: str, words: str = PASSWORD) -> None:
    await page.goto(it.url("/accounts/login/"))
    await page.fill("input[name=login]", name)
    await page.fill("input[name=password]", words)
    await page.click("main button[type=submit]")


async def test_totp_is_set_up_with_an_app_and_asked_for_from_then_on(tmp_path: Path) -> None:
    async with (
        Lab(["accept:127.0.0.1:0"]) as lab,
        site(tmp_path, lab, {"portal": {"second_factor_for": ["administrator"]}}) as it,
    ):
        page = await it.page()
        await password(page, it, "administrator")
        # The policy leads there, and to nothing else; the password is asked for once more.
        await page.wait_for_url("**/two-factor/")
        await expect(page.locator("main")).to_contain_text("Your role requires a second factor")
        assert await page.locator("nav.side").count() == 0
        await page.click("main >> text=Set up")
        await page.wait_for_url("**/reauthenticate/**")
        await page.fill("input[name=password]", PASSWORD)
        await page.click("main button[type=submit]")
        await page.wait_for_url("**/two-factor/activate/**")
        picture = page.locator("img.qr")
        assert await picture.evaluate("image => image.complete && image.naturalWidth") > 0, "the policy lets it be seen"
        await page.goto(it.url("/admin/"))
        await page.wait_for_url("**/two-factor/")
        await page.click("main >> text=Set up")
        secret = await page.locator("#totp-secret").inner_text()
        enrolled = await fresh_code(secret)
        await page.fill("input[name=code]", enrolled)
        await page.click("main button[type=submit]")
        await page.locator("#recovery-codes code").nth(9).wait_for()
        codes = await page.locator("#recovery-codes code").all_inner_texts()
        assert len(codes) == 10
        await page.click("text=I have saved them")
        await page.wait_for_url(it.url("/"))

        other = await it.page()
        await password(other, it, "administrator")
        await other.wait_for_url("**/two-factor/code/**")
        await other.fill("input[name=code]", "000000" if code(secret) != "000000" else "000001")
        await other.click("main button[type=submit]")
        await expect(other.locator(".errorlist")).to_be_visible()

        # The telephone is at home.
        await other.fill("input[name=code]", codes[3])
        await other.click("main button[type=submit]")
        await other.wait_for_url(it.url("/"))
        await other.click("summary")
        await other.click("text=Sign out")
        await other.wait_for_url("**/accounts/login/**")

        # Another role needs no code. Meanwhile the time until the next code passes.
        operator = await it.sign_in_by_form("operator")
        await expect(operator.locator("h1")).to_have_text("Overview")

        await password(other, it, "administrator")
        await other.wait_for_url("**/two-factor/code/**")
        await other.fill("input[name=code]", await fresh_code(secret, enrolled))
        await other.click("main button[type=submit]")
        await other.wait_for_url(it.url("/"))
        await other.goto(it.url("/audit/?who=administrator"))
        deeds = await other.locator("table.audit tbody td:nth-child(3)").all_inner_texts()
        assert deeds[:3] == ["sign_in", "sign_out", "sign_in"]
        assert "sign_in.failed" in deeds
        assert "user.totp" in deeds


@pytest.mark.long
async def test_too_many_wrong_passwords_lock_and_an_administrator_unlocks(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, site(tmp_path, lab) as it:
        page = await it.page()
        for _ in range(WRONG_AND_LOCKED):
            await password(page, it, "operator", "wrong")
        await expect(page.locator("h1")).to_have_text("Locked")
        await password(page, it, "operator")
        await expect(page.locator("h1")).to_have_text("Locked")

        boss = await it.sign_in_by_form("administrator")
        await boss.goto(it.url("/admin/axes/accessattempt/"))
        await boss.click("text=Unlock")
        await boss.fill("input[name=why]", "was on holiday")
        await boss.click("main button[type=submit]")
        await expect(boss.locator("main")).to_contain_text("No entries")
        await password(page, it, "operator")
        await page.wait_for_url(it.url("/"))


@pytest.mark.long
async def test_a_user_is_made_changed_and_put_out_and_the_audit_shows_it(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, site(tmp_path, lab) as it:
        boss = await it.sign_in_by_form("administrator")
        await boss.click("nav.side >> text=Administration")
        assert await boss.locator("link[href*='admin/css']").count() == 0
        await boss.click("main >> text=Users")
        await boss.click("text=Add")
        await boss.fill("input[name=username]", "ina")
        await boss.fill("input[name=password1]", PASSWORD)
        await boss.fill("input[name=password2]", PASSWORD)
        await boss.click("button[name=_save]")
        await expect(boss.locator(".errorlist").first).to_be_visible()  # no reason
        await boss.fill("input[name=password1]", PASSWORD)
        await boss.fill("input[name=password2]", PASSWORD)
        await boss.fill("input[name=why]", "starts today")
        await boss.click("button[name=_save]")
        await boss.wait_for_url("**/admin/auth/user/")

        ina = await it.page()
        await password(ina, it, "ina")
        await ina.wait_for_url("**/accounts/password/")  # the administrator knows this one
        await ina.fill("input[name=oldpassword]", PASSWORD)
        await ina.fill("input[name=password1]", OWN)
        await ina.fill("input[name=password2]", OWN)
        await ina.click("main button[type=submit]")
        await ina.wait_for_url(it.url("/"))
        assert await ina.locator("nav.side >> text=Audit").count() == 0
        await boss.locator("#result_list").get_by_role("link", name="ina", exact=True).click()
        await boss.select_option("select[name=role]", "operator")
        await boss.fill("input[name=why]", "night shift")
        await boss.click("button[name=_save]")
        await boss.wait_for_url("**/admin/auth/user/")
        await ina.goto(it.url("/queue/"))
        await ina.wait_for_url("**/accounts/login/**")  # the session ended with the role
        await password(ina, it, "ina", OWN)
        await ina.wait_for_url(it.url("/"))
        assert await ina.locator("nav.side >> text=Audit").count() == 1

        await boss.goto(it.url("/audit/"))
        await boss.fill("input[name=subject]", "ina")
        await boss.click("text=Filter")
        await boss.click("tr:has-text('night shift') [data-open]")
        row = boss.locator("tr.changed", has_text="role")
        await expect(row.locator("del")).to_have_text("viewer")
        await expect(row.locator("ins")).to_have_text("operator")

        await boss.goto(it.url("/reports/schedules/"))
        await expect(boss.locator("#no-scheduler")).to_contain_text("is not running")
        await boss.click("text=Change retention")
        await boss.fill("input[name=at]", "05:45")
        await boss.fill("input[name=why]", "after the backup")
        await boss.click("main button[type=submit]")
        await expect(boss.locator("main table")).to_contain_text("05:45")
