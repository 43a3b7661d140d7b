"""The portal of a node with another one beside it, in the browser: the mail of both, and what is unknown without one."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import cast

import pytest
from playwright.async_api import expect

from tests.browser.chromium import SHARED
from tests.browser.fitting import misfits
from tests.browser.site import RUN, Site, copied, prepared
from tests.end_to_end.appliance import free_port
from tests.eventually import PATIENCE_MS
from tests.nodes.joined import joined
from tests.peers.test_one_place import WAITING, A, B, ids_of, listed, sees
from tests.replication.cluster import Cluster
from tests.replication.conftest import own_cluster, template
from tests.running.running_core import RunningCore
from tests.shares.counting_sink import CountingSink

__all__ = ["own_cluster", "template"]


@pytest.mark.long
async def test_a_portal_shows_the_mail_of_both_nodes_and_names_one_that_is_gone(
    own_cluster: Cluster, tmp_path: Path
) -> None:
    sink, port = CountingSink(), free_port()
    sink.port = free_port()
    portal: dict[str, dict[str, object]] = {"portal": {"listen": f"127.0.0.1:{port}"}}
    async with joined(tmp_path, own_cluster, sink, "ab", WAITING | portal) as nodes:
        a, b = nodes.nodes["a"], nodes.nodes["b"]
        await nodes.accept("a", A)
        await nodes.accept("b", B)
        await sees(a, A + B)
        made = await asyncio.to_thread(prepared, RUN["directory"])
        await asyncio.to_thread(copied, made / "portal", a.home / "portal")
        it = Site(cast(RunningCore, a), port, await SHARED.get(), json.loads((made / "sessions.json").read_text()))
        try:
            await it.start()
            page = await it.sign_in("administrator")
            rows = page.locator("#shards tbody tr")
            await expect(rows).to_have_count(2, timeout=PATIENCE_MS)
            await expect(rows.nth(0)).to_contain_text("this node", timeout=PATIENCE_MS)
            await expect(rows.nth(1)).to_contain_text("answers")
            await expect(page.locator("#rates .messages .figure")).to_have_text(f"{A + B}", timeout=PATIENCE_MS)
            for width in (1440, 360):
                await page.set_viewport_size({"width": width, "height": 900})
                assert await misfits(page) == [], width
            await page.set_viewport_size({"width": 1440, "height": 900})

            await page.goto(it.url("/queue/"))
            (of_b, *_) = ids_of(await listed(a), "b@")
            link = page.locator("tbody a[href^='/queue/']").filter(has_text=of_b)
            await expect(link).to_be_visible(timeout=PATIENCE_MS)
            await expect(page.locator("tbody a[href^='/queue/']")).to_have_count(A + B)
            await link.click()
            await expect(page.locator("main")).to_contain_text("b@sender.example", timeout=PATIENCE_MS)

            b.kill_all()
            await page.goto(it.url("/"))
            await expect(rows.nth(1)).to_contain_text("unknown", timeout=PATIENCE_MS)
            await expect(rows.nth(1)).to_contain_text("–")
            await expect(page.locator("#stale")).to_contain_text("The numbers are incomplete", timeout=PATIENCE_MS)
            await expect(page.locator("#rates .messages .figure")).to_have_text(f"≥ {A}", timeout=PATIENCE_MS)
            await page.goto(it.url("/queue/"))
            await expect(page.locator("#queue-total")).to_have_text(f"at least {A}", timeout=PATIENCE_MS)
            await expect(page.locator("#reading .warn")).to_contain_text("shard 2 at b", timeout=PATIENCE_MS)
            await b.start()
            await page.goto(it.url("/"))
            await expect(rows.nth(1)).to_contain_text("answers", timeout=PATIENCE_MS)
            await expect(page.locator("#rates .messages .figure")).to_have_text(f"{A + B}", timeout=PATIENCE_MS)
        finally:
            for context in it.contexts:
                await context.close()
            await it.stop()
    assert not it.complaints, it.complaints
