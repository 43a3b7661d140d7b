"""From a bare Debian to alerts and webhooks, in Chromium alone after the first command, and timed. `./test --servers`.

The first command installs the package and runs `waypost setup`; what follows is done as an operator does it: in the portal,
whose address and password that command has printed, with swaks as the mail program. The next hop, the server for the mail of
alerts and the receiver of the webhook are on this host. The steps are printed as the table that docs/package.md has.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.async_api import Page, async_playwright, expect

from mailcore.lab.lab import Lab
from tests.appliance.webhooks.receiver import Receiver, receiving
from tests.browser.chromium import CHROMIUM
from tests.browser.queue_steps import give_reason, result
from tests.end_to_end.test_kept import AUTHORITY
from tests.eventually import PATIENCE_MS, eventually
from tests.running.catcher import Catcher
from tests.servers.browser import SIGN_IN
from tests.servers.machine import BARE, Machine, missing
from tests.servers.packages import APT, package
from tests.servers.servers import FIRST, HOP_PORT, booted

pytestmark = [
    pytest.mark.servers,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(bool(missing()), reason=missing() or "-"),
    pytest.mark.skipif(shutil.which("swaks") is None, reason="no swaks here"),
]
SYSTEMS = [("bookworm", "3.11", 8), ("trixie", "3.13", 9)]
SHOTS = os.environ.get("WAYPOST_SHOTS", "")  # a directory, for a person who looks at the pages
ALERTS_PORT = 2527
DEAD_S = 30  # in place of an hour, so that the test need not wait an hour for the alert
DOMAIN, USER = "mine.example", "kim@mine.example"


class Hosts(NamedTuple):
    """What is on this host, for the machine."""

    hop: Catcher
    alerts: Catcher
    webhook: Receiver


@dataclass
class Steps:
    """What was done, with the seconds that each took."""

    page: Page
    name: str  # of the system
    took: list[tuple[str, float]] = field(default_factory=list)

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.took.append((what, time.monotonic() - began))

    async def look(self, name: str) -> None:
        """Takes pictures for a person; the time for them counts as none of a step."""
        for width in (1440, 360) if SHOTS else ():
            await self.page.set_viewport_size({"width": width, "height": 900})
            await self.page.screenshot(path=f"{SHOTS}/{self.name}-{name}-{width}.png", full_page=True)
        if SHOTS:
            await self.page.set_viewport_size({"width": 1440, "height": 900})

    async def apply(self, why: str) -> None:
        """Applies the difference that the page shows, and waits until it is in force."""
        await self.page.fill("#why", why)
        await self.page.click("main button:has-text('Apply')")
        await expect(self.page.locator(".notice.success")).to_contain_text("in force", timeout=PATIENCE_MS)

    def table(self) -> str:
        total = sum(seconds for _, seconds in self.took)
        lines = [f"| {what} | {seconds:.1f} |" for what, seconds in (*self.took, ("all steps", total))]
        return "\n".join(["| step | seconds |", "|---|---|", *lines])


@pytest.fixture(scope="module", params=SYSTEMS, ids=lambda each: each[0])
def bare(request: pytest.FixtureRequest) -> Iterator[tuple[str, Machine]]:
    """A Debian with nothing but systemd and SSH, and the package in the home of root."""
    suite, python, number = request.param
    built = package(FIRST, python)
    with booted(suite, [number], BARE) as made:
        (one,) = made.machines
        shutil.copy(built, one.tree / "root" / "waypost.deb")
        yield suite, one


def send(one: Machine, place: Path, password: str, to: str, subject: str) -> str:
    """Hands a message in with swaks over port 587; returns what both said. Its certificate must be ours."""
    (place / "authority.pem").write_text(AUTHORITY.pem)
    command = [
        "swaks", "--server", f"{one.address}:587", "--tls", "--tls-verify", "--tls-ca-path", str(place / "authority.pem"),
        "--auth", "PLAIN", "--auth-user", USER, "--auth-password", password, "--from", USER, "--to", to,
        "--header", f"Subject: {subject}", "--body", "Does it arrive?", "--hide-all",
    ]  # fmt: skip
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"swaks ended with {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


async def sign_in(steps: Steps, first: str) -> None:
    page = steps.page
    await page.goto("/")
    await steps.look("sign-in")
    await page.fill("input[name=login]", "admin")
    await page.fill("input[name=password]", first)
    await page.click(SIGN_IN)
    await expect(page.locator("input[name=oldpassword]")).to_be_visible(timeout=PATIENCE_MS)
    await steps.look("first-password")
    changed = secrets.token_urlsafe(12)
    await page.fill("input[name=oldpassword]", first)
    await page.fill("input[name=password1]", changed)
    await page.fill("input[name=password2]", changed)
    await page.click("main button[type=submit]")
    await expect(page.locator("h1")).to_have_text("Overview", timeout=PATIENCE_MS)
    await steps.look("overview-first")


async def add_domain_and_route(steps: Steps, route: str) -> None:
    page = steps.page
    await page.goto("/settings/kinds/relay/")
    await page.fill("#relay-domains", DOMAIN)
    await page.click("section.card:has(#relay-domains) button.primary")
    await steps.look("domain-check")
    await steps.apply("our domain")
    await page.goto("/settings/kinds/routes/rows/routes/")
    await page.fill("#name", DOMAIN)
    await page.fill("#text", route)
    await page.click("main button.primary")
    await steps.apply("its mail goes to the mailbox server")


async def hand_in_certificate(steps: Steps, place: Path, name: str) -> None:
    issued = AUTHORITY.issue(name)
    (place / "chain.pem").write_text(issued.certificate + AUTHORITY.pem)
    (place / "key.pem").write_text(issued.key)
    await steps.page.goto("/settings/certificates/")
    await steps.look("certificates")
    await steps.page.fill("#name", name)
    await steps.page.set_input_files("#certificate_file", place / "chain.pem")
    await steps.page.set_input_files("#key_file", place / "key.pem")
    await steps.page.click("#add ~ form button[type=submit]")
    await steps.look("certificate-check")
    await steps.apply("of our authority")


async def make_key(steps: Steps) -> None:
    page = steps.page
    await page.goto("/settings/dkim/")
    await page.fill("#domain", DOMAIN)
    await page.click("#make ~ form button")
    await steps.look("dkim")
    await page.click("button:has-text('Check the record and sign')")
    await page.check("input[name=unpublished]", timeout=PATIENCE_MS)
    await steps.look("dkim-unpublished")
    await page.click("button:has-text('Check the record and sign')")
    await steps.apply("the record follows")


async def make_user(steps: Steps) -> str:
    page = steps.page
    await page.goto("/settings/users/")
    await page.fill("#user-name", USER)
    await page.check("input[name=make]")
    await page.click("#edit ~ form button.primary")
    password = await page.locator("section.card code").inner_text()
    await steps.look("user")
    return password


async def name_who_is_warned(steps: Steps, server: str) -> None:
    page = steps.page
    await page.goto("/settings/kinds/alerts/")
    await page.fill("#alerts-recipients", "on-call@far.example")
    await page.fill("#alerts-smtp", server)
    await page.click("section.card:has(#alerts-recipients) button.primary")
    await steps.apply("who is on call")
    await page.goto("/settings/kinds/alerts/")
    await page.fill("#alerts-destination_dead_s", str(DEAD_S))
    await page.click("section.card:has(#alerts-destination_dead_s) button.primary")
    await steps.apply("we want to know soon")
    await page.goto("/alerts/")
    await page.click("main button:has-text('Send a test to each')")
    await expect(page.locator("#notices")).to_contain_text("250 catcher.example", timeout=PATIENCE_MS)
    await steps.look("alerts")


async def make_webhook(steps: Steps, webhook: Receiver) -> None:
    page = steps.page
    await page.goto("/webhooks/")
    await page.click("main a:has-text('New webhook')")
    await page.fill("[name=name]", "crm")
    await page.fill("[name=url]", webhook.url)
    await page.check("[name=kinds][value=bounced]")
    await page.fill("[name=why]", "the CRM wants to know")
    await page.click("main button:has-text('Make the webhook')")
    await expect(page.locator("#secret")).to_contain_text("whs_", timeout=PATIENCE_MS)
    await page.click("main a:has-text('The webhook')")
    await page.click("main button:has-text('Send a test')")
    await expect(page.locator("#state")).to_contain_text("204 No Content", timeout=PATIENCE_MS)
    await steps.look("webhook")


async def see_it_delivered(steps: Steps, to: str) -> None:
    await steps.page.goto(f"/log/?recipient={to}&status=sent")
    await expect(steps.page.locator("table.log tbody tr")).to_have_count(1, timeout=PATIENCE_MS)
    await steps.look("delivered")


async def try_again(steps: Steps, destination: str) -> None:
    """Tries what waits, on the way from the alert to its destination and from there to the queue."""
    page = steps.page
    await page.goto("/alerts/")
    await page.click("main table a:has-text('takes no mail')")
    await steps.look("alert")
    await page.click("main a:has-text('The page that shows why')")
    await expect(page.locator("h1")).to_contain_text(destination, timeout=PATIENCE_MS)
    await steps.look("destination")
    await page.click("main a:has-text('View queued mail')")
    await expect(page.locator("#rows tr")).to_have_count(1, timeout=PATIENCE_MS)
    await page.check("#rows tr input[type=checkbox]")
    await page.click("#acts button:text-is('Retry now')")
    await give_reason(page, "it is there again")
    await result(page, "1 message")
    await steps.look("queue-retried")


async def work(steps: Steps, one: Machine, hosts: Hosts, place: Path) -> None:
    """The walk, from the first page to the webhook."""
    page, hop = steps.page, hosts.hop
    with steps.step("add a domain and a route"):
        await add_domain_and_route(steps, hop.route)
    with steps.step("hand in a certificate"):
        await hand_in_certificate(steps, place, f"{one.name}.example")
    with steps.step("make a DKIM key and sign with it"):
        await make_key(steps)
    with steps.step("add a user with a password"):
        password = await make_user(steps)
    with steps.step("name who is warned, and send a test"):
        await name_who_is_warned(steps, f"{one.host}:{hosts.alerts.port}")
    with steps.step("make a webhook, and send a test"):
        await make_webhook(steps, hosts.webhook)

    with steps.step("send with swaks over port 587, until it is delivered and in the log"):
        await asyncio.to_thread(send, one, place, password, f"bo@{DOMAIN}", "first")
        await eventually(lambda: hop.caught, "the first message")
        await see_it_delivered(steps, f"bo@{DOMAIN}")
    _, recipients, data = hop.caught[0]
    assert recipients == [f"bo@{DOMAIN}"]
    assert b"DKIM-Signature:" in data
    assert f"d={DOMAIN}".encode() in data

    tests = len(hosts.alerts.caught)
    await hop.__aexit__(None, None, None)
    with steps.step(f"stop the next hop, send, until the mail of the alert (limit {DEAD_S} s) is there"):
        await asyncio.to_thread(send, one, place, password, f"al@{DOMAIN}", "second")
        await eventually(lambda: len(hosts.alerts.caught) > tests, "the mail of the alert", 0.1)
    _, recipients, data = hosts.alerts.caught[-1]
    assert recipients == ["on-call@far.example"]
    assert b"takes no mail" in data
    assert hop.route.encode() in data
    await page.goto("/")
    await expect(page.locator("#needs")).to_contain_text("takes no mail", timeout=PATIENCE_MS)
    await steps.look("overview-alert")

    async with Lab([f"reject(gone@{DOMAIN}, 550):{one.host}:{HOP_PORT}"]) as lab:
        with steps.step("start the next hop, retry from the alert on, until what waited is delivered"):
            await try_again(steps, hop.route)
            await lab.wait_for(1)
            await see_it_delivered(steps, f"al@{DOMAIN}")
        before = len(hosts.webhook.taken)
        with steps.step("send to an address that the next hop refuses, until the webhook has the bounce"):
            await asyncio.to_thread(send, one, place, password, f"gone@{DOMAIN}", "third")
            await eventually(lambda: len(hosts.webhook.taken) > before, "the bounce at the webhook", 0.1)
        (event,) = hosts.webhook.taken[-1].events
        assert (event["kind"], event["recipient"], event["login"]) == ("bounced", f"gone@{DOMAIN}", USER)
        await lab.wait_for(2)  # the bounce, to the sender
        await page.goto("/webhooks/")
        await steps.look("webhooks")
        await page.goto("/")
        await steps.look("overview-end")


async def test_a_bare_debian_works_without_a_shell_after_the_first_command(
    bare: tuple[str, Machine], tmp_path: Path, tell: Callable[[str], None]
) -> None:
    suite, one = bare
    async with async_playwright() as play:
        browser = await play.chromium.launch(**CHROMIUM)
        began = time.monotonic()
        command = f"{APT} update && {APT} install --yes ./waypost.deb && waypost setup"
        said = await asyncio.to_thread(one.ssh, command, 900)
        installed = time.monotonic() - began
        found = re.search(r"^password +(\S+) ", said, re.MULTILINE)
        assert found is not None, said
        assert f"https://{one.address}/" in said, "a browser needs an address before there is a name"
        context = await browser.new_context(
            ignore_https_errors=True, base_url=f"https://{one.address}", viewport={"width": 1440, "height": 900}
        )
        context.set_default_timeout(PATIENCE_MS)
        steps = Steps(await context.new_page(), suite)
        steps.took.append(("the first command: apt update, apt install, waypost setup", installed))
        with steps.step("sign in and set a password"):
            await sign_in(steps, found[1])
        with receiving(one.host) as webhook:
            async with Catcher(host=one.host, port=HOP_PORT) as hop, Catcher(host=one.host, port=ALERTS_PORT) as alerts:
                await work(steps, one, Hosts(hop, alerts, webhook), tmp_path)
        tell(f"{suite}\n{steps.table()}")
        await browser.close()
