"""New mail to others while 100 000 messages are due for a slow next hop: ``python -m bench.slow_hop [--short]``.

The queue is filled by the engine's own writers (bench.fill); all of it is due at the start. New single messages to a fast
next hop are timed on an idle appliance, while the due ones come into the active set, and when that is full.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import uvloop

from bench.fill import fill
from bench.probe import Delays, Probe
from mailcore.lab.lab import Lab
from tests.running.running_core import RunningCore, Sections

__all__ = ["Beside", "beside_a_slow_hop", "main"]

QUEUED = 100_000
ACTIVE_LIMIT = 20_000  # message_active_limit
SERVICE_S = 1.0
MESSAGES = 200
PACE_S = 0.02
WANTED = 2.0  # wanted: times the idle median
SETTLE_S = 2.0
PATIENCE_S = 60.0  # for the last message of a part
FILL_S_MAX = 60.0  # until the active set is as full as it gets


@dataclass(frozen=True, slots=True)
class Beside:
    idle: Delays
    filling: Delays  # sent while the active set fills
    full: Delays  # sent when it takes no more
    active: int  # messages in the active set then
    slow_arrived: int  # at the slow next hop, in all


async def beside_a_slow_hop(
    directory: Path,
    *,
    queued: int = QUEUED,
    active_limit: int = ACTIVE_LIMIT,
    service_s: float = SERVICE_S,
    messages: int = MESSAGES,
    pace_s: float = PACE_S,
    patience_s: float = PATIENCE_S,
) -> Beside:
    """Two appliances, one after the other: an idle one, and the one with the queue."""
    sections: Sections = {
        "scheduler": {
            "message_active_limit": active_limit,
            "minimal_backoff_time": 300.0,
            "maximal_backoff_time": 4000.0,
        },
        "queue": {"retry_ladder_s": [1, 60, 300, 600, 4000], "segment_bytes": 32 << 20, "checkpoint_interval_s": 1.0},
    }
    async with Lab([f"slow({service_s}):127.0.0.1:0", "accept:127.0.0.1:0"]) as lab:
        slow, fast = lab.hops
        routes = {".example.org": "smtp:[{}]:{}".format(*slow.address), "*": "smtp:[{}]:{}".format(*fast.address)}
        (directory / "idle").mkdir()
        async with _open(directory / "idle", routes, sections) as core:
            probe = Probe(core.address, fast, "others.example")
            await probe.run(messages // 4, pace_s)  # the first are slower: segments and connections are made
            await asyncio.sleep(SETTLE_S)
            idle = await probe.run(messages, pace_s)
        home = directory / "busy" / "home"
        fill(home, queued, routes[".example.org"], due_in=lambda number: 0.0)
        async with _open(directory / "busy", routes, sections) as core:
            probe = Probe(core.address, fast, "others.example")
            filling = await probe.run(messages, pace_s, patience_s)
            active = await _full(core, min(queued, active_limit // 2))
            full = await probe.run(messages, pace_s, patience_s)
        return Beside(idle, filling, full, active, slow.counters.messages)


@asynccontextmanager
async def _open(directory: Path, routes: Mapping[str, str], sections: Sections) -> AsyncIterator[RunningCore]:
    core = RunningCore(directory, routes, sections)
    await core.start()
    try:
        yield core
    finally:
        core.stop()
        await core.control.close()


async def _full(core: RunningCore, share: int) -> int:
    """Waits until the active set has ``share`` messages and grows no more; how many it has then."""
    end = time.monotonic() + FILL_S_MAX
    before = -1
    while time.monotonic() < end:
        active = int((await core.ask("state"))["active_messages"])
        if share <= active <= before:  # a busy machine may add none for a while before that
            return active
        before = active
        await asyncio.sleep(1.0)
    return before


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.slow_hop", description=__doc__.partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="2 000 due, 500 of them active: a quick check, no result")
    parser.add_argument("--queued", type=int, default=QUEUED)
    parser.add_argument("--active", type=int, default=ACTIVE_LIMIT, help="message_active_limit")
    parser.add_argument(
        "--service", type=float, default=SERVICE_S, help="seconds the slow next hop takes for a message"
    )
    parser.add_argument("--messages", type=int, default=MESSAGES, help="new ones of each part")
    parser.add_argument("--pace", type=float, default=PACE_S, help="seconds from one new message to the next")
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="100 000 need 500 MB")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args(argv)
    if arguments.short:
        arguments.queued, arguments.active = 2_000, 500
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _arguments(argv)
    with tempfile.TemporaryDirectory(prefix="bench-slow-", dir=arguments.directory) as name:
        run = uvloop.run(
            beside_a_slow_hop(
                Path(name),
                queued=arguments.queued,
                active_limit=arguments.active,
                service_s=arguments.service,
                messages=arguments.messages,
                pace_s=arguments.pace,
            )
        )
    print(f"new mail to others, {1 / arguments.pace:.0f} a second; {arguments.queued:,} due for a hop that takes "
          f"{arguments.service:g} s each")  # fmt: skip
    for label, delays in (("idle", run.idle), ("while they come in", run.filling), ("when it is full", run.full)):
        print(f"{label:20} {delays}; {delays.median / run.idle.median:.2f} x idle")
    print(
        f"{run.active:,} messages active, {run.slow_arrived} came through to the slow hop; wanted <= {WANTED:g} x idle"
    )
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(asdict(run), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
