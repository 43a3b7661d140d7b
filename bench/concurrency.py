"""A server that takes 5 connections and answers 421 to the sixth: ``python -m bench.concurrency [--short]``.

SCHEDULER_README's test of an active concurrency limiter, against the daemon: one message to 2 000 recipients, 2 a delivery,
first attempts only, no connection used twice. Time is scaled: a recipient takes ``--recipient`` seconds, not one. The table
compares the deferred share and the mean window with those of SCHEDULER_README.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import uvloop

from bench.probe import hand_over
from bench.verdicts import Verdicts
from mailcore.lab.lab import Lab
from tests.running.running_core import RunningCore

__all__ = ["LIMITER", "Limited", "limited", "main"]

LIMITER = 5  # connections
RECIPIENTS = 2_000
PER_DELIVERY = 2
RECIPIENT_S = 0.05
SPREAD = 0.2  # deliveries begun together do not stay in step
# Verdicts that come at once, after a stall of the machine, raise the window so far that six refusals in a row follow: with
# 1/sqrt(N) those are 0.98 of a pseudo-cohort. The default limit of one would end the measurement, which is not about it.
COHORTS = 3
LATER_S = 3_600.0  # deferred recipients are due only after the end of the benchmark
PATIENCE_S = 300.0


@dataclass(frozen=True, slots=True)
class Style:
    """Holds a feedback, and the values that SCHEDULER_README measured and expects with it."""

    name: str
    feedback: str
    share: float
    window: float
    theory: float


STYLES = (
    Style("1/N", "1/concurrency", 0.165, 5.17, 1 / 6),
    Style("1/sqrt(N)", "1/sqrt_concurrency", 0.245, 5.28, 1 / 4),
    Style("1", "1", 0.497, 5.63, 1 / 2),
)


@dataclass(frozen=True, slots=True)
class Limited:
    """Holds the results of the first attempts."""

    tried: int  # recipients
    deferred: int
    untried: int  # deferred because the destination was dead
    window: float  # mean over all verdicts
    window_deviation: float
    seconds: float

    @property
    def share(self) -> float:
        return self.deferred / self.tried


async def limited(
    directory: Path, feedback: str, *, recipients: int = RECIPIENTS, recipient_s: float = RECIPIENT_S
) -> Limited:
    """Runs the benchmark with one feedback. Raises TimeoutError if it takes too long."""
    loop = asyncio.get_running_loop()
    async with Lab([f"limit({LIMITER})+slow({recipient_s}, rcpt, {SPREAD}):127.0.0.1:0"]) as lab:
        core = RunningCore(
            directory, {"*": "smtp:[{}]:{}".format(*lab.hops[0].address)}, _sections(feedback, recipients)
        )
        try:
            await core.start()
            verdicts = Verdicts(core.home)
            begun = loop.time()
            everybody = [f"r{number}@limited.example" for number in range(recipients)]
            await hand_over(core.address, "list@sender.example", everybody)
            deferred = sent = untried = 0
            windows: list[float] = []
            async with asyncio.timeout(PATIENCE_S):
                while sent + deferred + untried < recipients:
                    await asyncio.sleep(0.1)
                    for event in verdicts.events("delivery", "window_changed"):
                        if event["event"] == "window_changed":
                            windows.append(event["window"])
                        elif event["status"] == "sent":
                            sent += 1
                        elif event["relay"] == "none":
                            untried += 1
                        else:
                            deferred += 1
            seconds = loop.time() - begun
        finally:
            core.stop()
            await core.control.close()
    return Limited(
        sent + deferred,
        deferred,
        untried,
        statistics.fmean(windows) if windows else 0.0,
        statistics.pstdev(windows) if windows else 0.0,
        seconds,
    )


def _sections(feedback: str, recipients: int) -> dict[str, dict[str, object]]:
    return {
        "queue": {"retry_ladder_s": [1, 3600]},
        "receiver": {"recipient_limit": recipients},
        "scheduler": {"minimal_backoff_time": LATER_S, "maximal_backoff_time": LATER_S},
        "deliverer": {"connections_idle_max": 0},
        "transports.smtp": {
            "initial_destination_concurrency": LIMITER,
            "destination_concurrency_limit": 20,
            "destination_concurrency_positive_feedback": feedback,
            "destination_concurrency_negative_feedback": feedback,
            "destination_concurrency_failed_cohort_limit": COHORTS,
            "destination_concurrency_feedback_debug": True,
            "destination_recipient_limit": PER_DELIVERY,
        },
    }


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.concurrency", description=__doc__.partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="400 recipients: a quick check, no result")
    parser.add_argument("--recipients", type=int, default=RECIPIENTS)
    parser.add_argument("--recipient", type=float, default=RECIPIENT_S, help="seconds the server takes for each")
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="the directory of the queue")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args(argv)
    if arguments.short:
        arguments.recipients = 400
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _arguments(argv)
    results: dict[str, Limited] = {}
    print(f"{'feedback':12}{'deferred':>10}{'theory':>8}{'document':>10}{'window':>9}{'document':>10}{'seconds':>9}")
    for style in STYLES:
        with tempfile.TemporaryDirectory(prefix="bench-concurrency-", dir=arguments.directory) as name:
            run = uvloop.run(
                limited(Path(name), style.feedback, recipients=arguments.recipients, recipient_s=arguments.recipient)
            )
        results[style.name] = run
        dead = f"  {run.untried} not tried: the destination was dead" if run.untried else ""
        print(
            f"{style.name:12}{run.share:>10.1%}{style.theory:>8.1%}{style.share:>10.1%}{run.window:>9.2f}"
            f"{style.window:>10.2f}{run.seconds:>9.1f}{dead}",
            flush=True,
        )
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({name: asdict(run) for name, run in results.items()}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
