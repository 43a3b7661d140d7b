"""After the supervisor was killed, and its processes with it, each message is in one list, and only once."""

from __future__ import annotations

import asyncio
import os
import signal
import smtplib
from collections import Counter
from pathlib import Path

from mailcore.control.async_client import AsyncControlClient
from mailcore.control.client import ControlError
from mailcore.lab.lab import Lab
from tests.eventually import PATIENCE_S
from tests.running.running_core import DATA, RunningCore, Sections, route_to, running

MESSAGES = 60
KILLS = 2
QUICK: Sections = {
    "queue": {"retry_ladder_s": [1, 600]},
    "scheduler": {"minimal_backoff_time": 1, "maximal_backoff_time": 1},
}


def send_all(port: int, begin: int) -> None:
    with smtplib.SMTP("127.0.0.1", port, timeout=PATIENCE_S) as client:
        for number in range(begin, begin + MESSAGES):
            assert not client.sendmail("author@sender.example", [f"x{number}@example.org"], DATA)


async def listed(core: RunningCore) -> Counter[str]:
    """How often each message is listed, by its recipient."""
    items = [*await core.listed(), *await core.listed(lane="deleted")]
    return Counter(item["recipients"][0] for item in items)


async def ordered(core: RunningCore, change: str, recipients: str) -> None:
    """A change on a connection of its own: one connection answers a request after the other."""
    client = AsyncControlClient(core.home / "run" / "control.sock", timeout_s=PATIENCE_S)
    try:
        await client.call("change_matching", {"change": change, "filter": {"recipient": recipients}})
    finally:
        await client.close()


async def first_list(core: RunningCore) -> Counter[str]:
    """The first that is answered, with or without a manager."""

    async def answered() -> Counter[str] | None:
        try:
            return await listed(core)
        except ControlError:
            return None

    found: Counter[str] = await core.eventually(answered, "a list")
    return found


async def test_each_message_is_in_one_list(tmp_path: Path) -> None:
    """Messages move between lanes all the time: deferred, due, held, released, deleted."""
    async with Lab(["reject(1, 451):127.0.0.1:0"]) as lab, running(tmp_path, lab, QUICK) as core:
        for kill in range(KILLS):
            await asyncio.to_thread(send_all, core.port, kill * MESSAGES)
            changes = [
                asyncio.create_task(ordered(core, change, f"x*{digit}@*"))
                for digit, change in enumerate(("hold", "delete", "release", "undelete", "retry"))
            ]
            await asyncio.wait(changes, return_when=asyncio.FIRST_COMPLETED)
            os.kill(core.processes()["manager"], signal.SIGSTOP)
            twice = [who for who, times in (await listed(core)).items() if times > 1]
            assert not twice, f"{len(twice)} messages are listed twice while the manager is away"
            core.stop()
            await asyncio.gather(*changes, return_exceptions=True)
            await core.control.close()
            await core.start()
            everybody = {f"x{number}@example.org" for number in range((kill + 1) * MESSAGES)}
            assert not {who: times for who, times in (await first_list(core)).items() if who not in everybody}

            async def once(everybody: set[str] = everybody) -> bool:
                found = await listed(core)
                return found.keys() == everybody and set(found.values()) == {1}

            await core.ready()
            await core.ask("suspend", destination=route_to(lab, 0))  # a list is no snapshot: nothing moves under it now
            await core.eventually(once, "each message in one list")
            await core.ask("resume", destination=route_to(lab, 0))
