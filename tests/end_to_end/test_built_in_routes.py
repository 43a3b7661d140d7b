"""Routes that hand mail to no deliverer: discard, error, retry and hold, over a running core."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mailcore.lab.lab import Lab
from tests.running.catcher import Catcher
from tests.running.running_core import RunningCore, Sections, recipients_of, running

TRAP, GONE, LATER, HELD, OPEN = (f"kim@{name}.example" for name in ("trap", "gone", "later", "held", "open"))
ROUTES = {
    "trap.example": "discard:spam trap",
    "gone.example": "error:5.7.1 This address is no longer in use",
    "later.example": "retry:4.3.0 Come back tomorrow",
    "held.example": "hold",
}
LONG: Sections = {
    "queue": {"retry_ladder_s": [60]},
    "scheduler": {"minimal_backoff_time": 60, "maximal_backoff_time": 60},
}


async def balanced(core: RunningCore) -> dict[str, Any]:
    """The balance of recipients, once its two sides agree."""

    async def agrees() -> dict[str, Any] | None:
        found: dict[str, Any] = (await core.ask("state"))["balance"]["recipients"]
        return found if found["difference"] == 0 else None

    found: dict[str, Any] = await core.eventually(agrees, "a balance without a difference")
    return found


def lines_of(core: RunningCore, address: str) -> list[str]:
    return [line for line in (core.home / "log" / "mail.log").read_text().splitlines() if f"to=<{address}>" in line]


async def test_each_built_in_route_does_what_it_says_and_the_balance_agrees(tmp_path: Path) -> None:
    hops = ["accept:127.0.0.1:0", "accept:127.0.0.1:0"]
    async with Lab(hops) as lab, running(tmp_path, lab, LONG, routes=ROUTES) as core:
        await core.send(TRAP, GONE, LATER, HELD, OPEN)

        async def settled() -> bool:
            lanes: object = (await core.size())["lanes"]
            return lanes == {"retry.60": {"messages": 1, "recipients": 2}}

        await core.eventually(settled, "two recipients left")
        assert OPEN in recipients_of(lab.messages)
        assert not {TRAP, GONE, LATER, HELD} & set(recipients_of(lab.messages))
        (discarded,) = lines_of(core, TRAP)
        assert "relay=none" in discarded
        assert "dsn=2.0.0, status=sent (discarded: spam trap)" in discarded
        (refused,) = lines_of(core, GONE)
        assert "dsn=5.7.1, status=bounced (This address is no longer in use)" in refused
        assert "dsn=4.3.0, status=deferred (Come back tomorrow)" in lines_of(core, LATER)[0]
        assert lines_of(core, HELD) == []
        assert "hold by waypost (its route is hold)" in (core.home / "log" / "mail.log").read_text()
        amounts = await balanced(core)
        assert (amounts["delivered"], amounts["bounced"], amounts["queued"]) == (3, 1, 2)  # the bounce is one more


async def test_held_mail_goes_out_once_it_is_released_and_is_not_held_again(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0", "accept:127.0.0.1:0"]) as lab, running(tmp_path, lab, routes=ROUTES) as core:
        queue_id = await core.send(HELD, "robin@held.example")
        item = await core.until_in(queue_id, "hold")
        assert (item["state"], item["reason"]) == ("held", "its route is hold")
        assert (await core.size())["lanes"] == {"hold": {"messages": 1, "recipients": 2}}
        await core.kill("manager")
        await core.until_in(queue_id, "hold")
        assert recipients_of(lab.messages) == []
        assert (await balanced(core))["queued"] == 2
        await core.order("release", queue_id)
        await core.until_empty()
        assert recipients_of(lab.messages) == [HELD, "robin@held.example"]  # by the route "*"
        assert (await balanced(core))["delivered"] == 2


async def test_a_hold_names_the_route_of_what_is_released(tmp_path: Path) -> None:
    async with Catcher() as catcher, Lab(["accept:127.0.0.1:0", "accept:127.0.0.1:0"]) as lab:
        routes = {"held.example": f"hold:{catcher.route}"}
        async with running(tmp_path, lab, routes=routes) as core:
            where = await core.ask("resolve", address=HELD)
            assert (where["becomes"], where["refused"]) == (f"held; when it is released it goes to {catcher.route}", "")
            queue_id = await core.send(HELD)
            await core.until_in(queue_id, "hold")
            await core.order("release", queue_id)
            await core.until_empty()
            assert [recipients for _, recipients, _ in catcher.caught] == [[HELD]]
            assert lab.messages == []


async def test_a_recipient_that_is_held_does_not_keep_the_others(tmp_path: Path) -> None:
    """More recipients than are read at once, held and others mixed: each comes to its place."""
    sections = {"transports.smtp": {"recipient_limit": 10, "extra_recipient_limit": 5}}
    hops = ["accept:127.0.0.1:0", "accept:127.0.0.1:0"]
    async with Lab(hops) as lab, running(tmp_path, lab, sections, routes=ROUTES) as core:
        addresses = [f"r{n}@{'held' if n % 2 else 'open'}.example" for n in range(60)]
        queue_id = await core.send(*addresses)
        await core.until_in(queue_id, "hold")
        opened = [address for address in addresses if "open" in address]
        assert recipients_of(lab.messages) == sorted(opened)
        assert (await balanced(core))["queued"] == 30
        await core.order("release", queue_id)
        await core.until_empty()
        assert recipients_of(lab.messages) == sorted(addresses)
