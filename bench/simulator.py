"""The simulator: ``python -m bench.simulator`` prints the tables of docs/scheduler.md, and measures a million entries.

A million messages of one recipient for 2 000 destinations, 20 000 of them active, service times log-normal, 2 % deferred and
tried again; one core. ``--entries N`` for another number, ``--tables`` for the tables alone.
"""

from __future__ import annotations

import argparse
import random
import resource
import time

from mailcore.scheduler.parameters import Parameters, TransportParameters
from mailcore.simulator.backlog import Backlog, Mail
from mailcore.simulator.concurrency_tests import FEEDBACKS, TESTS, markdown, row_of, scenario_of
from mailcore.simulator.distribution import Chance, Distribution
from mailcore.simulator.next_hop import NextHop
from mailcore.simulator.scenario import Scenario
from mailcore.simulator.simulate import simulate

__all__ = ["chances", "main", "million"]

DESTINATIONS = 2_000


def chances(name: str) -> Chance:
    """Returns the random generator of the tables in docs/scheduler.md."""
    return random.Random(f"1 {name}")


def million(entries: int) -> Scenario:
    """Returns a scenario with ``entries`` messages of one recipient each."""
    return Scenario(
        parameters=Parameters(transports={"smtp": TransportParameters(process_limit=500)}),
        next_hops={
            "": NextHop(transaction_s=Distribution.parse("lognormal(0.3, 1.5)"), processes=50, deferred_share=0.02)
        },
        backlog=Backlog(
            mail={
                "a": Mail(
                    messages=entries,
                    age_s=100,
                    destinations=tuple((f"smtp:d{n}.example", 1.0) for n in range(DESTINATIONS)),
                )
            }
        ),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Tables and speed of the simulator.")
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--tables", action="store_true", help="no measurement")
    arguments = parser.parse_args()
    rows = [
        row_of(test, feedback, simulate(scenario_of(test, feedback), chances))
        for test in TESTS
        for feedback in FEEDBACKS
    ]
    print("\n".join(markdown(rows)))
    if arguments.tables:
        return
    scenario = million(arguments.entries)
    wall, cpu = time.perf_counter(), time.process_time()
    outcome = simulate(scenario, chances)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"\n{outcome.entries} entries, {outcome.events} events, {outcome.simulated_s:.0f} s simulated: {wall:.1f} s, "
        f"{cpu:.1f} s of CPU, {1e6 * cpu / outcome.entries:.1f} us an entry, {memory_mb:.0f} MB"
    )


if __name__ == "__main__":
    main()
