"""The frame of all pages: signing in, the sections, keys, light and dark."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailcore.lab.lab import Lab
from tests.browser.site import site


@pytest.mark.long
async def test_a_role_sees_its_sections_and_every_page_opens(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, site(tmp_path, lab) as it:
        page = await it.sign_in_by_form("viewer")
        links = await page.locator("nav.side a").all()
        names = [await link.inner_text() for link in links]
        assert names[:4] == ["Overview", "Queue", "Ages", "Destinations"]
        assert "Administration" not in names
        for href in [await link.get_attribute("href") for link in links]:
            answer = await page.goto(it.url(str(href)))
            assert answer is not None
            assert answer.status == 200, href
            assert await page.locator("h1").count() == 1, href
