"""What the browser tests of the queue do again and again: messages that rest, and the steps of a change."""

from __future__ import annotations

from playwright.async_api import Error, Page, expect

from tests.browser.site import Site
from tests.eventually import PATIENCE_MS
from tests.running.running_core import Sections

__all__ = [
    "PATIENCE_MS",
    "SLOW",
    "change_all",
    "close",
    "give_reason",
    "open_queue",
    "result",
    "select",
    "send_deferred",
]

SLOW: Sections = {
    "queue": {"retry_ladder_s": [600]},
    "scheduler": {"minimal_backoff_time": 600, "maximal_backoff_time": 600},
}


async def send_deferred(it: Site, count: int, sender: str, domain: str = "example.org") -> list[str]:
    """Messages that were tried once, and wait for ten minutes."""
    queue_ids = [await it.core.send(f"r{number}@{domain}", sender=sender) for number in range(count)]
    for queue_id in queue_ids:
        await it.core.until_in(queue_id, "retry.")
    return queue_ids


async def open_queue(it: Site, page: Page, query: str = "") -> None:
    await page.goto(it.url(f"/queue/{query}"))
    await expect(page.locator("#reading.reading:not([data-going])")).to_be_visible(timeout=PATIENCE_MS)


async def select(page: Page, *queue_ids: str) -> None:
    for queue_id in queue_ids:
        await page.locator("#rows tr", has_text=queue_id).locator("input[type=checkbox]").check()


async def give_reason(page: Page, why: str = "asked for by its sender", **fields: str) -> None:
    """In the dialog that is open."""
    for name, value in {**fields, "why": why}.items():
        try:
            await page.fill(f"#dialog input[name={name}]", value)
        except Error as error:
            raise AssertionError(f"{error}\nthe dialog is: {await page.locator('#dialog').inner_html()}") from error
    await page.click("#dialog form button[type=submit]")


async def change_all(page: Page, words: str) -> None:
    """Counts all that match, up to the form for the reason."""
    await page.check("#all-matching")
    await page.click(f"#acts button:text-is('{words}')")
    await expect(page.locator("#dialog #matched, #dialog #change button[data-close]").first).to_be_visible(
        timeout=PATIENCE_MS
    )


async def result(page: Page, words: str) -> None:
    try:
        await expect(page.locator("#dialog .notice")).to_contain_text(words, timeout=PATIENCE_MS)
    except AssertionError as error:
        raise AssertionError(f"the dialog says: {await page.locator('#dialog').inner_html()}") from error


async def close(page: Page) -> None:
    """And has the queue read again, when something was changed."""
    button = page.locator("#dialog #change > .actions button[data-close]")
    if await page.locator("#dialog #change[data-changed]").count():
        async with page.expect_navigation():
            await button.click()
    else:
        await button.click()
    await expect(page.locator("#dialog")).not_to_be_visible()
