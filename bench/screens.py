"""Pictures of the portal's pages, out of the demo: ``python -m bench.screens``.

Starts what ``./run --demo`` starts, with a home and ports of its own, waits until there is something to see, and takes every
page, light and dark, wide and narrow, in Debian's Chromium; the reports are those of ``bench.made_week``. ``docs/screens``
gets the few that the documents show, in few colours. ``--reports`` takes the reports and their mail alone, in two minutes.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from bench.processes import end_group, free_port, listening, wait_until
from mailcore.queue.exported import EXPORTED
from tests.browser.chromium import CHROMIUM

__all__ = ["main"]

ROOT = Path(__file__).resolve().parent.parent
COLOURS = 96  # of a picture in docs/: a quarter of the bytes, and nothing to be seen of it
WIDE = {"width": 1440, "height": 900}
NARROW = {"width": 360, "height": 740}
PAGES = {
    "overview": "/",
    "queue": "/queue/",
    "queue-deferred": "/queue/?lane=retry.*",
    "search": "/queue/search/?q=*@overloaded.example",
    "ages": "/queue/ages/",
    "changes": "/queue/changes/",
    "destinations": "/destinations/",
    "tuning": "/tuning/",
    "tuning-history": "/tuning/history/",
    "positions": "/positions/",
    "routes": "/routes/",
    "log": "/log/",
    "alerts": "/alerts/",
    "alert-rule": "/alerts/rules/disk/",
    "webhooks": "/webhooks/",
    "settings": "/settings/",
    "settings-listeners": "/settings/kinds/listeners/",
    "settings-routes": "/settings/kinds/routes/",
    "certificates": "/settings/certificates/",
    "dkim": "/settings/dkim/",
    "mail-users": "/settings/users/",
    "tokens": "/accounts/tokens/",
    "sessions": "/accounts/sessions/",
    "invitations": "/accounts/invitations/",
    "api": "/api/v1/",
    "audit": "/audit/",
    "administration": "/admin/",
    "users": "/admin/auth/user/",
    "two-factor": "/accounts/two-factor/",
}
SHOWN = (
    "overview",
    "queue-deferred",
    "message",
    "ages",
    "destination",
    "what-if",
    "positions",
    "report",
    "report-mail",
)
LAST = datetime.now(UTC).date() - timedelta(days=1)  # of the made-up week
REPORTS = {
    "reports": "/reports/",
    "report": f"/reports/day/{LAST}/",
    "report-week": f"/reports/week/{LAST - timedelta(days=LAST.weekday())}/",
    "report-month": f"/reports/month/{LAST.replace(day=1)}/",
    "report-none": f"/reports/day/{LAST - timedelta(days=100)}/",
    "schedules": "/reports/schedules/",
}
LETTER = """
import base64
from datetime import date
from appliance.reports.report_store import Period, report_of
from appliance.reports.letters import letter
from appliance.reports.preferences import in_force
report = report_of(Period.DAY, date.fromisoformat({day!r}))
message = letter(report, in_force())
html = message.get_body(("html",)).get_content()
for part in message.walk():
    if part.get_content_type() == "image/png":
        inside = "data:image/png;base64," + base64.b64encode(part.get_payload(decode=True)).decode()
        html = html.replace("cid:" + part["Content-ID"].strip("<>"), inside)
print(html)
"""
SETTLE_MS = 2_500  # for lines and lists that come after the page


@contextmanager
def demo(directory: Path) -> Iterator[tuple[str, str]]:
    """The portal's address, and the password of ``admin``."""
    smtp, web = free_port(), free_port()
    text = (ROOT / "demo.toml").read_text()
    text = text.replace('"var/demo"', f'"{directory / "home"}"').replace("127.0.0.1:2525", f"127.0.0.1:{smtp}")
    config = directory / "demo.toml"
    text += (
        f'\n[portal]\nlisten = "127.0.0.1:{web}"\n[reports]\nzone = "Europe/Vienna"\nsender = "waypost@mx.example"\n'
    )
    config.write_text(text)
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    environment["WAYPOST_CONFIG"] = str(config)
    waypost = str(Path(sys.executable).with_name("waypost"))
    started = []
    errors = directory / "portal.err"
    try:
        for command in (
            [waypost, "mailcore", "--config", str(config)],
            [waypost, "demo", "--config", str(config)],
            [sys.executable, "manage.py", "serve"],
        ):
            with errors.open("ab") as out:
                started.append(subprocess.Popen(command, cwd=ROOT, env=environment, stderr=out, start_new_session=True))
            if len(started) == 1:
                wait_until(lambda: listening(smtp), "the core")
        found: list[str] = []

        def told() -> bool:
            words = errors.read_text()
            found[:] = re.findall(r"sign in as admin with (\S+)", words)
            return bool(found) and f"portal: http://127.0.0.1:{web}/" in words

        wait_until(told, "the portal", 120, poll_s=0.2)
        time.sleep(2)
        yield f"http://127.0.0.1:{web}", found[0]
    finally:
        for process in reversed(started):
            end_group(process)


def reports(home: Path, made: Path | None) -> None:
    if made is not None:
        shutil.copytree(made / "reports", home / "reports", symlinks=True, dirs_exist_ok=True)
        (home / "events" / EXPORTED).mkdir(parents=True)  # or the core misses the events of these reports
        return
    subprocess.run([sys.executable, "-m", "bench.made_week", str(home), "--last", str(LAST)], cwd=ROOT, check=True)


def letter(config: Path) -> str:
    """The mailed report of the last day, with its pictures in it."""
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    done = subprocess.run(
        [sys.executable, "manage.py", "shell", "--no-imports", "--command", LETTER.format(day=str(LAST))],
        cwd=ROOT, env=environment | {"WAYPOST_CONFIG": str(config)}, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout


def change_password(browser: Browser, base: str, password: str) -> str:
    """Signs in for the first time, when the password must be changed; returns the new one."""
    new = f"{password}-changed"
    page = browser.new_page()
    page.goto(f"{base}/accounts/login/")
    page.fill("input[name=login]", "admin")
    page.fill("input[name=password]", password)
    page.click("main button[type=submit]")
    page.fill("input[name=oldpassword]", password)
    page.fill("input[name=password1]", new)
    page.fill("input[name=password2]", new)
    page.click("main button[type=submit]")
    page.wait_for_url(lambda url: "password" not in url)
    page.close()
    return new


def sign_in(browser: Browser, base: str, password: str, scheme: str) -> Page:
    context = browser.new_context(viewport=WIDE, color_scheme=scheme, timezone_id="Europe/Vienna")  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(f"{base}/accounts/login/")
    page.fill("input[name=login]", "admin")
    page.fill("input[name=password]", password)
    page.click("main button[type=submit]")
    page.wait_for_url(f"{base}/")
    return page


def walk(page: Page, base: str, mail: str, reports_only: bool) -> Iterator[tuple[str, Page]]:
    """Opens one page after the other, and names it."""
    for name, path in (REPORTS if reports_only else PAGES | REPORTS).items():
        page.goto(base + path)
        page.wait_for_timeout(SETTLE_MS)
        yield name, page
    other = page.context.new_page()  # the report mail is not on a page of the portal
    other.set_content(mail)
    yield "report-mail", other
    if reports_only:
        return
    page.goto(f"{base}/queue/?destination=smtp%3A*&reason=4")
    page.wait_for_timeout(SETTLE_MS)
    page.locator("#rows a[data-open]").first.click()
    page.wait_for_load_state()
    page.wait_for_timeout(SETTLE_MS)
    yield "message", page
    page.goto(f"{base}/destinations/")
    page.wait_for_timeout(SETTLE_MS)
    page.locator("tbody tr", has_text="127.0.25.3]").locator("a[data-open]").click()
    page.wait_for_load_state()
    page.wait_for_timeout(60_000)  # lines of its window
    yield "destination", page
    page.goto(f"{base}/tuning/?scope=smtp")
    page.fill("input[name=value-destination_concurrency_limit]", "4")
    page.locator("#values button[type=submit]").first.click()
    page.wait_for_timeout(SETTLE_MS)
    yield "diff", page
    page.check("#what-if input[name=arrivals]")
    page.select_option("#what-if select[name=duration]", "3600")
    page.locator("#what-if button[type=submit]").click()
    page.locator("#dialog .prediction canvas").first.wait_for(timeout=90_000)
    page.wait_for_timeout(SETTLE_MS)
    yield "what-if", page


def small(path: Path, to: Path) -> None:
    picture = Image.open(path).convert("RGB")
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(to, optimize=True)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.screens", description=__doc__.partition("\n")[0])
    parser.add_argument("directory", type=Path, help="where all pictures go")
    parser.add_argument("--minutes", type=float, default=6.0, help="of traffic before the first picture")
    parser.add_argument("--reports", action="store_true", help="of the reports alone")
    parser.add_argument("--week", type=Path, metavar="HOME", help="one that bench.made_week has made")
    parser.add_argument("--docs", action="store_true", help="also those in docs/screens")
    arguments = parser.parse_args(argv)
    arguments.directory.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="screens-", dir="/var/tmp") as name,
        sync_playwright() as playwright,
        demo(Path(name)) as (base, given),
    ):
        reports(Path(name, "home"), arguments.week)
        time.sleep(0 if arguments.reports else arguments.minutes * 60)
        browser = playwright.chromium.launch(**CHROMIUM)
        password = change_password(browser, base, given)
        mail = letter(Path(name, "demo.toml"))
        for scheme in ("light", "dark"):
            own = sign_in(browser, base, password, scheme)
            for what, page in walk(own, base, mail, arguments.reports):
                path = arguments.directory / f"{what}-{scheme}.png"
                page.screenshot(path=path)
                if arguments.docs and scheme == "light" and what in SHOWN:
                    small(path, ROOT / "docs" / "screens" / f"{what}.png")
                page.set_viewport_size(NARROW)  # type: ignore[arg-type]
                page.wait_for_timeout(300)
                page.screenshot(path=arguments.directory / f"{what}-{scheme}-narrow.png")
                page.set_viewport_size(WIDE)  # type: ignore[arg-type]
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
