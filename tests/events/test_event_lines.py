"""Lines of the mail log out of events: the same as the files had, for the same traffic, with and without conditions."""

from __future__ import annotations

import asyncio
import shutil
import smtplib
import time
from pathlib import Path
from typing import Any

from mailcore.lab.lab import Lab
from tests.running.exported_only import EXPORTING
from tests.running.running_core import RunningCore, route_to, running

EVENTS = ("accepted", "delivery", "removed", "refused", "administered", "expired")
QUESTIONS: tuple[dict[str, Any], ...] = (
    {}, {"sender": "author@*"}, {"recipient": "a@example.org"}, {"recipient": "*@BAD.example"}, {"status": "sent"},
    {"status": "deferred"}, {"status": "bounced"}, {"client": "127.0.0.1"}, {"event": "removed"}, {"event": "refused"},
    {"destination": "later.example"},
)  # fmt: skip
# What only the files have, and what only events add.
LACKING = ("pid", "time", "client_name", "client_port", "login_method", "orig_to", "protocol", "sender")


def comparable(line: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in line.items() if name not in LACKING}
    for name in ("delay_s", "delays_s"):
        kept.pop(name, None)
    return kept


async def asked(core: RunningCore, source: str, limit: int = 500, **question: Any) -> list[dict[str, Any]]:
    """All pages, oldest first, of the events that both have."""
    found: list[dict[str, Any]] = []
    before, pages = "", 0
    while True:
        page = await core.ask("log", limit=limit, before=before, **question)
        lines = [line for line in page["lines"] if line["source"] == source and line["values"]["event"] in EVENTS]
        found = [*(line["values"] for line in lines), *found]
        before = page["older"]
        pages += 1
        assert pages < 500
        if not before:
            return found


def ordered(lines: list[dict[str, Any]]) -> list[str]:
    return sorted(repr(sorted(comparable(line).items())) for line in lines)


async def test_events_say_what_the_files_said(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0", "greylist(600):127.0.0.1:0", "reject(1, 550):127.0.0.1:0"]) as lab:
        routes = {
            "later.example": route_to(lab, 1),
            "bad.example": route_to(lab, 2),
            "sender.example": route_to(lab, 0),
        }
        async with running(tmp_path, lab, EXPORTING, routes=routes) as core:
            with smtplib.SMTP("127.0.0.1", core.port) as client:
                client.ehlo("client.example")
                assert client.docmd("MAIL", "FROM:<big@x.example> SIZE=99999999999")[0] == 552
            for number in range(3):
                await core.until_removed(await core.send("a@example.org", f"b{number}@example.org"))
            bad = await core.send("c@bad.example", "d@example.org")
            await core.until_removed(bad)
            late = await core.send("e@later.example", sender="other@x.example")
            await core.order("hold", late, "wait")
            await core.order("delete", late, "not needed")
            await asyncio.sleep(1.0)  # the report is delivered, and all lines are written
            questions = [*QUESTIONS, {"queue_id": bad}, {"queue_id": late}]
            files = [await asked(core, "file", **question) for question in questions]
            assert len(files[0]) > 15
            await core.ask("size_at", time=time.time())  # which exports
            core.stop()
            await core.control.close()
            for path in (core.home / "log").glob("mail.*"):
                shutil.move(path, tmp_path / path.name)
            await core.start()
            for question, before in zip(questions, files, strict=True):
                lines = await asked(core, "events", **question)
                assert ordered(lines) == ordered(before), question
                assert [line["time"] for line in lines] == sorted(line["time"] for line in lines)
                for limit in (1, 7):
                    assert await asked(core, "events", limit, **question) == lines, question
