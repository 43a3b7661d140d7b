"""Three queues with mail for one destination, each with processes of its own, that share its limit (law: shares-within-limit).

The next hop counts the connections that it has, and says what was the most.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import smtplib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mailcore.manager.sharing import SHARES
from tests.eventually import PATIENCE_S, eventually
from tests.running.running_core import RunningCore
from tests.shares.counting_sink import CountingSink, sinking

LIMIT = 5
NAMES = "abc"


class Queues:
    """The queues a, b and c; mail of each has a sender of that name."""

    def __init__(self, directory: Path, sink: CountingSink, backoff_s: float = 1.0, **transport: object) -> None:
        self.sink = sink
        self.cores: dict[str, RunningCore] = {}
        sections: dict[str, dict[str, object]] = {
            "transports.smtp": {"destination_concurrency_limit": LIMIT, **transport},
            "deliverer": {"connection_idle_s": 2.0, "processes": 2},
            "scheduler": {"minimal_backoff_time": backoff_s, "maximal_backoff_time": max(2.0, backoff_s)},
        }
        for name in NAMES:
            (directory / name).mkdir()
            self.cores[name] = RunningCore(directory / name, {"*": f"smtp:[127.0.0.1]:{sink.port}"}, sections)

    async def accept(self, name: str, count: int) -> None:
        await asyncio.to_thread(self._accept, self.cores[name].port, name, count)

    @staticmethod
    def _accept(port: int, name: str, count: int) -> None:
        with smtplib.SMTP("127.0.0.1", port, timeout=PATIENCE_S) as client:
            client.ehlo("client.example")
            for number in range(count):
                client.sendmail(
                    f"{name}@sender.example", [f"{name}{number}@example.org"], b"Subject: x\r\n\r\nhello\r\n"
                )

    async def until(self, what: str, *numbers: int) -> None:
        """Until the queues have as many connections."""
        await eventually(lambda: self.in_use == list(numbers), lambda: f"{what}; there are {self.in_use}")

    @property
    def in_use(self) -> list[int]:
        return [self.sink.of(name) for name in NAMES]

    @property
    def taken(self) -> int:
        return len(self.sink.messages)

    async def takes_more(self, count: int = 10, before: int | None = None) -> None:
        """Waits until the sink has taken ``count`` messages more than ``before``; without it, more than now."""
        before = self.taken if before is None else before
        await eventually(lambda: self.taken >= before + count, f"{count} messages more than {before}")

    async def questions(self, name: str) -> int:
        return int((await self.cores[name].ask("state"))["counters"]["share_questions"])


@pytest.fixture
async def sink() -> AsyncIterator[CountingSink]:
    async with sinking(takes_s=0.1) as sink:
        yield sink


@pytest.fixture
async def queues(
    tmp_path: Path, sink: CountingSink, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> AsyncIterator[Queues]:
    (tmp_path / "shares").mkdir()
    monkeypatch.setenv(SHARES, str(tmp_path / "shares"))
    queues = Queues(tmp_path, sink, **getattr(request, "param", {}))
    started: list[RunningCore] = []
    try:
        for core in queues.cores.values():
            started.append(core)
            await core.start()
        yield queues
    finally:
        for core in started:
            await core.control.close()
            core.stop()


async def test_law_shares_all_have_a_part_and_one_alone_has_all_of_it(queues: Queues) -> None:
    queues.sink.takes_s = 2.0  # until all have mail, however long that takes
    for name in "ab":
        await queues.accept(name, 100)
    await queues.accept("c", 400)
    await eventually(lambda: all(queues.in_use), "a connection of each")
    queues.sink.takes_s = 0.1
    await eventually(lambda: sum(queues.in_use) == LIMIT, "all of the limit in use")
    await queues.until("the last one alone", 0, 0, LIMIT)
    assert queues.sink.most == LIMIT


@pytest.mark.parametrize("kills", [4, pytest.param(20, marks=pytest.mark.long)])
@pytest.mark.timeout(600)
async def test_law_shares_queues_are_killed_in_turn_and_a_limit_is_never_exceeded(queues: Queues, kills: int) -> None:
    """Managers alone, so that their deliverers live on, and all processes of a queue; each is the giver at some time."""
    rng = random.Random(kills)
    queues.sink.takes_s = 2.0  # until all have mail, however long that takes
    for name in NAMES:
        await queues.accept(name, 100 * kills)
    await eventually(lambda: all(queues.in_use), "a connection of each")
    queues.sink.takes_s = 0.1
    for number in range(kills):
        name, other = NAMES[number % 3], NAMES[(number + 1) % 3]
        core = queues.cores[name]
        if number % 2:
            core.stop()
            await core.control.close()
            await asyncio.sleep(rng.random() * 2)
            await core.start()
        else:
            await core.kill_now("manager")
        taken = queues.taken
        await queues.accept(other, 60)  # on a slow machine the mail of before may be out
        await queues.takes_more(rng.randrange(1, 60), taken)
    queues.sink.takes_s = 2.0
    for name in NAMES:
        await queues.accept(name, 20)
    await eventually(lambda: sum(queues.in_use) == LIMIT, lambda: f"all of the limit in use; there are {queues.in_use}")
    assert queues.sink.most <= LIMIT


async def test_law_shares_a_manager_that_is_stopped_leaves_no_connection_behind(queues: Queues) -> None:
    """Its deliverers know the end; the process that would kill a manager that hangs is stopped, too."""
    queues.sink.takes_s = 3600.0
    await queues.accept("a", 20)
    await queues.until("all connections", LIMIT, 0, 0)
    processes = queues.cores["a"].processes()
    stopped = [processes["supervisor"], processes["manager"]]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        await queues.until("the end of all connections", 0, 0, 0)
    finally:
        for pid in reversed(stopped):
            os.kill(pid, signal.SIGCONT)
    assert queues.sink.most == LIMIT


@pytest.mark.long
@pytest.mark.parametrize("queues", [{"destination_rate_delay": 0.1}], indirect=True)
async def test_a_rate_over_all_is_never_exceeded(queues: Queues) -> None:
    """Of a slow machine it can only be said that it is not faster."""
    queues.sink.takes_s = 0.0
    for name in NAMES:
        await queues.accept(name, 100)
    await eventually(lambda: all(queues.sink.by_sender[name] for name in NAMES), "mail of each")
    await queues.takes_more(10)
    first = queues.taken
    await queues.takes_more(100)
    times = [at for at, _ in queues.sink.messages[first:]]
    assert (len(times) - len(NAMES)) / (times[-1] - times[0]) <= 10.5


@pytest.mark.parametrize(
    "queues", [{"backoff_s": 60.0}], indirect=True
)  # so long is it dead: until all have heard of it
async def test_what_one_queue_found_dead_the_others_do_not_try(queues: Queues, sink: CountingSink) -> None:
    sink.takes_s = 3600.0
    await queues.accept("b", 1)
    await queues.until("a delivery under way", 0, 1, 0)
    sink.refuses = True
    await queues.accept("a", 12)

    async def dead(name: str) -> bool:
        destinations = (await queues.cores[name].ask("destinations"))["destinations"]
        return any(row["dead_until"] is not None for row in destinations.values())

    await queues.cores["b"].eventually(lambda: dead("b"), "the death that another queue found")
    connections = sink.connections
    await queues.accept("b", 5)
    log = queues.cores["b"].log

    def put_off() -> bool:
        deferred = [line for line in log() if line["event"] == "delivery" and line.get("status") == "deferred"]
        return len(deferred) >= 5

    await eventually(put_off, "mail that was put off")
    assert sink.connections == connections
