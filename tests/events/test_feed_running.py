"""The whole appliance under kill -9: what the feed tells, from a cursor that is kept, is what the event files have."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path
from typing import Any

from mailcore.control.client import ControlError
from mailcore.control.protocol.events import EventBatch
from mailcore.lab.lab import Lab
from tests.events.reading import rows
from tests.events.test_end_to_end import ask
from tests.running.running_core import RunningCore, Sections, running

BEHAVIOUR = "reject(bad*@example.org, 550)+greylist(1)"
FINAL = {"delivered", "bounced", "expired", "deleted"}
SECTIONS: Sections = {
    "queue": {"segment_bytes": 1 << 16},
    "receiver": {"tag_header": "X-Campaign"},
    "export": {"enabled": True, "interval_s": 0.2, "window_interval_s": 1},
}


class Following:
    """Follows the feed by its cursor, over kills of whom it asks."""

    def __init__(self, core: RunningCore) -> None:
        self.core = core
        self.cursor = "oldest"
        self.events: list[dict[str, Any]] = []

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            try:
                batch: EventBatch = await self.core.control.ask(
                    "events", EventBatch, {"after": self.cursor, "limit": 20, "wait_s": 1.0}
                )
            except ControlError:
                await asyncio.sleep(0.05)
                continue
            assert batch.lost == []
            self.events += [{name: getattr(event, name) for name in event.__struct_fields__} for event in batch.events]
            self.cursor = batch.cursor

    def of_recipients(self) -> dict[tuple[str, str], list[str]]:
        found: dict[tuple[str, str], list[str]] = defaultdict(list)
        for event in self.events:
            found[event["queue_id"], event["recipient"]].append(event["kind"])
        return dict(found)


async def test_the_feed_tells_everything_once_over_kills_and_deleted_segments(tmp_path: Path) -> None:
    async with Lab([f"{BEHAVIOUR}:127.0.0.1:0", "accept:127.0.0.1:0"]) as lab, running(tmp_path, lab, SECTIONS) as core:
        following = Following(core)
        task = asyncio.create_task(following.run())
        data = b"X-Campaign: news\r\nSubject: one\r\n\r\n" + b"x" * 9_000
        sent = []
        for number in range(30):
            sent.append(
                await core.send(f"good{number}@example.org", f"bad{number}@example.org", data=data, heard=False)
            )
            if number % 10 == 5:
                await core.kill("manager")
            if number % 10 == 8:
                await core.kill("control")

        async def over() -> bool:
            return not (await core.insist(core.size))["messages"]

        def first_base() -> int:
            return min(int(path.stem) for path in (core.home / "queue" / "incoming.0").glob("*.seg"))

        await core.eventually(over, "all to be over")
        await core.insist(lambda: ask(core, "export"))
        while not first_base():  # a checkpoint deletes what was exported, and an idle queue has none
            assert len(sent) < 50
            number = len(sent)
            sent.append(await core.send(f"good{number}@example.org", f"bad{number}@example.org", data=data))
            await core.eventually(over, "one more to be over")
        await core.insist(lambda: ask(core, "export"))
        exported = rows(core.home / "events")

        def all_told() -> bool:
            known = [each for each in exported if each["kind"] == "attempt"]
            return sum(1 for each in following.events if each["kind"] != "accepted") >= len(known)

        await core.until(all_told, "the feed to have told all")
        task.cancel()
        assert len({event["id"] for event in following.events}) == len(following.events)
        attempts = {f"{each['lane']}:{each['offset']}:{each['part']}" for each in exported if each["kind"] == "attempt"}
        assert {event["id"] for event in following.events if event["kind"] != "accepted"} == attempts
        for (queue_id, recipient), kinds in following.of_recipients().items():
            assert kinds[0] == "accepted", (queue_id, recipient, kinds)
            assert kinds[-1] in FINAL, (queue_id, recipient, kinds)
            assert set(kinds[1:-1]) <= {"deferred"}, (queue_id, recipient, kinds)
        for number, queue_id in enumerate(sent):
            of_good = following.of_recipients()[queue_id, f"good{number}@example.org"]
            of_bad = following.of_recipients()[queue_id, f"bad{number}@example.org"]
            assert (of_good[-1], of_bad[-1]) == ("delivered", "bounced")
        of_sent = [event for event in following.events if event["queue_id"] in sent]
        assert {(event["sender"], event["tag"]) for event in of_sent} == {("author@sender.example", "news")}
        bounces = [event for event in following.events if event["origin"] == "bounce"]
        assert {event["queue_id"][:13] for event in bounces} == set(sent)

        # A reader that was away all the time gets the same, from files where the segments are gone.
        assert first_base()
        again = Following(core)
        task = asyncio.create_task(again.run())
        await core.until(lambda: len(again.events) >= len(following.events), "all to be told again")
        task.cancel()
        assert {event["id"]: event for event in again.events} == {event["id"]: event for event in following.events}
