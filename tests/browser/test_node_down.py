"""Every page of the portal of a node while another node is down: it is there, it fits, and it names what it does not know.

The pages are those of pages.py; each that lists something has its line in SAYS or in OF_ONE_NODE: a new one is not forgotten.

Proves law: silent-is-unknown (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import date
from pathlib import Path
from typing import cast

import pytest
from playwright.async_api import Page, expect

from appliance.reports.report_store import Period
from tests.appliance.reports.made import make_report
from tests.browser.api_client import token_of
from tests.browser.chromium import SHARED
from tests.browser.fitting import misfits
from tests.browser.pages import Places, covered, listing, plain, rows_of, sign_in_with_code, wanted
from tests.browser.site import PASSWORD, RUN, Site, copied, prepared
from tests.browser.test_api import counted
from tests.end_to_end.appliance import free_port
from tests.eventually import PATIENCE_MS, eventually
from tests.nodes.joined import joined
from tests.peers.test_one_place import WAITING, ids_of, listed, sees
from tests.replication.cluster import Cluster
from tests.replication.conftest import own_cluster, template
from tests.running.running_core import RunningCore
from tests.shares.counting_sink import CountingSink

__all__ = ["own_cluster", "template"]

SHOTS = os.environ.get("WAYPOST_SHOTS", "")
SIZES = {"a": 3, "b": 4, "c": 5}  # messages
THERE = SIZES["a"] + SIZES["b"]
SILENT = "shard 3 at c does not answer"
OF_C = "node c does not answer"
BROKEN = ("Traceback", "Portal error", "undefined", "NaN", "None.", f"{OF_C}: {OF_C}", f"{OF_C}: .")
WHY = "a test"
WIDTHS = (1440, 360)
INCOMPLETE = f"The numbers are incomplete: {SILENT}, and nothing of it is counted: {OF_C}"
# What pages say that show mail, numbers, values or nodes.
SAYS: dict[str, tuple[str, ...]] = {
    "/": (
        INCOMPLETE,
        f"≥ {THERE}",
        "c c unknown",
        "Active messages ≥ 0 Deliveries in progress ≥ 0",
        "Messages Deliveries a this node a answers 3 0 b b answers 4 0",
    ),
    "/?at=1795219200": (INCOMPLETE,),
    "/queue/": (f"at least {THERE} messages", f"{SILENT}, and its mail is not in this list", f"{THERE} messages"),
    "/queue/?lane=hold": (SILENT, "No message is held in the shards that answer"),
    "/queue/?lane=deleted": (SILENT, "No deleted message can be restored in the shards that answer"),
    "/queue/?sender=not-there@*": (SILENT, "No message matches in the shards that answer"),
    "/queue/search/?q=from@example.net&in=sender": (
        f"{SILENT}, and its mail is not searched",
        "0 found; search incomplete",
    ),
    "/queue/search/?q=not-there": (f"{SILENT}, and its mail is not searched", "0 found; search incomplete"),
    "/queue/ages/": (f"{SILENT}, and its mail is not counted",),
    "/destinations/smtp:not-there.example/": (SILENT, "The shards that answer do not know it"),
    "/destinations/": (f"The list is incomplete: {SILENT}, and its mail is not counted",),
    "/tuning/": (INCOMPLETE,),
    "/positions/": (f"{SILENT}, and its lanes are not shown",),
    "/nodes/": ("c silent", "its owner is silent"),
    "/log/": ("These lines are of node a.",),
}
# They show what is of this node, or of its database.
OF_ONE_NODE = frozenset(
    (
        "/alerts/", "/audit/", "/queue/changes/", "/reports/", "/reports/schedules/", "/routes/", "/settings/",
        "/settings/certificates/", "/settings/dkim/", "/settings/history/", "/settings/maps/", "/settings/users/",
        "/tuning/history/", "/webhooks/",
    )
)  # fmt: skip


class Down:
    """The portal of the node a, while c is down."""

    def __init__(self, it: Site, places: Places) -> None:
        self.it = it
        self.places = places
        self.found: list[str] = []

    async def visit(self, page: Page, path: str, width: int) -> None:
        """Opens a page, and takes note of what is wrong with it."""
        answer = await page.goto(self.it.url(path))
        assert answer is not None
        is_of_c = f"/queue/{self.places.queue_id}/" in path
        if answer.status >= 500 and not (is_of_c and answer.status == 503):
            self.found.append(f"{path}: {answer.status}")
        await self.look(page, path, width, SAYS.get(path, (OF_C,) if is_of_c and "?at=" not in path else ()))

    async def look(self, page: Page, path: str, width: int, wants: Sequence[str] = ()) -> None:
        """Takes note of what is wrong with the page that is open."""
        lacks: list[str] = []

        async def says_all() -> bool:
            words = await words_of(page)
            lacks[:] = [each for each in wants if each not in words]
            return not lacks

        try:
            await eventually(says_all, look_every_s=0.1)
        except AssertionError:
            self.found.append(f"{path} at {width} lacks {lacks}; it says: {await words_of(page)}")
        words = await words_of(page)
        self.found += [f"{path} at {width} says {each!r}" for each in BROKEN if each in words]
        self.found += [f"{path} at {width}: {each}" for each in await misfits(page)]
        wide, window = await page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        if wide > window:
            self.found.append(f"{path}: {wide} px wide in a window of {window} px")
        if SHOTS:
            name = path.strip("/").replace("/", "_").replace("?", "+")[:60] or "overview"
            await page.screenshot(path=Path(SHOTS) / f"{width}-{name}.png", full_page=True)
            (Path(SHOTS) / f"{width}-{name}.txt").write_text(f"{path}\n{words}\n")

    async def sign_in_with_code(self) -> Page:
        """Returns a page of the user who needs a code at sign-in, with a look at the page that asks for it."""
        page = await self.it.page()
        await page.goto(self.it.url("/accounts/login/"))
        await page.fill("input[name=login]", "coded")
        await page.fill("input[name=password]", PASSWORD)
        await page.click("main button[type=submit]")
        await page.wait_for_url("**/two-factor/code/**")
        for width in WIDTHS:
            await page.set_viewport_size({"width": width, "height": 900})
            await self.look(page, "the code", width)
        await sign_in_with_code(self.it, page)
        return page


async def words_of(page: Page) -> str:
    """The words of a page as a reader sees them, in one line."""
    words: str = await page.locator("body").inner_text()
    return " ".join(words.split())


@asynccontextmanager
async def down(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Down]:
    """Three nodes with mail; all processes of c are killed."""
    sink, port = CountingSink(), free_port()
    sink.port = free_port()
    portal: dict[str, dict[str, object]] = {"portal": {"listen": f"127.0.0.1:{port}"}, "export": {"enabled": True}}
    async with joined(tmp_path, cluster, sink, "abc", WAITING | portal) as nodes:
        a, c = nodes.nodes["a"], nodes.nodes["c"]
        for name, count in SIZES.items():
            await nodes.accept(name, count)
        await sees(a, sum(SIZES.values()), 3)
        (of_c, *_) = ids_of(await listed(a), "c@")
        made = await asyncio.to_thread(prepared, RUN["directory"])
        await asyncio.to_thread(copied, made / "portal", a.home / "portal")
        await asyncio.to_thread(make_report, a.home / "reports", Period.DAY, date(2026, 11, 18))
        rows = await asyncio.to_thread(rows_of, a.config)
        it = Site(cast(RunningCore, a), port, await SHARED.get(), json.loads((made / "sessions.json").read_text()))
        try:
            await it.start(reworded=False)
            c.kill_all()
            yield Down(it, Places(of_c, f"smtp:[127.0.0.1]:{sink.port}", **rows))
        finally:
            for context in it.contexts:
                await context.close()
            await it.stop()
    assert not it.complaints, it.complaints


def paths_of(places: Places, role: str) -> list[str]:
    """The pages of a role, with the names of these nodes."""
    named = {"/nodes/shards/north/move/": "/nodes/shards/c/move/", "/nodes/mx1/drain/": "/nodes/c/drain/",
             "/nodes/mx1/resume/": "/nodes/c/resume/"}  # fmt: skip
    return [named.get(path, path) for path in places.paths(role)]


def test_every_page_has_its_line() -> None:
    assert wanted() - covered() == set(), "a new page: add it to tests/browser/pages.py"
    own = {path for path in listing() if not path.startswith("/admin/")}
    assert own - SAYS.keys() == OF_ONE_NODE, "a new page: say here what it shows while a node is down"


@pytest.mark.long
@pytest.mark.timeout(1200)
async def test_every_page_names_what_is_unknown_while_a_node_is_down(own_cluster: Cluster, tmp_path: Path) -> None:
    async with down(own_cluster, tmp_path) as it:
        page = await it.it.sign_in("administrator")
        await expect(page.locator("#shards tbody tr").nth(2)).to_contain_text("unknown", timeout=PATIENCE_MS)
        viewer, stranger = await it.it.sign_in("viewer"), await it.it.page()
        coded = await it.sign_in_with_code()
        for width in WIDTHS:
            for each in (page, viewer, stranger, coded):
                await each.set_viewport_size({"width": width, "height": 900})
            for path in [*plain(), *paths_of(it.places, "administrator")]:
                await it.visit(page, path, width)
            for path in paths_of(it.places, "viewer"):
                await it.visit(viewer, path, width)
            for path in paths_of(it.places, ""):
                await it.visit(stranger, path, width)
            for path in paths_of(it.places, "coded"):
                await it.visit(coded, path, width)
        assert not it.found, "\n".join(it.found)


@pytest.mark.long
async def test_a_change_is_refused_with_the_name_of_the_silent_node_or_made_for_all(
    own_cluster: Cluster, tmp_path: Path
) -> None:
    async with down(own_cluster, tmp_path) as it:
        api = await token_of(it.it, "administrator")
        page = await it.it.sign_in("administrator")
        await expect(page.locator("#shards tbody tr").nth(2)).to_contain_text("unknown", timeout=PATIENCE_MS)
        for operation in ("hold", "retry", "release", "delete"):
            body = {"operation": operation, "queue_ids": [it.places.queue_id], "why": WHY}
            status, answer = await api.ask("POST", "/queue/changes", body)
            assert OF_C in json.dumps(answer), (operation, status, answer)
            assert not answer.get("changed"), (operation, answer)
            change = await counted(api, operation, {"sender": "*@sender.example"})
            assert (change["phase"], SILENT in json.dumps(change) or OF_C in json.dumps(change)) == ("refused", True), (
                change
            )
        scope = it.places.destination
        changes = [{"parameter": "destination_concurrency_limit", "value": 4}]
        status, answer = await api.ask("POST", "/tuning", {"scope": scope, "changes": changes, "why": WHY})
        assert status == 200, answer
        user = {"name": "kim@example.org", "password": "a long password", "why": WHY}
        status, answer = await api.ask("POST", "/mail-users", user)
        assert status == 201, answer
        status, answer = await api.ask("POST", "/destinations/suspend", {"destination": scope, "why": WHY})
        assert status == 200, answer
        status, answer = await api.ask("POST", "/destinations/resume", {"destination": scope, "why": WHY})
        assert (status, OF_C in json.dumps(answer)) == (200, True), answer

        async def is_known_as_silent() -> bool:
            rows = (await api.ask("GET", "/nodes"))[1]["nodes"]
            return [each["name"] for each in rows if not each["alive"]] == ["c"]

        await eventually(is_known_as_silent, "c to be silent for ten seconds")
        status, answer = await api.ask("POST", "/nodes/move", {"shard": "a", "node": "c", "why": WHY})
        assert (status, "Node c was seen last" in json.dumps(answer)) == (409, True), answer
        # The last one: processes begin again after it.
        _, known = await api.ask("GET", "/settings")
        relay = {"key": ["relay", "domains"], "value": ["a.example"]}
        status, answer = await api.ask(
            "POST", "/settings", {"changes": [relay], "revision": known["revision"], "why": WHY}
        )
        assert status == 200, answer
