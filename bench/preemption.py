"""One message to 5 000 and then single ones to the same next hop: ``python -m bench.preemption [--short]``.

The next hop takes ``--service`` seconds for each message. The single ones come while the big one is on its way; how long
they take is measured with preemption (the defaults) and without it (delivery_slot_cost = 1).
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

from bench.probe import Delays, Probe, hand_over
from mailcore.lab.hop import Hop
from mailcore.lab.lab import Lab
from tests.running.running_core import RunningCore, Sections

__all__ = ["Beside", "beside_a_big_one", "main"]

RECIPIENTS = 5_000
PER_DELIVERY = 2  # destination_recipient_limit; 1 would make each recipient a destination
WINDOW = 20
SERVICE_S = 0.1
SINGLES = 100
PACE_S = 0.05
LIST = "list@sender.example"  # the sender of the big message
NO_PREEMPTION = 1  # delivery_slot_cost


@dataclass(frozen=True, slots=True)
class Beside:
    """Holds the results for the single messages and for the big one."""

    singles: Delays
    ahead: float  # the median share of the big one's recipients that had arrived before a single one
    big_s: float  # from its 250 to the arrival of its last recipients
    big_left: int  # recipients of the big one that had not arrived when the last single one was sent


async def beside_a_big_one(
    directory: Path,
    slot_cost: int | None,
    *,
    recipients: int = RECIPIENTS,
    service_s: float = SERVICE_S,
    singles: int = SINGLES,
    pace_s: float = PACE_S,
) -> Beside:
    """``slot_cost`` None: the default. Raises AssertionError when the big one does not arrive whole."""
    transport: dict[str, object] = {
        "initial_destination_concurrency": WINDOW,
        "destination_concurrency_limit": WINDOW,
        "destination_recipient_limit": PER_DELIVERY,
    }
    if slot_cost is not None:
        transport["delivery_slot_cost"] = slot_cost
    sections: Sections = {"receiver": {"recipient_limit": recipients}, "transports.smtp": transport}
    async with Lab([f"slow({service_s}):127.0.0.1:0"]) as lab:
        hop = lab.hops[0]
        core = RunningCore(directory, {"*": "smtp:[{}]:{}".format(*hop.address)}, sections)
        try:
            await core.start()
            everybody = [f"r{number}@list.example" for number in range(recipients)]
            await hand_over(core.address, LIST, everybody)
            begun = asyncio.get_running_loop().time()
            await lab.wait_for(WINDOW)
            probe = asyncio.create_task(Probe(core.address, hop, "single.example").run(singles, pace_s))
            await asyncio.sleep(singles * pace_s)
            left = recipients + singles - hop.counters.recipients
            await core.until(lambda: hop.counters.recipients >= recipients + singles, "the last recipient")
            big_s = asyncio.get_running_loop().time() - begun
            return Beside(await probe, _ahead(hop, recipients), big_s, left)
        finally:
            core.stop()
            await core.control.close()


def _ahead(hop: Hop, recipients: int) -> float:
    big = 0
    ahead: list[float] = []
    for arrival in hop.messages:
        if arrival.sender == LIST:
            big += len(arrival.recipients)
        else:
            ahead.append(big / recipients)
    return statistics.median(ahead)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.preemption", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--short", action="store_true", help="1 000 recipients and 20 single ones: a quick check, no result"
    )
    parser.add_argument("--recipients", type=int, default=RECIPIENTS)
    parser.add_argument("--singles", type=int, default=SINGLES)
    parser.add_argument("--pace", type=float, default=PACE_S, help="seconds from one single message to the next")
    parser.add_argument("--service", type=float, default=SERVICE_S, help="seconds the next hop takes for a message")
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="the directory of the queue")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args(argv)
    if arguments.short:
        arguments.recipients, arguments.singles = 1_000, 20
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _arguments(argv)
    results: dict[str, Beside] = {}
    for name, cost in (("with preemption", None), ("without", NO_PREEMPTION)):
        with tempfile.TemporaryDirectory(prefix="bench-preemption-", dir=arguments.directory) as directory:
            run = uvloop.run(
                beside_a_big_one(
                    Path(directory),
                    cost,
                    recipients=arguments.recipients,
                    service_s=arguments.service,
                    singles=arguments.singles,
                    pace_s=arguments.pace,
                )
            )
        results[name] = run
        print(
            f"{name:16} single messages: {run.singles}, {run.ahead:.0%} of the big one ahead; all of both after "
            f"{run.big_s:.1f} s ({run.big_left} recipients were left when the last single one was sent)",
            flush=True,
        )
    with_it, without = results["with preemption"].singles.median, results["without"].singles.median
    print(f"median without / with: {without / with_it:.1f}")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({name: asdict(run) for name, run in results.items()}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
