"""What the manager says of itself, asked over the control socket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mailcore.faults import Code
from mailcore.lab.lab import Lab
from mailcore.lookup.answers import Keeper
from tests.faults import refused
from tests.running.running_core import running


async def test_values_are_not_listed_for_what_is_no_destination(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        for text in ("smtp", "nowhere", ".", "smtp example.org"):
            pid = core.processes()["manager"]
            with refused(Code.INVALID, "destination"):
                await core.ask("transports", destination=text)
            assert core.processes()["manager"] == pid


async def test_a_suspension_that_would_be_over_is_refused(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        with refused(Code.INVALID, "until"):
            await core.ask("suspend", destination="smtp:example.org", until=1_000_000_000.0)
        assert (await core.ask("destinations"))["suspended"] == {}


async def test_the_positions_say_where_runners_are_and_what_is_being_worked_on(tmp_path: Path) -> None:
    sections = {"queue": {"segment_bytes": 64 << 10}}
    async with Lab(["slow(60):127.0.0.1:0"]) as lab, running(tmp_path, lab, sections) as core:
        for _ in range(4):
            await core.send("a@example.org", data=b"x" * 40_000 + b"\r\n")

        async def taken() -> Any:
            answer = await core.ask("positions")
            lane = next(each for each in answer["lanes"] if each["lane"] == "incoming.0")
            return answer if lane["lag_bytes"] == 0 and len(lane["segments"]) > 1 else None

        answer = await core.eventually(taken, "the runner to read everything")
        lane = next(each for each in answer["lanes"] if each["lane"] == "incoming.0")
        assert [each["live"] for each in lane["segments"]][:1] == [2]
        assert lane["segments"][0]["kept_by"] == Keeper.ACTIVE
        assert answer["recovery"]["messages"] == 4
        assert 0 < answer["journal"]["suffix_bytes"] <= answer["recovery"]["bytes"]
        assert answer["sequence"] > 0
        assert answer["age_s"] < 60
        assert {each["lane"] for each in answer["lanes"]} >= {"incoming.0", "local", "hold", "deleted", "retry.0"}
