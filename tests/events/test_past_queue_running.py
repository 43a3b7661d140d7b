"""The queue as it was, asked of the whole daemon: at each noted moment the answer is the list that was seen then."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from mailcore.lab.lab import Lab
from tests.running.exported_only import until_forgotten
from tests.running.running_core import RunningCore, route_to, running

EXPORTING: dict[str, dict[str, object]] = {
    "export": {"enabled": True, "interval_s": 0.2},
    "scheduler": {"minimal_backoff_time": 30.0, "maximal_backoff_time": 60.0, "maximal_queue_lifetime": 3600.0},
    "queue": {"retry_ladder_s": [1, 2, 30, 60], "undo_time_s": 60},
}
# A past moment cannot tell these apart: each is due, and events do not say why it had not gone out.
DUE = ("active", "delivering", "queued", "dead", "suspended", "window full", "transport full")


def comparable(item: dict[str, Any]) -> dict[str, Any]:
    states: dict[str, int] = {}
    for state, count in item["states"].items():
        name = "queued" if state in DUE else state
        states[name] = states.get(name, 0) + count
    return {
        "states": states,
        "recipients": sorted(item["recipients"]),
        "recipient_count": item["recipient_count"],
        "sender": item["sender"],
        "size_bytes": item["size_bytes"],
        "lane": item["lane"],
        "reason": item["reason"],
        "attempts": item["attempts"],
        "generation": item["generation"],
        "arrived_at": item["arrived_at"],
    }


async def listed(core: RunningCore, operation: str, **arguments: Any) -> dict[str, dict[str, Any]]:
    """By queue id, all pages."""
    items: dict[str, dict[str, Any]] = {}
    cursor: str | None = ""
    while cursor is not None:
        page = await core.ask(operation, cursor=cursor, limit=2, **arguments)
        for item in page["items"]:
            assert item["queue_id"] not in items
            items[item["queue_id"]] = item
        cursor = page["cursor"]
    return items


class Noted:
    """What was seen at some moments."""

    def __init__(self, core: RunningCore) -> None:
        self._core = core
        self.seen: list[tuple[str, float, dict[str, Any], dict[str, Any]]] = []

    async def note(self, what: str) -> None:
        """Nothing happens meanwhile: a list that is the same before and after the moment is that of the moment.

        The list shows a message that is over until its mark is written, and the size does not count it.
        """
        await asyncio.sleep(0.3)
        while True:
            before = {key: comparable(item) for key, item in (await listed(self._core, "list")).items()}
            at = time.time()
            await asyncio.sleep(0.05)
            after = {key: comparable(item) for key, item in (await listed(self._core, "list")).items()}
            size = await self._core.ask("size")
            if before == after and size["messages"] == len(after):
                self.seen.append((what, at, after, size))
                return

    async def check(self) -> None:
        for what, at, seen, size in self.seen:
            then = await self._core.ask("size_at", time=at)
            assert (then["time"], then["note"], then["complete"]) == (at, "", True), what
            assert (then["messages"], then["recipients"]) == (size["messages"], size["recipients"]), what
            found = {key: comparable(item) for key, item in (await listed(self._core, "list_at", time=at)).items()}
            assert found == seen, what


async def test_mail_that_was_passed_on_or_expired_was_not_queued(tmp_path: Path) -> None:
    sections: dict[str, dict[str, object]] = {
        **EXPORTING,
        "scheduler": {"minimal_backoff_time": 1.0, "maximal_backoff_time": 2.0, "maximal_queue_lifetime": 4.0},
        "transports.smtp": {"cut_through": True},
    }
    async with Lab(["accept:127.0.0.1:0", "greylist(600):127.0.0.1:0"]) as lab:
        routes = {"later.example": route_to(lab, 1), "sender.example": route_to(lab, 1)}
        async with running(tmp_path, lab, sections, routes=routes) as core:
            await core.eventually(lambda: core.ask("state"), "an answer")
            noted = Noted(core)
            for number in range(3):
                await core.send(f"{number}@example.org", heard=False)
            late = await core.send("a@later.example")
            began = time.time()
            await core.until_removed(late)
            at = time.time()
            await noted.note("expired; a report waits")
            then = await core.ask("size_at", time=at)
            assert then["complete"], then["note"]
            waiting = await core.ask("list_at", time=began)
            assert [item["queue_id"] for item in waiting["items"]] == [late]
            (report,) = (await core.ask("list_at", time=at))["items"]
            assert (report["sender"], report["queue_id"][:13]) == ("", late)


async def test_each_moment_is_told_as_it_was_seen(tmp_path: Path) -> None:
    lab_nodes = ["accept:127.0.0.1:0", "greylist(30):127.0.0.1:0", "reject(1, 550):127.0.0.1:0"]
    async with Lab(lab_nodes) as lab:
        routes = {"later.example": route_to(lab, 1), "bad.example": route_to(lab, 2)}
        async with running(tmp_path, lab, EXPORTING, routes=routes) as core:
            noted = Noted(core)
            await noted.note("nothing")
            await core.send("a@example.org")
            deferred = await core.send("b@later.example", "c@later.example")
            mixed = await core.send("d@example.org", "e@later.example", "f@bad.example")
            await noted.note("two deferred, and a report on its way")
            held = await core.send("g@later.example", "h@later.example", "i@later.example")
            await noted.note("three deferred")
            await core.order("hold", held, "wait")
            await noted.note("held")
            await core.order("delete", mixed, "not needed")
            await noted.note("deleted")
            gone = await core.ask("size_at", time=time.time())
            assert gone["deleted"] == 1
            await core.again()
            await noted.note("after a restart")
            await core.order("undelete", mixed)
            await core.order("delay", deferred, until=time.time() + 3000)
            await noted.note("undeleted, and delayed")
            await core.ask("add_recipients", queue_id=held, recipients=["j@later.example"])
            await noted.note("added to held")
            await core.order("release", held)
            await noted.note("released")
            await core.order("bounce", held, "enough")
            await core.order("retry", deferred)
            await noted.note("bounced and tried")
            some = await core.send("k@later.example", "l@later.example", "m@later.example")
            later = await core.inject("n@example.org", not_before=time.time() + 2000)
            await noted.note("scheduled")
            await core.ask("change_matching", change="hold", filter={"recipient": "k@later.example"})
            await core.ask("change_matching", change="delete", filter={"recipient": "l@later.example"})
            await noted.note("each recipient in a state of its own")
            await core.ask("change_matching", change="retry", filter={"recipient": "m@later.example"})
            await noted.note("one of them tried")
            await core.order("reroute", some, route=route_to(lab, 0))
            await noted.note("rerouted, and one delivered")
            tried = await core.ask(
                "change_matching", change="retry", filter={"recipient": "n@example.org"}, scheduled=True
            )
            assert tried["changed"] == 1, later
            await noted.note("sent before its time")
            await noted.check()
            await until_forgotten(core, held)
            await core.again()
            await noted.check()
