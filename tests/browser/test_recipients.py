"""Changes of some recipients of a message in a browser: who is counted, what pages say of each, what an undo brings back."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import expect

from mailcore.lab.lab import Lab
from tests.browser.queue_steps import PATIENCE_MS, SLOW, change_all, close, give_reason, open_queue, result
from tests.browser.site import site
from tests.running.running_core import recipients_of

X, Y, Z = "x@one.example", "y@two.example", "z@two.example"


@pytest.mark.long
async def test_some_recipients_are_held_deleted_shown_and_brought_back(tmp_path: Path) -> None:
    async with Lab(["reject(1, 450):127.0.0.1:0"]) as lab, site(tmp_path, lab, SLOW) as it:
        queue_id = await it.core.send(X, Y, Z)
        await it.core.until_in(queue_id, "retry.")
        page = await it.sign_in("operator", viewport={"width": 1440, "height": 900})

        async def change(words: str, recipient: str, counted: str, done: str) -> None:
            await open_queue(it, page, f"?recipient={recipient}")
            await change_all(page, words)
            dialog = page.locator("#dialog")
            await expect(dialog).to_contain_text(counted)
            await expect(dialog).to_contain_text("Only the recipients that match are changed")
            await give_reason(page, f"asked for by {recipient}")
            await result(page, done)
            await close(page)
            await it.core.until_in(queue_id, "retry.")

        await change("Hold", X, "1 message, 1 recipient, counted", "1 message (1 recipient) held")
        await change("Delete", Y, "1 message, 1 recipient, counted", "1 message (1 recipient) deleted")
        await change("Delete", "*@two.example", "1 message, 1 recipient, counted", "1 message (1 recipient) deleted")

        await open_queue(it, page)
        state = page.locator("#rows tr", has_text=queue_id).locator("td:has(.badge)")
        await expect(state.locator(".badge")).to_have_text(["held", "2 deleted"])
        await page.goto(it.url(f"/queue/{queue_id}/"))
        rows = page.locator("#recipients tr")
        await expect(rows.nth(0)).to_contain_text("held since")
        await expect(rows.nth(0)).to_contain_text(f"– asked for by {X} (change")
        await expect(rows.nth(1)).to_contain_text("can be undeleted until")
        await expect(rows.nth(1)).to_contain_text(f"– asked for by {Y} (change")
        await expect(rows.nth(2)).to_contain_text("– asked for by *@two.example (change")
        await expect(page.locator("#waiting li[data-state=held]")).to_contain_text("1 recipient")
        await expect(page.locator("#waiting li[data-state=deleted]")).to_have_count(2)

        # The undo of the second deletion leaves the first one alone, and the hold. From now on the next hop accepts: an attempt
        # that the undo itself begins is then not deferred for ten minutes, and no retry comes while it is under way.
        await lab.hops[0].set_behaviour("accept")
        await page.goto(it.url("/queue/changes/"))
        await page.locator("tbody tr", has_text="*@two.example").first.locator("a").click()
        await page.click("form.undo button[type=submit]")
        await expect(page.locator("#change .notice")).to_contain_text(
            "1 message (1 recipient) undeleted", timeout=PATIENCE_MS
        )
        await expect(page.locator("#change .notice")).not_to_contain_text("not found")
        await it.core.ask("change_matching", change="retry", filter={"recipient": "*"})
        await lab.wait_for(1)

        async def delivered() -> bool:  # its verdict is recorded, and the others rest again
            item = await it.core.item(queue_id)
            return item is not None and Z not in item["recipients"]

        await it.core.eventually(delivered, "the delivery to Z")
        await page.goto(it.url(f"/queue/{queue_id}/"))
        await expect(rows.nth(0)).to_contain_text("held since")
        await expect(rows.nth(1)).to_contain_text("can be undeleted until")
        await expect(rows.nth(2)).to_contain_text("delivered", timeout=PATIENCE_MS)
        assert recipients_of(lab.messages) == [Z]
