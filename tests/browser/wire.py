"""What a page costs over the wire in a browser that has nothing in its cache: bytes of all answers, headers included; and when
it is usable."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from playwright.async_api import Page, expect

from tests.browser.site import SESSION, Site

__all__ = ["FIRST_LOAD_BYTES", "USABLE", "FirstLoad", "Wire", "first_load", "measured"]

FIRST_LOAD_BYTES = 100_000
# What must be there before a page counts as usable: figures, rows, and the script that acts on them.
USABLE = {
    "/": """window.htmx && document.querySelector("#lines canvas")
        && document.querySelector("#core-status").dataset.state === "running"
        && /\\d/.test(document.querySelector("#lanes tfoot .messages").textContent)""",
    "/queue/": """window.htmx && document.querySelectorAll("#rows tr").length === 100
        && document.querySelector("#chosen").textContent === "0" && !document.querySelector("#reading[data-going]")
        && /\\d/.test(document.querySelector(".total .live-count").textContent)""",
}


class FirstLoad(NamedTuple):
    """``table``: a line for each answer; ``usable_s``: since the address was asked for."""

    bytes: int
    table: str
    usable_s: float


class Wire:
    """Counts the bytes of each answer as they were sent, compressed. Of a stream, which does not end, what has come so far."""

    def __init__(self) -> None:
        self._answers: dict[str, tuple[str, int]] = {}  # of a request: address and bytes

    @property
    def total(self) -> int:
        return sum(count for _, count in self._answers.values())

    def table(self) -> str:
        """A line for each answer, the largest first."""
        rows = sorted(self._answers.values(), key=lambda row: -row[1])
        return "\n".join(f"{count:8d}  {url}" for url, count in rows)

    def answered(self, event: dict[str, Any]) -> None:
        answer = event["response"]
        if not answer["url"].startswith("data:") and not answer.get("fromDiskCache"):
            self._answers[event["requestId"]] = (answer["url"], int(answer["encodedDataLength"]))

    def arrived(self, event: dict[str, Any]) -> None:
        if event["requestId"] in self._answers:
            url, count = self._answers[event["requestId"]]
            # A stream is not compressed, and the browser counts only its data.
            self._answers[event["requestId"]] = (url, count + int(event["encodedDataLength"] or event["dataLength"]))

    def ended(self, event: dict[str, Any]) -> None:
        if event["requestId"] in self._answers:
            url, _ = self._answers[event["requestId"]]
            self._answers[event["requestId"]] = (url, int(event["encodedDataLength"]))


@asynccontextmanager
async def measured(page: Page) -> AsyncIterator[Wire]:
    """Measures what comes for this page."""
    wire = Wire()
    session = await page.context.new_cdp_session(page)
    session.on("Network.responseReceived", wire.answered)
    session.on("Network.dataReceived", wire.arrived)
    session.on("Network.loadingFinished", wire.ended)
    await session.send("Network.enable")
    try:
        yield wire
    finally:
        await session.detach()


async def first_load(it: Site, path: str) -> FirstLoad:
    """Opens a page of USABLE as an operator in a browser without a cache."""
    page = await it.page()
    await page.context.add_cookies([{"name": SESSION, "value": it.sessions["operator"], "url": it.url("/")}])
    async with measured(page) as wire:
        await page.goto(it.url(path), wait_until="commit")
        usable = await page.wait_for_function(f"() => ({USABLE[path]}) ? performance.now() : 0", polling="raf")
        usable_s = float(await usable.json_value()) / 1000
        await page.wait_for_load_state("load")
        await expect(page.locator("#core-status")).to_have_text("core: running")
    await page.close()
    return FirstLoad(wire.total, wire.table(), usable_s)
