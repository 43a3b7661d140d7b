"""A retry of mail that only waits for its next attempt: it is tried at once, and is not written to another lane before."""

from __future__ import annotations

from pathlib import Path

from mailcore.lab.lab import Lab
from mailcore.log.disk import Disk
from mailcore.log.reader import LaneReader
from mailcore.log.record import RecordType
from tests.manager.test_orders import LONG, NEVER, in_retry
from tests.running.running_core import RunningCore, Sections, recipients_of, route_to, running

SEVERAL = 16


def written(core: RunningCore, lane: str, kind: RecordType) -> int:
    """Counts the records of a lane, of any mark."""

    def damaged(damage: object) -> None:
        raise AssertionError(damage)

    reader = LaneReader(Disk(), str(core.home / "queue" / lane), damaged)
    start = reader.bases[0] if reader.bases else 0
    return sum(record.type == kind for record in reader.records(start))


async def test_it_is_not_written_again(tmp_path: Path) -> None:
    async with Lab([f"{NEVER}:127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as core:
        queue_id = await in_retry(core)
        before = written(core, "journal", RecordType.REPLACED)
        await lab.hops[0].set_behaviour("accept")
        await core.order("retry", queue_id)
        await core.until_empty()
        assert recipients_of(lab.messages) == ["a@example.org"]
        assert written(core, "journal", RecordType.REPLACED) == before == 1
        assert written(core, "journal", RecordType.ADMINISTRATIVE) == 1, "the history tells who asked for it"


async def test_it_is_due_after_a_kill_too(tmp_path: Path) -> None:
    async with Lab([f"{NEVER}:127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as core:
        queue_id = await in_retry(core)
        await lab.hops[0].set_behaviour("accept")
        await core.ask("suspend", destination=route_to(lab, 0))  # so that nothing is in flight at the kill
        await core.order("retry", queue_id)
        await core.kill("manager")
        assert (await core.size())["messages"] == 1
        await core.ask("resume", destination=route_to(lab, 0))
        await core.until_empty()  # its lane is one of sixty seconds
        assert recipients_of(lab.messages) == ["a@example.org"]


async def test_what_the_active_set_has_no_room_for_is_due_where_it_rests(tmp_path: Path) -> None:
    sections: Sections = {**LONG, "scheduler": {**LONG["scheduler"], "message_active_limit": 10}}
    async with Lab([f"{NEVER}:127.0.0.1:0"]) as lab, running(tmp_path, lab, sections) as core:
        ids = [await in_retry(core, f"r{number}@example.org") for number in range(SEVERAL)]
        await lab.hops[0].set_behaviour("accept")
        await lab.hops[0].set_behaviour(
            "slow(300, rcpt)"
        )  # half of ten, the share of deferred mail, and there they stay
        before = written(core, "journal", RecordType.REPLACED)
        answer = await core.ask("retry", queue_ids=ids)
        assert (answer["changed"], answer["recipients"], answer["errors"]) == (SEVERAL, SEVERAL, {})
        assert written(core, "journal", RecordType.REPLACED) == before, "they wait where they rest"
        assert (await core.ask("state"))["active_messages"] == 5
        assert (await core.size())["lanes"] == {"retry.60": {"messages": SEVERAL, "recipients": SEVERAL}}
        waiting = await core.item(ids[-1]) or {}
        assert (waiting["state"], waiting["due_at"], waiting["active"], waiting["lane"]) == (
            "queued",
            0,
            False,
            "retry.60",
        )
        (reason,) = (await core.ask("explain", queue_id=ids[-1]))["reasons"]
        assert reason["sentence"].startswith("due because of a retry (by ")
        assert "deferred mail has its whole share of the active set" in reason["sentence"]


async def test_mail_of_a_suspended_destination_leaves_room_for_other_deferred_mail(tmp_path: Path) -> None:
    """Its messages fill the share of deferred mail in the active set (half of ten), not the active set."""
    sections: Sections = {**LONG, "scheduler": {**LONG["scheduler"], "message_active_limit": 10}}
    async with (
        Lab([f"{NEVER}:127.0.0.1:0", f"{NEVER}:127.0.0.1:0"]) as lab,
        running(tmp_path, lab, sections, routes={"other.example": route_to(lab, 1)}) as core,
    ):
        waiting = [await in_retry(core, f"r{number}@example.org") for number in range(SEVERAL)]
        await core.ask("suspend", destination=route_to(lab, 0))
        assert (await core.ask("retry", queue_ids=waiting))["changed"] == SEVERAL
        other = await in_retry(core, "a@other.example")
        await lab.hops[1].set_behaviour("accept")
        await core.order("retry", other)
        await lab.wait_for(1)
        assert recipients_of(lab.messages) == ["a@other.example"]

        async def left() -> bool:
            return bool((await core.size())["messages"] == SEVERAL)

        await core.eventually(left, "the end of the other message")


async def test_a_recipient_that_is_held_stays_held(tmp_path: Path) -> None:
    async with Lab([f"{NEVER}:127.0.0.1:0"]) as lab, running(tmp_path, lab, LONG) as core:
        queue_id = await in_retry(core, "a@example.org", "b@example.org")
        made = await core.ask("change_matching", change="hold", filter={"recipient": "a@example.org"})
        assert made["changed_recipients"] == 1
        await core.until_in(queue_id, "retry.60")
        await lab.hops[0].set_behaviour("accept")
        await core.order("retry", queue_id)
        await lab.wait_for(1)
        assert await core.until_in(queue_id, "hold")
        assert recipients_of(lab.messages) == ["b@example.org"]
