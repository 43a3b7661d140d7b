"""A next hop that is dead is left alone: its mail is deferred without a try, others' goes on, and it is tried again later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mailcore.lab.lab import Lab
from tests.running.running_core import RunningCore, Sections, recipients_of, route_to, running

COHORT = 3
MANY = [f"r{number:02}@dead.example" for number in range(12)]
SECTIONS: Sections = {
    "queue": {"retry_ladder_s": [1], "checkpoint_interval_s": 0.1},
    "scheduler": {"minimal_backoff_time": 600.0, "maximal_backoff_time": 600.0},  # dead for as long as a test takes
    "deliverer": {"connect_timeout_s": 2.0, "greeting_timeout_s": 0.5, "connection_idle_s": 0.2},
    "transports.smtp": {"initial_destination_concurrency": COHORT},
}


async def send_all(core: RunningCore, lab: Lab, recipients: list[str], hop: int = 0) -> None:
    """A message each, let go at once: a destination with no more mail begins anew."""
    destination = route_to(lab, hop)
    await core.ask("suspend", destination=destination)
    for recipient in recipients:
        await core.send(recipient)
    await core.ask("resume", destination=destination)


def verdicts(core: RunningCore, domain: str = "dead.example") -> list[dict[str, Any]]:
    return [line for line in core.log() if line["event"] == "delivery" and line["recipient"].endswith(f"@{domain}")]


def untried(core: RunningCore, domain: str = "dead.example") -> list[dict[str, Any]]:
    return [line for line in verdicts(core, domain) if line["relay"] == "none"]


async def until_all_deferred(core: RunningCore, count: int = len(MANY), domain: str = "dead.example") -> None:
    async def deferred() -> bool:
        return len({line["queue_id"] for line in verdicts(core, domain)}) >= count

    await core.eventually(deferred, f"{count} messages to be deferred")


DEAD = {  # a domain for each way to be dead
    "silent.example": "silent(connect)",
    "reset.example": "rst(connect)",
    "closing.example": "close(ehlo)",
    "refusing.example": "reject(1, 421, connect)",
    "down.example": "dead_for(600)",
}


async def test_after_a_cohort_of_failures_the_rest_is_deferred_unseen_and_comes_when_it_lives(tmp_path: Path) -> None:
    async with Lab([*(f"{behaviour}:127.0.0.1:0" for behaviour in DEAD.values()), "accept:127.0.0.1:0"]) as lab:
        routes = {domain: route_to(lab, number) for number, domain in enumerate([*DEAD, "alive.example"])}
        everybody = {domain: [each.replace("dead.example", domain) for each in MANY] for domain in DEAD}
        async with running(tmp_path, lab, SECTIONS, routes=routes) as core:
            for number, domain in enumerate(DEAD):
                await send_all(core, lab, everybody[domain], number)
            for domain in DEAD:
                await until_all_deferred(core, domain=domain)
                tried = [line for line in verdicts(core, domain) if line["relay"] != "none"]
                assert len(tried) == COHORT, domain
                unseen = untried(core, domain)
                assert all(line["reply"].startswith("delivery temporarily suspended: ") for line in unseen), domain
                assert {line["status"] for line in verdicts(core, domain)} == {"deferred"}, domain
                assert tried[-1]["reply"] in unseen[-1]["reply"], domain
            await core.send("r@alive.example")
            await lab.wait_for(1)
            assert recipients_of(lab.messages) == ["r@alive.example"]
            for hop in lab.hops:
                await hop.set_behaviour("accept")
            await core.kill("manager")  # the next one knows of no dead destinations
            await core.until_empty()
            for number, domain in enumerate(DEAD):
                assert recipients_of(lab.hops[number].messages) == everybody[domain]


async def test_when_its_time_is_over_it_is_tried_again(tmp_path: Path) -> None:
    soon: Sections = {**SECTIONS, "scheduler": {"minimal_backoff_time": 2.0, "maximal_backoff_time": 4.0}}
    async with Lab(["dead_for(600):127.0.0.1:0"]) as lab, running(tmp_path, lab, soon) as core:
        await send_all(core, lab, MANY)
        await until_all_deferred(core)
        assert untried(core)
        await lab.hops[0].set_behaviour("accept")
        await core.until_empty()
        assert recipients_of(lab.messages) == MANY


async def test_a_host_that_says_later_is_not_dead(tmp_path: Path) -> None:
    async with Lab(["reject(1, 450):127.0.0.1:0"]) as lab, running(tmp_path, lab, SECTIONS) as core:
        await send_all(core, lab, MANY)
        await until_all_deferred(core)
        assert untried(core) == []


async def test_a_limit_of_none_lets_no_destination_die(tmp_path: Path) -> None:
    off: Sections = {**SECTIONS, "transports.smtp": {"destination_concurrency_failed_cohort_limit": 0}}
    async with Lab(["dead_for(600):127.0.0.1:0"]) as lab, running(tmp_path, lab, off) as core:
        await send_all(core, lab, MANY)
        await until_all_deferred(core)
        assert untried(core) == []


async def test_a_message_of_many_for_the_dead_and_the_living_goes_to_the_living(tmp_path: Path) -> None:
    living = [f"r{number:02}@alive.example" for number in range(40)]
    async with Lab(["dead_for(600):127.0.0.1:0", "accept:127.0.0.1:0"]) as lab:
        routes = {"alive.example": route_to(lab, 1)}
        async with running(tmp_path, lab, SECTIONS, routes=routes) as core:
            await send_all(core, lab, MANY[:COHORT])
            await until_all_deferred(core, COHORT)
            queue_id = await core.send(*MANY, *living)
            item = await core.until_in(queue_id, "retry.")
            assert item["recipient_count"] == len(MANY)
            assert recipients_of(lab.messages) == living
            assert {line["queue_id"] for line in untried(core)} >= {queue_id}


async def test_mail_for_the_dead_still_expires_and_is_returned(tmp_path: Path) -> None:
    scheduler = {**SECTIONS["scheduler"], "maximal_queue_lifetime": 2.0}
    short: Sections = {**SECTIONS, "scheduler": scheduler}
    async with Lab(["dead_for(600):127.0.0.1:0", "accept:127.0.0.1:0"]) as lab, running(tmp_path, lab, short) as core:
        await send_all(core, lab, MANY[: COHORT + 1])
        await core.until_empty()
        assert recipients_of(lab.hops[1].messages) == ["author@sender.example"] * (COHORT + 1)
        expired = [line for line in verdicts(core) if line["status"] == "expired"]
        assert len(expired) == COHORT + 1
        assert any("delivery temporarily suspended" in line["reply"] for line in expired)
