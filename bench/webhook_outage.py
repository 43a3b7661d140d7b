"""A webhook's receiver that is away for an hour while mail flows: ``python -m bench.webhook_outage [--away SECONDS]``.

A client sends mail at a bounded rate to a real core; the process of the webhooks sends its events to a receiver. Then the
receiver refuses connections for an hour, and meanwhile the process of the webhooks and the manager are killed again and again.
Then the receiver is back; it answers 500, is slower than the time limit, dies before it answers, redirects, each for a while.
At the end every event of the feed must have come, in order for each message, and what came twice must be marked: else the
command fails. Prints how far the webhook was behind, how long it took to catch up, and what was sent again. Settings of the
webhooks are the defaults.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from mailcore.config.portal import Portal
from mailcore.lab.lab import Lab
from tests.appliance.webhooks.receiver import Receiver, receiving
from tests.appliance.webhooks.sending import Sending
from tests.appliance.webhooks.under_load import (
    BEHAVIOUR,
    agreed,
    at_work,
    check,
    kill_manager,
    load,
    over,
    until_sent,
)
from tests.running.running_core import RunningCore, Sections, running

__all__ = ["Outage", "Times", "main", "outage"]

LOOK_S = 0.5
CURRENT_S = (
    10.0  # a webhook that is less far behind has caught up: events are there one or two seconds after they happened
)
SECTIONS: Sections = {
    "queue": {"checkpoint_interval_s": 1.0},
    "receiver": {"tag_header": "X-Campaign"},
    "export": {"enabled": True, "interval_s": 5.0},
}
TROUBLES = ("broken", "slow", "dying", "moved")


@dataclass(frozen=True)
class Times:
    """How long each part takes; ``retry_s_max``: of the settings, None for the default."""

    away_s: float = 3_600.0
    trouble_s: float = 90.0
    kill_every_s: float = 240.0
    rate: float = 5.0  # messages a second
    timeout_s: float | None = None
    retry_s_max: int | None = None

    @property
    def slow_s(self) -> float:
        """Returns how late a slow receiver answers: after the time limit."""
        return (self.timeout_s or Portal().webhook_timeout_s) * 1.2

    def sections(self) -> Sections:
        """Returns the settings of the core."""
        given = {"webhook_timeout_s": self.timeout_s, "webhook_retry_s_max": self.retry_s_max}
        return {**SECTIONS, "portal": {name: value for name, value in given.items() if value is not None}}


@dataclass(slots=True)
class Outage:
    """Holds what was measured."""

    messages: int = 0
    kills: int = 0
    behind_s: float = 0.0  # at most
    first_again_s: float = 0.0  # from the return of the receiver to the first batch that it took
    caught_up_s: float = 0.0  # from the return of the receiver
    taken_while_away: int = 0  # events that were waiting at the return, and were taken until it had caught up
    home_bytes: int = 0  # at the return
    events: int = 0
    requests: int = 0
    again: int = 0


def _bytes_below(directory: Path) -> int:
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue
    return total


async def outage(directory: Path, times: Times, say: Callable[[str], None] = print) -> Outage:
    """Raises AssertionError if an event is missing, is out of order, or came twice without a mark."""
    report = Outage()
    with receiving() as receiver:
        async with Lab([f"{BEHAVIOUR}:127.0.0.1:0", "accept:127.0.0.1:0"], keep=False) as lab:
            host, port = lab.hops[1].address
            routes = {"fast.example": f"smtp:[{host}]:{port}"}
            async with running(directory, lab, times.sections(), routes=routes) as core:
                sending = Sending(core)
                dead = {"name": "dead", "url": "http://127.0.0.1:9/"}
                await asyncio.to_thread(sending.prepare, {"name": "all", "url": receiver.url}, dead)
                sending.start()
                try:
                    with load(core, clients=1, pause_s=1 / times.rate) as accepted:
                        await at_work(sending, core)
                        await asyncio.sleep(times.trouble_s / 3)
                        await _away(core, sending, receiver, times, report, say)
                        for trouble in TROUBLES:
                            receiver.behaviour, receiver.slow_s = trouble, times.slow_s
                            say(f"the receiver is {trouble}")
                            await asyncio.sleep(times.trouble_s)
                            receiver.behaviour = "good"
                            await _caught_up(receiver)
                    await over(core)
                    await _not_failing(sending)
                    await until_sent(sending, core, "all")
                    feed = await agreed(core, receiver)
                finally:
                    sending.kill()
                counts = check(receiver.taken, feed)
                missing = set(accepted) - {event["queue_id"] for event in feed}
                assert not missing, f"{len(missing)} messages that were accepted are not in the feed"
                report.messages, report.events = len(accepted), counts["events"]
                report.requests, report.again = counts["requests"], counts["again"]
    return report


async def _away(
    core: RunningCore, sending: Sending, receiver: Receiver, times: Times, report: Outage, say: Callable[[str], None]
) -> None:
    """The receiver refuses connections; processes are killed. Returns when the webhook has caught up after its return."""
    receiver.stop()
    say("the receiver is away")
    end = time.monotonic() + times.away_s
    while (left_s := end - time.monotonic()) > 0:
        await asyncio.sleep(min(times.kill_every_s, left_s))
        if time.monotonic() < end:
            sending.kill()
            await kill_manager(core)
            sending.start()
            report.kills += 1
            say(f"killed {report.kills} times; the receiver is away for {end - time.monotonic():.0f} s more")
    report.home_bytes = await asyncio.to_thread(_bytes_below, core.home)
    before = len(receiver.taken)
    receiver.start()
    say("the receiver is back")
    began = time.monotonic()
    await _until(lambda: len(receiver.taken) > before)
    report.first_again_s = time.monotonic() - began
    report.behind_s = time.time() - receiver.taken[before].events[0]["at"]
    await _caught_up(receiver)
    report.caught_up_s = time.monotonic() - began
    report.taken_while_away = sum(len(request.events) for request in receiver.taken[before:])
    say(f"caught up after {report.caught_up_s:.0f} s")


async def _caught_up(receiver: Receiver) -> None:
    """Until the last event that the receiver took is of just now. Mail keeps coming meanwhile."""
    await _until(lambda: bool(receiver.taken) and time.time() - receiver.taken[-1].events[-1]["at"] <= CURRENT_S)


async def _not_failing(sending: Sending) -> None:
    """Until the receiver has taken what it did not take before."""
    await _until(lambda: sending.hook("all")["failing_since"] is None)


async def _until(true: Callable[[], bool]) -> None:
    """Waits without a limit: how long a webhook waits before it tries again is a setting."""
    while True:
        if await asyncio.to_thread(true):
            return
        await asyncio.sleep(LOOK_S)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it, and prints what was measured as JSON."""
    parser = argparse.ArgumentParser(prog="bench.webhook_outage", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--away", type=float, default=Times.away_s, help="seconds that the receiver is away")
    parser.add_argument("--trouble", type=float, default=Times.trouble_s, help="seconds of each other trouble")
    parser.add_argument("--rate", type=float, default=Times.rate, help="messages a second")
    parser.add_argument("--directory", default="/var/tmp", help="where the home is made")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="outage-", dir=given.directory) as directory:
        times = Times(given.away, given.trouble, rate=given.rate)
        report = asyncio.run(outage(Path(directory), times, lambda words: print(words, file=sys.stderr, flush=True)))
    print(json.dumps(asdict(report), indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
