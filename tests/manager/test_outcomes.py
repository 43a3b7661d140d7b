"""Counters of destinations, and the balance of all mail: exact after every event, also over restarts."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from mailcore.control.async_client import AsyncControlClient
from mailcore.control.client import Refused
from mailcore.envelope import Status, Verdict
from mailcore.lab.lab import Lab
from mailcore.manager.outcomes import RECENT_S, REPLIES_MAX, REPLY_CHARACTERS, Outcomes
from mailcore.manager_answers import Reply
from tests.running.catcher import Catcher
from tests.running.running_core import DATA, RunningCore, Sections, route_to, running


def verdict(status: Status, reply: str = "250 ok", number: int = 0) -> Verdict:
    return Verdict(number, status, f"{(2, 4, 5, 5, 5)[status]}.0.0", reply)


# -- by destination


def test_a_destination_nobody_has_heard_of_has_no_share() -> None:
    told = Outcomes(10).of("smtp:example.org", 7.0)
    assert (told.delivered, told.deferred, told.bounced, told.expired) == (0, 0, 0, 0)
    assert told.success_share is None
    assert told.last_delivered_at is None
    assert told.last_replies == []


def test_recipients_are_counted_and_the_share_is_of_those_tried() -> None:
    outcomes = Outcomes(10)
    good = [verdict(Status.DELIVERED, number=number) for number in range(3)]
    outcomes.note("smtp:a", [*good, verdict(Status.BOUNCED, "550 no", 3)], "a[192.0.2.1]:25", 5.0)
    outcomes.note("smtp:a", [verdict(Status.EXPIRED, "too long")], "none", 6.0)
    told = outcomes.of("smtp:a", 7.0)
    assert (told.delivered, told.bounced, told.expired) == (3, 1, 1)
    assert told.success_share == 0.75
    assert told.last_delivered_at == 5.0
    assert outcomes.of("smtp:b", 7.0).delivered == 0


def test_the_share_of_the_last_minutes_fades_and_says_who_is_failing() -> None:
    outcomes = Outcomes(10)
    outcomes.note("smtp:a", [verdict(Status.DELIVERED, number=number) for number in range(500)], "a", 5.0)
    assert not outcomes.failing("smtp:a", 5.0, queued=True)
    later = 5.0 + 6 * RECENT_S
    outcomes.note("smtp:a", [verdict(Status.BOUNCED, "550 no", number) for number in range(25)], "a", later)
    told = outcomes.of("smtp:a", later)
    assert told.success_share == 500 / 525
    assert told.recent_share is not None
    assert told.recent_share < 0.06
    assert outcomes.failing("smtp:a", later, queued=False)
    assert not outcomes.failing("smtp:a", later + 6 * RECENT_S, queued=True), "so few tries say nothing any more"
    outcomes.note("smtp:a", [verdict(Status.EXPIRED, number=number) for number in range(25)], "none", later)
    assert outcomes.of("smtp:a", later).recent_share == told.recent_share, "what expires was not tried again"


def test_the_last_replies_are_distinct_and_the_newest_comes_first() -> None:
    outcomes = Outcomes(10)
    for at in range(REPLIES_MAX + 2):
        outcomes.note("smtp:a", [verdict(Status.DEFERRED, f"450 {at}")], f"relay {at}", at)
    outcomes.note("smtp:a", [verdict(Status.DEFERRED, "450 3", n) for n in range(2)], "another", 99.0)
    replies = outcomes.of("smtp:a", 7.0).last_replies
    assert [each.reply for each in replies] == ["450 3", "450 6", "450 5", "450 4", "450 2"]
    assert replies[0] == Reply(at=99.0, reply="450 3", status="deferred", dsn="4.0.0", relay="another", times=3)


def test_a_long_reply_is_cut() -> None:
    outcomes = Outcomes(10)
    outcomes.note("smtp:a", [verdict(Status.BOUNCED, "5" * 2000)], "", 0.0)
    assert len(outcomes.of("smtp:a", 7.0).last_replies[0].reply) == REPLY_CHARACTERS


def test_outcomes_of_a_transport_never_go_down() -> None:
    """A counter of a monitoring system: destinations that are forgotten stay in the sum."""
    outcomes = Outcomes(2)
    for number in range(5):
        outcomes.note(f"smtp:d{number}", [verdict(Status.DELIVERED), verdict(Status.DEFERRED, "451 x", 1)], "x", 5.0)
    outcomes.note("relay:a", [verdict(Status.BOUNCED, "550 no")], "x", 6.0)
    assert outcomes.by_transport() == {
        "smtp": {"delivered": 5, "deferred": 5, "bounced": 0, "expired": 0},
        "relay": {"delivered": 0, "deferred": 0, "bounced": 1, "expired": 0},
    }


def test_who_was_heard_of_longest_ago_is_forgotten_first() -> None:
    outcomes = Outcomes(2)
    for name in ("a", "b", "a", "c"):
        outcomes.note(name, [verdict(Status.DELIVERED)], "", 0.0)
    assert outcomes.latest(10) == ["c", "a"]
    assert outcomes.of("b", 7.0).delivered == 0


def test_one_recipient_as_a_destination_has_its_next_hops_outcome() -> None:
    outcomes = Outcomes(2)
    outcomes.note("bulk:example.org", [verdict(Status.DELIVERED)], "", 0.0)
    assert outcomes.of("bulk:user@example.org", 7.0).delivered == 1


async def test_rows_say_what_came_of_mail_and_what_was_answered_last(tmp_path: Path) -> None:
    behaviour = "reject(later*, 450)+reject(no*, 550)"
    async with (
        Lab([f"{behaviour}:127.0.0.1:0", "accept:127.0.0.1:0"]) as lab,
        Catcher() as author,
        running(tmp_path, lab, author=author, routes={"else.example": route_to(lab, 1)}) as core,
    ):
        began = time.time()
        await core.send("later@example.org", "no@example.org", "yes@example.org")
        await core.until_removed(await core.send("a@else.example"))

        async def tried_twice() -> Any:
            told, name = await core.ask("destinations"), route_to(lab, 0)
            # Between two tries it has no mail in the scheduler: most looks find it there, and some never with mail.
            row = told["destinations"].get(name) or told["without_mail"].get(name)
            return row if row and row["deferred"] >= 2 else None

        row = await core.eventually(tried_twice, "a second attempt")
        assert (row["delivered"], row["bounced"], row["expired"]) == (1, 1, 0)
        assert row["success_share"] == pytest.approx(1 / (2 + row["deferred"]))
        assert began - 1 < row["last_delivered_at"] < time.time() + 1
        first, second = row["last_replies"]
        assert (first["status"], first["dsn"][0], first["times"]) == ("deferred", "4", row["deferred"])
        assert (second["status"], second["times"]) == ("bounced", 1)
        assert "450" in first["reply"]
        assert "127.0.0.1" in first["relay"]
        assert first["at"] >= second["at"] >= began - 1
        without = (await core.ask("destinations"))["without_mail"]
        assert without[route_to(lab, 1)]["success_share"] == 1.0


async def test_a_dead_destinations_end_is_on_the_walls_clock(tmp_path: Path) -> None:
    sections: Sections = {
        "scheduler": {"minimal_backoff_time": 60.0, "maximal_backoff_time": 60.0},
        "transports.smtp": {"initial_destination_concurrency": 1},
    }
    async with Lab(["dead_for(100):127.0.0.1:0"]) as lab, running(tmp_path, lab, sections) as core:
        await core.send("a@example.org")

        async def dead() -> Any:
            row = (await core.ask("destinations"))["destinations"].get(route_to(lab, 0))
            return row if row and row["dead_until"] else None

        row = await core.eventually(dead, "a dead destination")
        assert row["dead_until"] == pytest.approx(time.time() + row["dead_s"], abs=5)


# -- the balance


async def balanced(core: RunningCore) -> dict[str, Any]:
    """The state, in which everything adds up."""
    state: dict[str, Any] = await core.ask("state")
    for kind in ("recipients", "messages"):
        assert state["balance"][kind]["difference"] == 0, (kind, state["balance"])
    return state


async def test_the_balance_is_exact_whatever_happens_to_mail(tmp_path: Path) -> None:
    behaviour = "reject(later*, 450)+reject(no*, 550)"
    async with (
        Lab([f"{behaviour}:127.0.0.1:0"]) as lab,
        Catcher() as author,
        running(tmp_path, lab, author=author) as core,
    ):
        stop = asyncio.Event()

        async def look() -> int:
            looks = 0
            async with AsyncControlClient(core.home / "run" / "control.sock") as control:
                while not stop.is_set():
                    balance = (await control.call("state"))["balance"]
                    assert balance["recipients"]["difference"] == balance["messages"]["difference"] == 0, balance
                    looks += 1
                    await asyncio.sleep(0.005)
            return looks

        looking = asyncio.create_task(look())
        await core.send("yes1@example.org", "yes2@example.org", "no@example.org", "later@example.org")
        held = await core.send("later1@example.org", "later2@example.org")
        await core.until_in(held, "retry.")
        await core.order("hold", held)
        deleted = await core.send("later3@example.org", "later4@example.org", "later5@example.org")
        await core.until_in(deleted, "retry.")
        await core.order("delete", deleted)
        state = await balanced(core)
        assert state["counters"]["recipients_deleted"] == 3
        await core.order("undelete", deleted)
        state = await balanced(core)
        assert state["counters"]["recipients_undeleted"] == 3
        await core.until_in(deleted, "retry.")
        await core.order("delete", deleted)
        returned = await core.send("later6@example.org")
        await core.until_in(returned, "retry.")
        await core.order("bounce", returned)
        injected = await core.inject("yes3@example.org", "no3@example.org")
        more = await core.inject("later7@example.org", not_before=time.time() + 3600)
        await core.ask("add_recipients", queue_id=more, recipients=["yes4@example.org", "yes5@example.org"])
        await core.until_in(more, "retry.4")
        await core.order("hold", more)
        await core.until_removed(returned, injected)
        await core.ask("set", scope="", parameter="maximal_queue_lifetime", value=0)

        async def expired() -> Any:
            return (await balanced(core))["counters"]["recipients_expired"]

        await core.eventually(expired, "the end of the queue lifetime")
        await core.order("bounce", held)

        async def quiet() -> Any:
            return (await core.size())["messages"] == 1

        await core.eventually(quiet, "all but the held one to be gone")
        stop.set()
        assert await looking > 5
        state = await balanced(core)
        counters = state["counters"]
        assert state["balance"]["recipients"] == {
            "queued_at_start": 0,
            "accepted": 4 + 2 + 3 + 1 + 2 + 1 + 2 + counters["bounces"],
            "undeleted": 3,
            "delivered": 2 + 1 + counters["bounces"],
            "bounced": 1 + 1 + 1 + 2,
            "expired": 1,
            "deleted": 6,
            "lost": 0,
            "queued": 3,
            "difference": 0,
        }
        assert counters["recipients_added"] == 2
        assert state["accepted_by_origin"] == {
            "smtp": {"messages": 4, "recipients": 10},
            "local": {"messages": 2, "recipients": 3},
            "bounce": {"messages": counters["bounces"], "recipients": counters["bounces"]},
        }
        assert counters["recipients_deferred"] >= 6
        assert abs(state["started_at"] + state["uptime_s"] - time.time()) < 60


async def test_what_lay_there_before_a_start_is_no_new_mail(tmp_path: Path) -> None:
    """Deferred, held, deleted, being worked on, and accepted while no manager was there."""
    async with Lab(["reject(later*, 450)+slow(30):127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        deferred = await core.send("later1@example.org", "later2@example.org")
        await core.until_in(deferred, "retry.")
        deleted = await core.send("later3@example.org")
        await core.until_in(deleted, "retry.")
        await core.order("delete", deleted)
        await core.send("slow@example.org", data=DATA)
        await core.until_in_flight()
        await core.kill("manager")

        async def all_there() -> bool:  # what its receiver has just written counts when it has said so
            return bool((await balanced(core))["balance"]["recipients"]["queued"] == 3)

        await core.eventually(all_there, "what was queued at the start")
        state = await balanced(core)
        assert state["counters"]["accepted"] == 0, "since this manager started"
        assert state["totals"]["recipients_accepted"] == 4, "since the queue is there"
        assert state["balance"]["recipients"]["queued_at_start"] == 0
        assert state["counted_note"] == ""
        await core.order("undelete", deleted)
        assert (await balanced(core))["balance"]["recipients"]["queued"] == 4
        await core.send("later4@example.org", "later5@example.org")
        state = await balanced(core)
        assert (state["counters"]["accepted"], state["counters"]["recipients_accepted"]) == (1, 2)


async def test_mail_that_comes_while_the_manager_is_away_was_accepted(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        await core.ask("suspend", destination=route_to(lab, 0))
        await core.send("a@example.org")
        await core.kill_now("manager")
        await core.send("b@example.org", "c@example.org", heard=False)

        async def both() -> Any:
            try:
                balance = (await balanced(core))["balance"]["recipients"]
            except Refused:  # the manager is still away
                return None
            return balance["queued"] == 3 and balance

        balance = await core.eventually(both, "both messages")
        assert (balance["queued_at_start"], balance["accepted"]) == (0, 3)
