"""Tasks of an operator, done in Chromium by a script: ``python -m bench.portal_tasks [--rabbitmq URL]``.

The tasks: see what is wrong; find why mail there is late, and why a message is; stop deliveries there; change a limit. Each
begins on the first page after signing in, with the same mishap: a destination that takes nothing, in RabbitMQ a queue without a
consumer. The script counts clicks, keys that are pressed, characters that are typed, scrolling to what is to be clicked, and
takes the time from the first of them until the answer is on the page. ``person_s`` adds what a person needs for them by the
keystroke-level model (Card, Moran and Newell 1980): 1.3 s to point and click, 0.28 s for a key. The time to think is left out.

RabbitMQ is driven only if ``--rabbitmq`` has the address of its management, with the user guest. The script fills a queue.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from base64 import b64encode
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from playwright.async_api import Locator, Page, ViewportSize, expect

from mailcore.lab.lab import Lab
from tests.browser.chromium import SHARED
from tests.browser.site import RUN, Site, site
from tests.running.running_core import Sections

__all__ = ["Walk", "main", "rabbitmq", "waypost"]

POINT_S, KEY_S = 1.3, 0.28
WINDOW = ViewportSize(width=1440, height=900)
WAITING = 20  # messages
QUEUE = "late"
WHY = "their host is away"
DEAD = "smtp:[127.0.0.1]:9"  # the port discard, which is closed
SECTIONS: Sections = {
    "scheduler": {"minimal_backoff_time": 600.0, "maximal_backoff_time": 600.0},
    "queue": {"retry_ladder_s": [600]},
    "transports.smtp": {"initial_destination_concurrency": 1},
}


@dataclass
class Walk:
    """Counts what a person would do."""

    page: Page
    clicks: int = 0
    keys: int = 0
    typed: int = 0  # characters
    scrolls: int = 0
    steps: list[str] = field(default_factory=list)

    async def click(self, what: Locator) -> None:
        """Clicks, after scrolling if it is not in the window."""
        box = await what.bounding_box()
        if box is None or box["y"] < 0 or box["y"] + box["height"] > WINDOW["height"]:
            self.scrolls += 1
        self.clicks += 1
        await what.click()

    async def press(self, key: str) -> None:
        """Presses a key, or several at once, which count as one."""
        self.keys += 1
        await self.page.keyboard.press(key)

    async def type(self, text: str) -> None:
        """Types text where the focus is."""
        self.typed += len(text)
        await self.page.keyboard.type(text)

    def row(self, took_s: float) -> dict[str, float]:
        """Returns the counts, and both times."""
        person_s = took_s + POINT_S * (self.clicks + self.scrolls) + KEY_S * (self.keys + self.typed)
        return {
            "clicks": self.clicks, "scrolls": self.scrolls, "keys": self.keys, "characters": self.typed,
            "page_s": round(took_s, 2), "person_s": round(person_s, 1),
        }  # fmt: skip


Task = Callable[[Walk], Awaitable[None]]


async def timed(page: Page, begin: str, there: str, task: Task) -> dict[str, float]:
    """Does a task from the first page on, which is loaded and at rest."""
    await page.goto(begin)
    if "#" in begin:  # the same document: only its fragment changes
        await page.reload()
    await expect(page.locator(there).first).to_be_visible()
    await page.wait_for_timeout(1_500)
    walk = Walk(page)
    began = time.monotonic()
    await task(walk)
    return walk.row(time.monotonic() - began)


async def waypost(it: Site, queue_id: str) -> dict[str, dict[str, float]]:
    """Does the tasks in Waypost's portal, with the mouse and by the keyboard alone."""
    page = await it.sign_in("operator", viewport=WINDOW)
    needs, why = page.locator("#needs"), page.locator("#dialog input[name=why]")
    reason = "Connection refused"

    async def wrong(walk: Walk) -> None:
        await expect(needs).to_contain_text("takes no mail; queued")

    async def mail_late(walk: Walk) -> None:
        await expect(needs).to_contain_text(reason)

    async def late(walk: Walk) -> None:
        await walk.click(page.locator("#search"))
        await walk.type(queue_id)
        await walk.press("Enter")
        await expect(page.locator("main")).to_contain_text(reason)

    async def late_by_keys(walk: Walk) -> None:
        await walk.press("/")
        await walk.type(queue_id)
        await walk.press("Enter")
        await expect(page.locator("main")).to_contain_text(reason)

    async def stop(walk: Walk) -> None:
        await walk.click(needs.locator("a", has_text="takes no mail"))
        await walk.click(page.locator("button", has_text="Suspend…"))
        await expect(why).to_be_focused()
        await walk.type(WHY)
        await walk.press("Enter")
        await expect(page.locator("#destination .states")).to_contain_text("suspended")

    async def stop_by_keys(walk: Walk) -> None:
        await palette(walk, "suspend :9")
        await expect(page.locator("input[name=why]")).to_be_focused()
        await walk.type(WHY)
        await walk.press("Enter")
        await expect(page.locator("#destination .states")).to_contain_text("suspended")

    async def limit(walk: Walk) -> None:
        await walk.click(needs.locator("a", has_text="takes no mail"))
        await walk.click(page.locator("button", has_text="Override a value…"))
        await expect(page.locator("#dialog input[name=value]")).to_be_focused()
        await walk.type("2")
        await walk.click(why)
        await walk.type(WHY)
        await walk.press("Enter")
        await expect(page.locator("[data-parameter=destination_concurrency_limit] td.num")).to_have_text(
            re.compile(r"\s*2\b")
        )

    async def limit_by_keys(walk: Walk) -> None:
        await palette(walk, "concurrency :9")
        await expect(page.locator("input[name=value]")).to_be_focused()
        await walk.type("3")
        while await page.evaluate("document.activeElement.name") != "why":
            await walk.press("Tab")
        await walk.type(WHY)
        await walk.press("Enter")
        await expect(page.locator("[data-parameter=destination_concurrency_limit] td.num")).to_have_text(
            re.compile(r"\s*3\b")
        )

    async def palette(walk: Walk, text: str) -> None:
        await walk.press("Control+k")
        await expect(page.locator("#palette-typed")).to_be_focused()
        await walk.type(text)
        await walk.press("Enter")

    tasks = {
        "see what is wrong": wrong, "find why mail there is late": mail_late,
        "find why a message is late": late, "find why a message is late, by keys": late_by_keys,
        "change a limit": limit, "change a limit, by keys": limit_by_keys, "stop it": stop, "stop it, by keys": stop_by_keys,
    }  # fmt: skip
    rows = {}
    for name, task in tasks.items():
        rows[name] = await timed(page, it.url("/"), "#needs", task)
        if task in (stop, stop_by_keys):
            await it.core.ask("resume", "a measurement", destination=DEAD)
    return rows


async def rabbitmq(base: str) -> dict[str, dict[str, float]]:
    """Does the tasks in RabbitMQ's management, as far as it has them, with a queue that is filled first."""
    await asyncio.to_thread(fill, base)
    context = await (await SHARED.get()).new_context(viewport=WINDOW)
    page = await context.new_page()
    page.on("dialog", lambda dialog: asyncio.ensure_future(dialog.accept()))
    await page.goto(base)
    await page.fill("input[name=username]", "guest")
    await page.fill("input[name=password]", "guest")
    await page.click("input[type=submit]")
    tab, name = page.locator("#tabs a", has_text="Queues"), page.locator("td a", has_text=QUEUE)

    async def wrong(walk: Walk) -> None:
        await walk.click(tab)
        await walk.click(page.locator("th a.sort", has_text="Ready"))
        await walk.click(page.locator("th a.sort", has_text="Ready"))
        await expect(page.locator("table.list tbody tr").first).to_contain_text(QUEUE)

    async def late(walk: Walk) -> None:  # a message cannot be looked for: the cause is seen at its queue
        await walk.click(tab)
        await walk.click(name)
        await walk.click(page.locator("h2", has_text="Consumers"))
        await expect(page.locator("#main")).to_contain_text("no consumers")

    async def stop(walk: Walk) -> None:  # a queue cannot be paused: what waits is removed for good
        await walk.click(tab)
        await walk.click(name)
        await walk.click(page.locator("h2", has_text="Purge"))
        await walk.click(page.locator("input[value='Purge Messages']"))
        walk.clicks += 1  # the question of the browser, which the script accepts
        await expect(page.locator("body")).to_contain_text("Queue purged")

    async def limit(walk: Walk) -> None:
        await walk.click(page.locator("#tabs a", has_text="Admin"))
        await walk.click(page.locator("#rhs a", has_text="Policies"))
        form = page.locator("form[action='#/policies']")
        if not await form.locator("input[name=name]").is_visible():
            await walk.click(page.locator("h2", has_text="Add / update a policy"))
        await walk.click(form.locator("input[name=name]"))
        await walk.type("short")
        await walk.click(form.locator("input[name=pattern]"))
        await walk.type(f"^{QUEUE}$")
        await walk.click(form.locator("[field=definition][key=max-length]").first)
        await walk.click(form.locator("input[name=definition_1_mfvalue]"))
        await walk.type("1000")
        await walk.click(form.locator("input[type=submit]"))
        await expect(page.locator("table.list").first).to_contain_text("max-length")

    tasks = {"see what is wrong": wrong, "find why mail there is late": late, "change a limit": limit, "stop it": stop}
    rows = {}
    for words, task in tasks.items():
        try:
            rows[words] = await timed(page, f"{base}/#/", "#tabs", task)
        except Exception:
            await page.screenshot(path=str(Path(tempfile.gettempdir()) / "rabbitmq-tasks.png"))
            raise
    await context.close()
    return rows


def fill(base: str) -> None:
    """Makes some queues, and messages in one of them that no consumer takes."""
    for queue in ("orders", "invoices", QUEUE, "letters", "images"):
        ask(base, "PUT", f"/api/queues/%2F/{queue}", {"durable": True})
    message = {"properties": {}, "routing_key": QUEUE, "payload": "x" * 2_000, "payload_encoding": "string"}
    for _ in range(WAITING):
        ask(base, "POST", "/api/exchanges/%2F/amq.default/publish", message)


def ask(base: str, method: str, path: str, body: object) -> None:
    """Asks the management's HTTP API. Raises OSError."""
    headers = {"Authorization": "Basic " + b64encode(b"guest:guest").decode(), "Content-Type": "application/json"}
    data = json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(base + path, data, headers, method=method), timeout=10):
        pass


async def _all(directory: Path, rabbitmq_url: str) -> dict[str, dict[str, dict[str, float]]]:
    RUN["directory"] = directory
    try:
        async with (
            Lab(["accept:127.0.0.1:0"]) as lab,
            site(directory, lab, SECTIONS, routes={"late.example": DEAD}) as it,
        ):
            queue_ids = [await it.core.send(f"r{number}@late.example") for number in range(WAITING)]
            for queue_id in queue_ids:
                await it.core.until_in(queue_id, "retry.")
            rows = {"Waypost": await waypost(it, queue_ids[-1])}
        if rabbitmq_url:
            rows["RabbitMQ"] = await rabbitmq(rabbitmq_url.rstrip("/"))
    finally:
        await SHARED.close()
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the tasks, and prints what was counted as JSON."""
    parser = argparse.ArgumentParser(prog="bench.portal_tasks", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--rabbitmq", default="", metavar="URL", help="of its management, such as http://127.0.0.1:15672"
    )
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="tasks-", dir="/var/tmp") as directory:
        rows = asyncio.run(_all(Path(directory), given.rabbitmq))
    json.dump(rows, sys.stdout, indent=1)
    print()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
