"""A prediction, and what then happened: ``python -m bench.whatif [--short]``.

For each setting a real daemon gets a backlog for a hop of the lab with a behaviour, delivers some of it with few deliveries at
once so that times are measured, and is asked by ``simulate`` what would be with more. For some seconds nothing is changed, and
what is delivered is set beside the prediction for "before". Then it is asked again, and gets what was asked for by ``set`` as
soon as it has looked: the time the rest takes is set beside the prediction for "after", which comes only then. The miss is the
difference, as a share of what was real.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import uvloop

from bench.probe import hand_over
from mailcore.control.async_client import AsyncControlClient
from mailcore.lab.lab import Lab
from tests.running.running_core import RunningCore

__all__ = ["CASES", "Backtest", "Case", "backtest", "main"]

PATIENCE_S = 300.0
SIMULATED_S = 3_600.0
LIMIT = "destination_concurrency_limit"


@dataclass(frozen=True, slots=True)
class Case:
    """``changes``: parameters of the transport smtp, asked for and then set."""

    name: str
    behaviour: str
    messages: int
    recipients: int  # of each message, all for the one destination
    measured: int  # recipients delivered before it is asked
    changes: tuple[tuple[str, float | str], ...] = ((LIMIT, 10),)
    before: tuple[tuple[str, float | str], ...] = ((LIMIT, 2), ("initial_destination_concurrency", 2))
    kept: bool = True  # connections are used again
    watched_s: float = 4.0  # with nothing changed


CASES = (
    Case("slow final dot", "slow(0.1)", 900, 1, 60),
    Case("slow, unevenly", "slow(0.1, data, 0.8)", 900, 1, 60),
    Case("new connection each", "slow(0.05, connect)+slow(0.05)", 900, 1, 60, kept=False),
    Case("slow recipients", "slow(0.01, rcpt)", 100, 60, 600),
    Case("fewer recipients a delivery", "slow(0.2)", 60, 60, 600, changes=(("destination_recipient_limit", 10),)),
    Case("a hop's own limit", "limit(5)+slow(0.1)", 1200, 1, 200, before=((LIMIT, 8),), changes=((LIMIT, 5),)),
    Case("above a hop's own limit", "limit(5)+slow(0.1)", 1000, 1, 200, before=((LIMIT, 7),), changes=((LIMIT, 20),)),
    Case("some deferred", "slow(0.1)+reject(0.1, 450)", 900, 1, 100),
    Case(
        "a pause between deliveries", "slow(0.02)", 900, 1, 60, changes=(("destination_rate_delay", 0.03),), watched_s=1
    ),
)


@dataclass(frozen=True, slots=True)
class Backtest:
    name: str
    predicted_s: float | None
    real_s: float
    before_predicted: float  # recipients a second, as it was before the change
    before_real: float
    asked_s: float  # for the answer
    assumptions: list[str]

    @property
    def miss(self) -> float:
        return abs(self.predicted_s - self.real_s) / self.real_s if self.predicted_s is not None else float("inf")

    @property
    def miss_before(self) -> float:
        return abs(self.before_predicted - self.before_real) / self.before_real


async def backtest(directory: Path, case: Case, *, scale: float = 1.0) -> Backtest:
    """Raises TimeoutError when it is not over in time. ``scale``: of the backlog."""
    messages = max(1, round(case.messages * scale))
    async with Lab([f"{case.behaviour}:127.0.0.1:0"], keep=False) as lab:
        hop = lab.hops[0]
        sections = _sections(case)
        core = RunningCore(directory, {"*": "smtp:[{}]:{}".format(*hop.address)}, sections)
        await core.start()
        try:
            async with asyncio.timeout(PATIENCE_S):
                destination = "smtp:[{}]:{}".format(*hop.address)
                await core.ask("suspend", destination=destination)
                everybody = [f"r{number}@example.org" for number in range(case.recipients)]
                gate = asyncio.Semaphore(20)

                async def one() -> None:
                    async with gate:
                        await hand_over(core.address, "whatif@sender.example", everybody)

                await asyncio.gather(*(one() for _ in range(messages)))
                await core.ask("resume", destination=destination)
                return await _asked(core, case, hop.counters)
        finally:
            core.stop()
            await core.control.close()


async def _asked(core: RunningCore, case: Case, counters: Any) -> Backtest:
    while counters.recipients < case.measured:  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0.01)
    changes: list[dict[str, Any]] = [{"scope": "smtp", "parameter": name, "value": each} for name, each in case.changes]
    before = (await _answer(core, changes))["before"]
    begun, delivered = time.monotonic(), counters.recipients
    await asyncio.sleep(case.watched_s)
    watched_s, seen = time.monotonic() - begun, counters.recipients - delivered
    asked = begun = time.monotonic()
    left = 0
    answer: dict[str, Any] = {"stage": "measuring"}
    arguments = {"changes": changes, "duration_s": SIMULATED_S}
    async with AsyncControlClient(core.home / "run" / "control.sock") as asker:
        async for answer in asker.parts("simulate", arguments):
            if asked == begun and answer.get("stage") != "measuring":  # it knows all it will: now it is done
                for change in changes:
                    await core.ask("set", **change)
                begun = time.monotonic()
                left = (await core.size())["recipients"]
    asked_s = time.monotonic() - asked
    while (await core.size())["recipients"]:  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0.02)
    real_s = time.monotonic() - begun
    return Backtest(
        name=case.name,
        predicted_s=_predicted(answer["after"], left),
        real_s=real_s,
        before_predicted=_delivered_within(before, watched_s) / watched_s,
        before_real=seen / watched_s,
        asked_s=asked_s,
        assumptions=answer["assumptions"],
    )


async def _answer(core: RunningCore, changes: list[dict[str, Any]]) -> dict[str, Any]:
    answer: dict[str, Any] = await core.ask("simulate", changes=changes, duration_s=SIMULATED_S)
    return answer


def _predicted(result: dict[str, Any], left: int) -> float | None:
    """For what was left when it was set: some was delivered while it was asked, more on a busy machine."""
    if result["drain_s"] is None:
        return None
    return float(result["drain_s"] * left / (result["delivered"] + result["bounced"] + result["waiting"]))


def _delivered_within(result: dict[str, Any], seconds: float) -> float:
    """Recipients, from the series of a result."""
    delivered = start = 0.0
    for end, count in zip(result["series"]["t"], result["series"]["delivered"], strict=True):
        if end >= seconds:
            return float(delivered + count * (seconds - start) / (end - start))
        delivered, start = delivered + count, end
    return delivered


def _sections(case: Case) -> dict[str, dict[str, object]]:
    return {
        "receiver": {"recipient_limit": 1000},
        "deliverer": {"connections_idle_max": 100 if case.kept else 0, "connection_idle_s": 2.0 if case.kept else 0.0},
        "transports.smtp": dict(case.before),
    }


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.whatif", description=__doc__.partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="a third of the backlogs: a quick check, no result")
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    parser.add_argument("--assumptions", action="store_true", help="print them, too")
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="the directory of the queue")
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _arguments(argv)
    done: list[Backtest] = []
    heads = ("predicted", "real", "miss", "before", "real", "miss", "asked")
    print(f"{'':30}" + "".join(f"{head:>11}" for head in heads))
    for case in CASES:
        if arguments.only not in case.name:
            continue
        with tempfile.TemporaryDirectory(prefix="bench-whatif-", dir=arguments.directory) as name:
            run = uvloop.run(backtest(Path(name), case, scale=1 / 3 if arguments.short else 1.0))
        done.append(run)
        predicted = "-" if run.predicted_s is None else f"{run.predicted_s:.2f} s"
        print(
            f"{run.name:30}{predicted:>11}{run.real_s:>9.2f} s{run.miss:>11.1%}{run.before_predicted:>9.1f}/s"
            f"{run.before_real:>9.1f}/s{run.miss_before:>11.1%}{run.asked_s:>9.2f} s",
            flush=True,
        )
        if arguments.assumptions:
            print("\n".join(f"    {each}" for each in run.assumptions))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([asdict(run) for run in done], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
