"""10 000 messages for a next hop that is dead: ``python -m bench.dead_destination [--short]``. No spool file is opened.

The queue's own writers fill the queue (bench.fill), with the data in spool files. Some new messages find the next hop dead.
Then manager and deliverer run under strace until all messages of the filled queue have become due, and are deferred again. (A
retry would revive the destination.)
"""

from __future__ import annotations

import argparse
import asyncio
import re
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import uvloop

from bench.fill import fill
from bench.probe import hand_over
from bench.verdicts import Verdicts
from mailcore.lab.lab import Lab
from tests.running.running_core import RunningCore, Sections

__all__ = ["Deferred", "deferred_untouched", "main"]

QUEUED = 10_000
FIRST = 30  # new messages that find it dead; more than a window of them
DEAD_S = 600.0  # minimal_backoff_time
DUE_IN_S = 60.0  # after the queue was filled; by then the next hop is known to be dead
PATIENCE_S = 400.0
OPENED = re.compile(r"\b(open|openat|openat2|creat)\(")


@dataclass(frozen=True, slots=True)
class Deferred:
    """Holds what happened while strace was running."""

    deferred: int  # verdicts without a try
    tried: int  # verdicts with one
    opened: tuple[str, ...]  # calls that opened a spool file
    named: tuple[str, ...]  # calls that named one in another way
    seconds: float


async def deferred_untouched(directory: Path, queued: int = QUEUED) -> Deferred:
    """Runs the benchmark. Raises TimeoutError if the destination is not dead, or mail is not deferred, in time."""
    loop = asyncio.get_running_loop()
    trace = directory / "trace"
    sections: Sections = {
        "queue": {
            "retry_ladder_s": [1, 600, 4000],
            "segment_bytes": 32 << 20,
            "checkpoint_interval_s": 1.0,
            "carry_limit": 0,  # the new messages, too, get spool files
        },
        "scheduler": {"minimal_backoff_time": DEAD_S, "maximal_backoff_time": 4000.0},
    }
    async with Lab(["dead_for(86400):127.0.0.1:0"]) as lab:
        route = "smtp:[{}]:{}".format(*lab.hops[0].address)
        core = RunningCore(directory, {"*": route}, sections)
        fill(core.home, queued, route, due_in=lambda number: DUE_IN_S)
        due_at = loop.time() + DUE_IN_S
        await core.start()
        try:
            verdicts = Verdicts(core.home)
            # All at once: a destination without mail is forgotten, with the failures that would make it dead.
            await core.ask("suspend", destination=route)
            for number in range(FIRST):
                await hand_over(core.address, "first@sender.example", [f"r{number}@first.example"])
            await core.ask("resume", destination=route)
            await _deferred(verdicts, FIRST)
            await _spooled(core.home, queued + FIRST)  # a deferral is logged a little before its data has moved
            pids = core.processes()
            watched = ("manager", "deliverer.0")
            strace = await asyncio.create_subprocess_exec(
                *("strace", "-f", "-y", "-s", "300", "-e", "trace=%file", "-e", "signal=none", "-o", str(trace)),
                *(word for name in watched for word in ("-p", str(pids[name]))),
                stderr=asyncio.subprocess.PIPE,
            )
            assert strace.stderr is not None
            for _ in watched:
                assert b"attached" in await strace.stderr.readline()
            deferred, tried = await _deferred(verdicts, queued)
            seconds = loop.time() - due_at
            await asyncio.sleep(2.0)  # a checkpoint more
            strace.send_signal(signal.SIGINT)
            await strace.communicate()
        finally:
            core.stop()
            await core.control.close()
    spool = f"{core.home}/spool/"
    calls = [
        line for line in trace.read_text(errors="replace").splitlines() if spool in line and "O_DIRECTORY" not in line
    ]
    opened = tuple(line for line in calls if OPENED.search(line))
    return Deferred(deferred, tried, opened, tuple(line for line in calls if line not in set(opened)), seconds)


async def _spooled(home: Path, count: int) -> None:
    """Waits until there are ``count`` spool files."""
    end = asyncio.get_running_loop().time() + PATIENCE_S
    while len(list((home / "spool").glob("??/*"))) < count:
        if asyncio.get_running_loop().time() > end:
            raise TimeoutError(f"there were never {count} spool files")
        await asyncio.sleep(0.05)


async def _deferred(verdicts: Verdicts, count: int) -> tuple[int, int]:
    """Waits for ``count`` verdicts; returns those without an attempt, and those with one. Raises TimeoutError."""
    untried = tried = 0
    try:
        async with asyncio.timeout(PATIENCE_S):
            while untried + tried < count or not untried:
                await asyncio.sleep(0.05)
                for event in verdicts.events("delivery"):
                    if event["relay"] == "none":
                        untried += 1
                    else:
                        tried += 1
    except TimeoutError:
        raise TimeoutError(f"{untried} deferred without a try and {tried} with one, of {count}") from None
    return untried, tried


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.dead_destination", description=__doc__.partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="500 messages: a quick check, no result")
    parser.add_argument("--queued", type=int, default=QUEUED)
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="the directory of the queue")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="bench-dead-", dir=arguments.directory) as name:
        run = uvloop.run(deferred_untouched(Path(name), 500 if arguments.short else arguments.queued))
    print(
        f"{run.deferred:,} messages deferred without a try and {run.tried} with one, {run.seconds:.1f} s after they were due: "
        f"{len(run.opened)} spool files opened, named in {len(run.named)} other calls"
    )
    for call in [*run.opened, *run.named][:10]:
        print(f"  {call}")
    return 1 if run.opened else 0


if __name__ == "__main__":
    sys.exit(main())
