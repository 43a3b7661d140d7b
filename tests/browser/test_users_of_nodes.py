"""The portal and the API of a node change the users who log in at all nodes.

Proves law: settings-once (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import cast

import pytest
from playwright.async_api import expect

from tests.browser.api_client import token_of
from tests.browser.chromium import SHARED
from tests.browser.site import RUN, Site, copied, prepared
from tests.end_to_end.appliance import free_port
from tests.end_to_end.test_mail_users import PASSWORD
from tests.eventually import eventually
from tests.nodes.test_users import ANNA, BERT, add, names, submission
from tests.replication.cluster import Cluster
from tests.replication.conftest import own_cluster, template
from tests.running.running_core import RunningCore

__all__ = ["own_cluster", "template"]


@pytest.mark.long
async def test_law_settings_portal_and_api_of_one_node_change_the_users_of_all(
    own_cluster: Cluster, tmp_path: Path
) -> None:
    port = free_port()
    portal = {"portal": {"listen": f"127.0.0.1:{port}"}}
    async with submission(tmp_path, own_cluster, portal) as both:
        made = await asyncio.to_thread(prepared, RUN["directory"])
        await asyncio.to_thread(copied, made / "portal", both.a.home / "portal")
        sessions = json.loads((made / "sessions.json").read_text())
        it = Site(cast(RunningCore, both.a), port, await SHARED.get(), sessions)
        try:
            await it.start()
            api = await token_of(it, "administrator")
            body = {"name": ANNA, "password": PASSWORD, "why": "a new colleague"}
            status, answer = await api.ask("POST", "/mail-users", body)
            assert status == 201, answer
            await both.logs_in(both.b, ANNA)

            page = await it.sign_in("administrator")
            await page.goto(it.url("/settings/users/"))
            await page.get_by_label("Name", exact=True).fill(BERT)
            await page.get_by_label("Password", exact=True).fill(PASSWORD)
            await page.get_by_role("button", name="Add").click()
            await expect(page.locator("main")).to_contain_text(BERT)
            await both.logs_in(both.b, BERT)

            await both.b.does("user", "remove", ANNA, "--yes")
            await eventually(lambda: names(both.a) == [BERT], "the users of b at a")
            status, known = await api.ask("GET", "/mail-users")
            assert (status, [each["name"] for each in known["users"]], known["nodes"]) == (200, [BERT], "")

            file = both.a.home / "users.jsonl"
            file.write_text(file.read_text().splitlines(keepends=True)[0])

            async def is_known() -> bool:
                return "was changed by hand" in (await api.ask("GET", "/mail-users"))[1]["nodes"]

            await eventually(is_known, "the edit in the answer of the API")
            await page.goto(it.url("/settings/users/"))
            await expect(page.get_by_role("alert")).to_contain_text(
                "This node has other users than the others, or may have"
            )
            status, answer = await api.ask("POST", "/mail-users", body)
            assert status == 409, answer
            await add(both.b, ANNA)
            await both.a.does("node", "settings", "--take", "users")
            await both.logs_in(both.a, ANNA)
        finally:
            for context in it.contexts:
                await context.close()
            await it.stop()
    assert not it.complaints, it.complaints
