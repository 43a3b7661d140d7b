"""The queue as a table of lines and as cards: a message is one line, what is cut is shown whole, and what sorts it says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, ViewportSize, expect

from mailcore.lab.lab import Lab
from tests.browser.queue_steps import SLOW, open_queue
from tests.browser.site import Site, site
from tests.running.running_core import route_to

LINE_PX = 32  # a line of text, its padding and border; two lines are 45
WIDE: ViewportSize = {"width": 1440, "height": 1000}
NARROW: ViewportSize = {"width": 360, "height": 800}
LONG = "newsletter-of-the-month-of-november-for-subscribers-of-region-"
WHY = "the remote site asked us to wait " + "and to wait a little longer " * 12 + "until its postmaster is back"
# The texts of a cell that cannot be seen whole: cut, or under something else.
UNSEEN = """cell => {
  const unseen = [];
  const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode;
    if (!node.data.trim() || node.parentElement.closest(".shut")) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const boxes = [...range.getClientRects()].filter(box => box.width > 1);
    const seen = box => cell.contains(document.elementFromPoint(box.right - 1, (box.top + box.bottom) / 2));
    if (!boxes.length || !boxes.every(seen)) unseen.push(node.data.trim());
  }
  return unseen;
}"""

# The same of each of these cells, when it has been scrolled to.
SCROLLED = f"""cells => cells.flatMap(cell => {{
  cell.scrollIntoView({{block: "nearest", behavior: "instant"}});
  return ({UNSEEN})(cell);
}})"""


@pytest.mark.long
async def test_a_message_is_a_line_or_a_card_and_nothing_of_it_stays_hidden(tmp_path: Path) -> None:
    async with (
        Lab(["reject(1, 450):127.0.0.1:0", "reject(1, 450):127.0.0.1:0"]) as lab,
        site(tmp_path, lab, SLOW, routes={"other.example": route_to(lab, 1)}) as it,
    ):
        queue_ids = await sample_messages(it)
        page = await it.sign_in("operator", viewport=WIDE)
        await open_queue(it, page)
        await expect(page.locator("#rows tr")).to_have_count(len(queue_ids))
        heights = await page.locator("#rows tr").evaluate_all("rows => rows.map(row => row.offsetHeight)")
        assert max(heights) <= LINE_PX, heights
        assert await fits(page)
        cut = [await unseen(page, queue_id) for queue_id in queue_ids]
        assert all(any(LONG in text for text in each) for each in cut[:2]), "the addresses are too short for this test"
        assert any(WHY in text for text in cut[2])

        # What the pointer is on is shown whole, and what has the keyboard's focus, in every row, the last one, too.
        for queue_id in queue_ids:
            for cell in await page.locator("#rows tr", has_text=queue_id).locator("td").all():
                await cell.hover()
                assert await cell.evaluate(UNSEEN) == []
        await page.keyboard.press("Escape")  # takes it away, to see the rows below
        assert await cell.evaluate(UNSEEN) != []
        await page.mouse.move(0, 0)
        for queue_id in await order(page):
            await page.keyboard.press("j")
            assert await unseen(page, queue_id) == []
        await page.keyboard.press("Escape")
        assert await unseen(page, queue_id) != []
        await page.keyboard.press("Tab")  # from the last row to what follows it
        assert max(await page.locator("#rows tr").evaluate_all("rows => rows.map(row => row.offsetHeight)")) <= LINE_PX

        # A card has the values of the line, and each of them with its name.
        words = await page.locator("#rows tr").evaluate_all(WORDS)
        await page.set_viewport_size(NARROW)
        assert await page.locator("#rows tr").evaluate_all(WORDS) == words
        assert await fits(page)
        for row in await page.locator("#rows tr").all():
            assert await row.locator("td").evaluate_all(SCROLLED) == []
        labels = (
            await page.locator("#rows tr")
            .first.locator("td:not(.pick, .id)")
            .evaluate_all("cells => cells.map(cell => cell.dataset.label)")
        )
        headings = await page.locator("table.queue thead button").all_inner_texts()
        assert labels == headings[1:]

        await page.goto(it.url(f"/queue/search/?q={LONG}*&in=sender"))
        await expect(page.locator("#rows-sender tr")).to_have_count(2)
        assert await fits(page)
        await page.set_viewport_size(WIDE)
        assert (
            max(await page.locator("#rows-sender tr").evaluate_all("rows => rows.map(row => row.offsetHeight)"))
            <= LINE_PX
        )


WORDS = "rows => rows.map(row => [...row.cells].map(cell => cell.textContent.replace(/[0-9]+ (s|min|h)/g, 'x').trim()))"


async def sample_messages(it: Site) -> list[str]:
    """Addresses that differ at their end only; a long reason; many recipients, some held; several destinations; a bounce."""
    queue_ids = [
        await it.core.send(f"{LONG}{end}@example.org", sender=f"{LONG}{end}@sender.example")
        for end in ("north", "south")
    ]
    queue_ids.append(await it.core.send("b@example.org"))
    queue_ids.append(await it.core.send(*(f"recipient-number-{number}@example.org" for number in range(30))))
    queue_ids.append(await it.core.send("a@example.org", "c@other.example", sender=""))
    for queue_id in queue_ids:
        await it.core.until_in(queue_id, "retry.")
    await it.core.order("hold", queue_ids[2], why=WHY)
    await it.core.ask("change_matching", "a test", change="hold", filter={"recipient": "recipient-number-1?@*"})
    for queue_id in queue_ids:
        await it.core.until_in(queue_id, "hold" if queue_id == queue_ids[2] else "retry.")
    return queue_ids


async def unseen(page: Page, queue_id: str) -> list[str]:
    cells = page.locator("#rows tr", has_text=queue_id).locator("td")
    return list(await cells.evaluate_all(f"cells => cells.flatMap({UNSEEN})"))


async def fits(page: Page) -> bool:
    """Whether the page is as wide as its window."""
    return bool(await page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


async def order(page: Page) -> list[str]:
    return [text.strip() for text in await page.locator("#rows td.id").all_inner_texts()]


@pytest.mark.long
async def test_headings_sort_the_page_and_say_that_they_sort_only_the_page(tmp_path: Path) -> None:
    async with Lab(["reject(1, 450):127.0.0.1:0"]) as lab, site(tmp_path, lab, SLOW) as it:
        senders = ("berta@x.example", "Anton@x.example", "", "dora@x.example")
        sent = [
            await it.core.send("r@example.org", sender=sender, data=b"x: y\r\n\r\n" + b"x" * 1000 * number + b"\r\n")
            for number, sender in zip((2, 1, 4, 3), senders, strict=True)
        ]
        for queue_id in sent:
            await it.core.until_in(queue_id, "retry.")
        await it.core.order("hold", sent[0])
        await it.core.until_in(sent[0], "hold")
        page = await it.sign_in("viewer", viewport=WIDE)
        await open_queue(it, page)
        own = await order(page)
        line = page.locator("#order")
        await expect(line).to_contain_text("Order of the queue")
        b, a, none, d = sent

        async def sorts(heading: str, words: str, wanted: list[str]) -> None:
            await page.get_by_role("button", name=heading, exact=True).click()
            await expect(line).to_contain_text(words)
            assert await order(page) == wanted

        await sorts(
            "Sender", "Sorted by sender, A to Z, those without one last. These are all messages", [a, b, d, none]
        )
        await expect(page.locator("th[aria-sort=ascending]")).to_have_text("Sender")
        await sorts("Sender", "Z to A", [d, b, a, none])
        await sorts("Size", "Sorted by size, largest first", [none, d, b, a])
        await expect(page.locator("th[aria-sort]:not([aria-sort=none])")).to_have_text("Size")
        await sorts("Age", "oldest first", sent)
        await page.get_by_role("button", name="Age", exact=True).click()
        assert await order(page) == sent[::-1]
        await sorts("Next attempt", "soonest first, those without one last", [*sort_of_due(own, b), b])
        await page.click("[data-unsort]")
        assert await order(page) == own
        await expect(page.locator("th[aria-sort]:not([aria-sort=none])")).to_have_count(0)
        await expect(page.locator("thead button", has_text="Next attempt")).to_be_focused()

        # A page of several sorts its own messages, and says so.
        await page.route("**/queue/", whole_no_more)
        await open_queue(it, page)
        await page.get_by_role("button", name="Size", exact=True).click()
        await expect(line).to_contain_text("Only the 4 messages on this page are sorted, not the queue.")


def sort_of_due(own: list[str], held: str) -> list[str]:
    """The order of the lane is that of the next attempts."""
    return [queue_id for queue_id in own if queue_id != held]


async def whole_no_more(route: Any) -> None:
    """The page as it is if there is a further one."""
    answer = await route.fetch()
    await route.fulfill(response=answer, body=(await answer.text()).replace(" data-whole", ""))
