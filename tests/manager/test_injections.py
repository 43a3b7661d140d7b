"""A message handed in that waited elsewhere before: it may be held, and it is as old as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailcore.lab.lab import Lab
from mailcore.log.disk import Disk
from mailcore.pickup.dropped import Draft, Submission
from tests.milter.scripted import CONTINUE, add_header, milter
from tests.running.running_core import Sections, recipients_of, running

NEVER = "reject(1, 451)"
LONG: Sections = {
    "queue": {"retry_ladder_s": [60]},
    "scheduler": {"minimal_backoff_time": 60, "maximal_backoff_time": 60},
}


async def test_what_is_handed_in_held_stays_held_and_is_as_old_as_it_was(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as core:
        for killed in (False, True):  # without a kill and with one, on the same core
            lab.hops[0].reset()
            to = ["a@example.org"]
            because = "held at the old machine"
            await core.ask("inject_begin", sender="s@example.org", recipients=to, age_s=3600.0, held_because=because)
            await core.ask("inject_data", data=b"Subject: x\r\n\r\nx\r\n")
            queue_id = (await core.ask("inject_end"))["queue_id"]
            if killed:
                await core.kill("manager")
            item = await core.until_in(queue_id, "hold")
            assert (item["state"], item["reason"]) == ("held", "held at the old machine")
            assert (await core.size())["lanes"] == {"hold": {"messages": 1, "recipients": 1}}
            assert not lab.messages
            await core.order("release", queue_id)
            await core.until_empty()
            assert recipients_of(lab.messages) == ["a@example.org"]


async def test_what_was_handed_in_older_than_the_lifetime_is_returned_after_one_attempt(tmp_path: Path) -> None:
    async with Lab([f"{NEVER}:127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as core:
        await core.ask("inject_begin", sender="", recipients=["a@example.org"], age_s=6 * 86_400.0)
        await core.ask("inject_data", data=b"Subject: x\r\n\r\nx\r\n")
        await core.ask("inject_end")
        await core.until_empty()

        async def statuses() -> bool:  # the log is written after the message has left the queue
            return [line["status"] for line in core.log() if line.get("status")] == ["deferred", "expired"]

        await core.eventually(statuses, "one attempt, then the end of its lifetime")


@pytest.mark.long
async def test_milters_see_what_is_injected_and_what_is_in_the_maildrop(tmp_path: Path) -> None:
    async with (
        milter(script={"E": add_header("X-Mark", b"seen") + CONTINUE}) as made,
        Lab(["accept:127.0.0.1:0"]) as lab,
    ):
        sections: Sections = {"receiver": {"non_smtpd_milters": [made.address]}}
        async with running(tmp_path, lab, sections) as core:
            await core.ask("inject_begin", sender="s@example.org", recipients=["a@example.org"])
            await core.ask("inject_data", data=b"Subject: x\r\n\r\nx\r\n")
            await core.ask("inject_end")
            draft = Draft(Disk(), str(core.home / "maildrop"))
            draft.begin(Submission(sender="s@example.org", recipients=("b@example.org",), submitted_at=0.0))
            draft.write(b"Subject: x\n\nx\n")
            draft.submit()

            async def both() -> bool:
                return len(lab.messages) == 2

            await core.eventually(both, "both are delivered")
            assert sorted(recipients_of(lab.messages)) == ["a@example.org", "b@example.org"]
            assert made.connections == 2
            assert made.steps_seen().count("E") == 2
