"""Filters on the whole appliance: what a change selects in a real queue, and in the events of messages that are gone."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from mailcore.control.client import Refused
from mailcore.faults import Code
from mailcore.lab.lab import Lab
from tests.control.test_history import search, until_finished
from tests.faults import refused
from tests.running.exported_only import EXPORTING, until_forgotten
from tests.running.running_core import RunningCore, running

SHARP, PLAIN, WIDE = "stra\u00dfe@sender.example", "strasse@sender.example", "anna@b\u00fccher.example"


async def change(core: RunningCore, name: str, **filter_: Any) -> int:
    """Changes all that match; returns how many were changed."""
    progress = await core.ask("change_matching", change=name, filter=filter_)
    assert progress["failed"] == 0
    return int(progress["changed"])


async def senders(core: RunningCore, **filter_: Any) -> list[str]:
    return sorted(item["sender"] for item in await core.listed(**filter_))


async def test_a_change_selects_what_its_filter_says_and_an_empty_one_nothing(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        for sender in ("", SHARP, PLAIN, WIDE):
            await core.inject("kim@example.org", sender=sender, not_before=time.time() + 3600)
        everything = sorted(["", SHARP, PLAIN, WIDE])
        assert await senders(core) == everything
        for field, value in (("sender", ""), ("recipient", " "), ("reason", "\0"), ("lane", ""), ("older_than_s", 0)):
            with refused(Code.INVALID, f"filter.{field}"):
                await change(core, "delete", **{field: value})
        with pytest.raises(Refused, match=r"local, retry\.0, retry\.1, retry\.2, retry\.4, hold, deleted") as caught:
            await change(core, "delete", lane="retry.77")
        assert caught.value.argument == "filter.lane"
        assert await senders(core) == everything

        assert await change(core, "delete", sender="<>") == 1
        assert await change(core, "delete", sender="STRASSE@SENDER.example") == 1
        assert await senders(core) == sorted([SHARP, WIDE])
        assert await change(core, "delete", sender="ANNA@XN--bcher-kva.example") == 1
        assert await senders(core) == [SHARP]
        assert await change(core, "undelete", sender="<>") == 1
        assert await senders(core, recipient="KIM@example.ORG") == sorted(["", SHARP])
        assert await senders(core, recipient="\u212aim@example.org") == []


async def test_messages_that_are_gone_are_found_by_the_same_rule(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab, EXPORTING) as core:
        bounce = await core.send("kim@example.org", sender="")
        other = await core.send("a*b@example.org", sender=PLAIN)
        for each in (bounce, other):
            await until_finished(core, each)
        await until_forgotten(core, bounce, other)

        async def found(**question: str) -> list[str]:
            return [item["queue_id"] for item in await search(core.control, **question)]

        assert await found(sender="<>") == [bounce]
        assert other in await found(sender="*@*")
        assert bounce not in await found(sender="*@*")
        assert await found(sender="STRASSE@sender.EXAMPLE") == [other]
        assert await found(sender=SHARP) == []
        assert await found(recipient="A\\*b@example.org") == [other]
        assert await found(recipient="a\\?b@example.org") == []
        assert await found(recipient="\u212aim@example.org") == []
