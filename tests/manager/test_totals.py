"""The balance over restarts: it equals a ledger of client and next hop, whatever is killed."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from mailcore.envelope import Origin, Status
from mailcore.lab.lab import Lab
from mailcore.log.positions import Totals
from mailcore.manager.outcomes import Balance
from mailcore.queue.queue import Queue
from mailcore.queue.sizes import Sizes
from tests.running.catcher import Catcher
from tests.running.running_core import RunningCore, recipients_of, running

HOP = "slow(0.05)+reject(later*, 450)+reject(no*, 550)"
VICTIMS = ("manager", "deliverer.0", "manager", "everything", "receiver.0", "manager", "supervisor")
MESSAGES = 6  # between two kills


async def balanced(core: RunningCore) -> dict[str, Any]:
    state: dict[str, Any] = await core.ask("state")
    for kind in ("recipients", "messages"):
        assert state["balance"][kind]["difference"] == 0, (kind, state["balance"])
    return state


async def test_the_balance_equals_the_ledger_whatever_is_killed(tmp_path: Path) -> None:
    chance = random.Random(5)
    good: list[str] = []
    refused: list[str] = []
    waiting: list[str] = []
    messages = 0
    async with (
        Lab([f"{HOP}:127.0.0.1:0"]) as lab,
        Catcher() as author,
        running(tmp_path, lab, author=author) as core,
    ):
        since = (await balanced(core))["counted_since"]
        deleted = await core.send("later-a@example.org", "later-b@example.org")
        undeleted = await core.send("later-c@example.org")
        for queue_id in (deleted, undeleted):
            await core.until_in(queue_id, "retry.")
            await core.order("delete", queue_id)
        await core.order("undelete", undeleted)
        injected = await core.inject("yes-i@example.org")
        good.append("yes-i@example.org")
        waiting.append("later-c@example.org")
        for turn, victim in enumerate(VICTIMS):
            for number in range(MESSAGES):
                names = [f"yes{turn}-{number}-{each}@example.org" for each in range(chance.randint(1, 4))]
                good += names
                if number % 3 == 0:
                    refused.append(f"no{turn}-{number}@example.org")
                    names.append(refused[-1])
                if number % 3 == 1:
                    waiting.append(f"later{turn}-{number}@example.org")
                    names.append(waiting[-1])
                await core.send(*names, heard=False)
                messages += 1
            await asyncio.sleep(chance.uniform(0.0, 0.2))
            if victim == "everything":
                await core.again()
            else:
                await core.kill(victim)
            await balanced(core)

        async def settled() -> bool:
            return bool((await balanced(core))["balance"]["recipients"]["queued"] == len(waiting))

        await core.eventually(settled, "all mail but the deferred to have left")
        await core.until_removed(injected)
        state = await balanced(core)
        bounces = len(refused)
        assert state["balance"]["recipients"] == {
            "queued_at_start": 0,
            "accepted": len(good) + len(refused) + len(waiting) + 2 + bounces,
            "undeleted": 1,
            "delivered": len(good) + bounces,
            "bounced": len(refused),
            "expired": 0,
            "deleted": 2 + 1,
            "lost": 0,
            "queued": len(waiting),
            "difference": 0,
        }
        with_rest = len(waiting)  # one recipient of each such message
        assert state["balance"]["messages"] == {
            "queued_at_start": 0,
            "accepted": messages + 3 + bounces,
            "undeleted": 1,
            "finished": messages + 3 + bounces - with_rest - 1,
            "deleted": 2,
            "lost": 0,
            "queued": with_rest,
            "difference": 0,
        }
        assert (state["counted_since"], state["counted_note"]) == (since, "")
        assert set(recipients_of(lab.messages)) == set(good), "the next hop's ledger"
        assert len({data for _, _, data in author.caught}) == bounces


def test_a_checkpoint_counts_verdicts_whose_records_are_not_synced_yet() -> None:
    """They are below the journal's end that it names, so that the next start does not count them again."""
    totals = Totals(5.0, "a note", (1, 2), {Origin.SMTP: (3, 4)}, by_status={Status.DELIVERED: 1}, lost=(1, 1))
    sizes = Sizes(10)
    sizes.lost, sizes.lost_working = [4, 5], [1, 1]
    queue = SimpleNamespace(totals=totals, totals_continued=True, verdicts=[7, 0, 2, 0, 0], sizes=sizes)
    balance = Balance(cast(Queue, queue))
    balance.by_status[Status.DELIVERED] = 6
    balance.arrive(1, 2, heard=True)
    balance.arrive(10, 20, heard=False)
    stored = balance.totals()
    assert stored.by_status == {0: 8, 1: 0, 2: 2, 3: 0, 4: 0}
    assert balance.counters(over_restarts=True)["recipients_delivered"] == 7, "only what is synced is shown"
    assert balance.counters()["recipients_delivered"] == 6
    assert stored.accepted[Origin.SMTP] == (14, 26), "arrived since the last checkpoint of the manager before"
    assert stored.at_start == (1, 2)
    assert stored.lost == (3, 4), "a message that cannot be read is lost again at the next start"
    assert (stored.since, stored.note) == (5.0, "a note")


def test_totals_that_begin_count_mail_that_lay_there_as_queued_at_the_start() -> None:
    queue = SimpleNamespace(totals=Totals(5.0, "", (1, 2)), totals_continued=False, verdicts=[0] * 5, sizes=Sizes(10))
    balance = Balance(cast(Queue, queue))
    balance.arrive(10, 20, heard=False)
    assert balance.totals().at_start == (11, 22)
    assert balance.totals().accepted[Origin.SMTP] == (0, 0)
