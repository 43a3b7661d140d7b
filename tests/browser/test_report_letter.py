"""The mailed report, and that there is none, delivered by Waypost itself to a next hop, read by Python's parser, and looked at:
narrow and wide, by day and by night.
"""

from __future__ import annotations

import asyncio
import base64
import email
import email.policy
import itertools
import subprocess
import sys
from datetime import date
from email.message import EmailMessage
from pathlib import Path
from typing import Literal

import pytest
from playwright.async_api import async_playwright

from appliance.reports.report_store import Period
from tests.appliance.reports.made import make_report, tables
from tests.browser.chromium import CHROMIUM
from tests.browser.site import _environment
from tests.browser.test_access import faults
from tests.running.catcher import Catcher
from tests.running.running_core import RunningCore
from tests.test_tidy import ROOT

Scheme = Literal["light", "dark"]
LOOKS: tuple[tuple[Scheme, int], ...] = (("light", 1200), ("dark", 360))
ALL_LOOKS: tuple[tuple[Scheme, int], ...] = tuple(itertools.product(("light", "dark"), (360, 700, 1200)))
BROKEN_WORDS = """() => {
  const broken = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    for (const found of walker.currentNode.data.matchAll(/[\\p{L}\\p{N}]{2,30}/gu)) {
      const word = document.createRange();
      word.setStart(walker.currentNode, found.index);
      word.setEnd(walker.currentNode, found.index + found[0].length);
      const lines = new Set([...word.getClientRects()].map((part) => Math.round(part.top)));
      if (lines.size > 1) broken.push(found[0]);
    }
  }
  return broken;
}"""
MADE = """
from datetime import date
from django.utils import timezone
from appliance.reports.models import Run, State
Run.objects.create(day=date(2026, 11, 18), who="x", state=State.DONE, mail=True, ended_at=timezone.now())
words = "org.apache.spark.sql.catalyst." * 9
failed = {"state": State.FAILED, "words": words, "log": words}
Run.objects.create(day=date(2026, 11, 15), who="x", mail=True, ended_at=timezone.now(), **failed)
"""


def manage(config: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "manage.py", *arguments], cwd=ROOT, env=_environment(config), capture_output=True, text=True,
        timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def send(core: RunningCore) -> None:
    given = tables()
    given["destinations"][3]["destination"] = (
        "smtp:a-name-that-is-longer-than-most-are.and.has.many.parts.of.a.domain.example"
    )
    for number in (16, 17, 18):
        make_report(core.home / "reports", Period.DAY, date(2026, 11, number), number != 18, given)
    manage(core.config, "migrate", "--verbosity", "0")
    manage(core.config, "shell", "--no-imports", "--command", MADE)
    assert manage(core.config, "mail_reports") == "sent 2\n"


@pytest.mark.long
@pytest.mark.parametrize(
    "looks", [pytest.param(LOOKS, id="two looks"), pytest.param(ALL_LOOKS, id="all looks", marks=pytest.mark.long)]
)
async def test_the_report_is_delivered_and_read(tmp_path: Path, looks: tuple[tuple[Scheme, int], ...]) -> None:
    async with Catcher() as sink:
        sections = {"reports": {"recipients": ["ops@ops.example", "boss@ops.example"], "sender": "waypost@mx.example"}}
        core = RunningCore(tmp_path, {"*": sink.route}, sections)
        await core.start()
        try:
            await asyncio.to_thread(send, core)

            async def caught() -> bool:
                return len(sink.caught) == 2

            await core.eventually(caught, "the report at the next hop")
        finally:
            await core.control.close()
            core.stop()
    letters = {}
    for sender, recipients, data in sink.caught:
        assert (sender, sorted(recipients)) == ("waypost@mx.example", ["boss@ops.example", "ops@ops.example"])
        message = email.message_from_bytes(data, policy=email.policy.default)
        assert isinstance(message, EmailMessage)
        assert not any(part.defects for part in message.walk())
        letters[str(message["Subject"])] = html_of(message)
    report = letters["Waypost: report of Wednesday 18 November 2026: DOES NOT BALANCE"]
    failure = letters["Waypost: report of 2026-11-15 failed"]
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(**CHROMIUM)
        for scheme, width in looks:
            context = await browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
            page = await context.new_page()
            for html in (failure, report):
                await page.set_content(html)
                assert await page.evaluate("document.documentElement.scrollWidth") <= width
                assert width != 360 or await faults(page, scheme, is_mail=True) == []
                assert await page.evaluate(BROKEN_WORDS) == [], width
                ground = await page.evaluate("getComputedStyle(document.body).backgroundColor")
                assert ground == {"light": "rgb(246, 247, 249)", "dark": "rgb(18, 23, 30)"}[scheme]
            shown = await page.evaluate("[...document.images].map((image) => [image.naturalWidth, image.width])")
            assert len(shown) == 2
            assert all(natural == 1200 and width / 2 < here <= 760 for natural, here in shown)
            plates = await page.evaluate("[...document.images].map((image) => getComputedStyle(image).backgroundColor)")
            assert set(plates) == {"rgb(255, 255, 255)"}, "what is drawn for white keeps it"
        await browser.close()


def html_of(message: EmailMessage) -> str:
    """With its pictures in it."""
    part = message.get_body(("html",))
    assert isinstance(part, EmailMessage)
    html = str(part.get_content())
    for picture in message.walk():
        if picture.get_content_type() == "image/png":
            whole = picture.get_payload(decode=True)
            assert isinstance(whole, bytes)
            inside = f"data:image/png;base64,{base64.b64encode(whole).decode()}"
            html = html.replace(f"cid:{picture['Content-ID'].strip('<>')}", inside)
    assert "cid:" not in html
    return html
