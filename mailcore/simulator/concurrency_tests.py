"""The tests of concurrency feedback in Postfix's SCHEDULER_README ("Results for delivery to concurrency-limited servers").

Set-up: a server that takes 1 s for a recipient, with 5 processes (10 for the limiter) and
listen(2) with the same number; one message of 2 000 recipients (20 000 for the greeting), 2 recipients a delivery,
destination_concurrency_limit 20, initial_destination_concurrency 20 (5 for the limiter), no connection caching. Only first
attempts count.

SCHEDULER_README does not state the following. A backlog of 5 lets 6 connections wait, as on Linux, whose accept queue is full
only above it. The seventh is dropped (30 s) or appears to be connected (300 s). The failed cohort limit is the default, 1:
failures are mixed with successes, each of which resets the count to 0, so the destination is never dead. Servers are not
quite even: a delivery takes 20 ms more on average, at random, and a connection 10 ms. Otherwise five of them would always end
in the same instant, and the window would grow by several before the first 421 arrives.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mailcore.scheduler.parameters import Parameters, TransportParameters
from mailcore.simulator.backlog import Backlog, Listed
from mailcore.simulator.distribution import Distribution
from mailcore.simulator.next_hop import NextHop
from mailcore.simulator.outcome import Outcome
from mailcore.simulator.scenario import Change, Limits, Scenario
from mailcore.simulator.site import Client

__all__ = ["FEEDBACKS", "TESTS", "ConcurrencyTest", "Row", "markdown", "row_of", "scenario_of"]

DESTINATION = "smtp:server.example"
FEEDBACKS = {"1/N": "1/concurrency", "1/√N": "1/sqrt_concurrency", "1": "1"}
SCATTER_S = 0.02
CONNECT_S = 0.01
_PREFIX = "destination_concurrency_"


@dataclass(frozen=True, slots=True)
class ConcurrencyTest:
    """One of the measurements of SCHEDULER_README, with its setup and its figures."""

    name: str
    recipients: int
    initial: int
    server: NextHop
    document: dict[str, tuple[float, float]]  # feedback -> share deferred in percent, mean client concurrency
    theory: dict[str, str]


def _server(processes: int, listen_full: str = "dropped", connections_max: int = 0) -> NextHop:
    return NextHop(
        transaction_s=Distribution("exponential", (SCATTER_S,)),
        recipient_s=Distribution("constant", (1.0,)),
        connect_s=CONNECT_S,
        processes=processes,
        listen=processes + 1,
        listen_full=listen_full,
        connections_max=connections_max,
    )


TESTS = (
    ConcurrencyTest(
        "30 s connect time-out", 2_000, 20, _server(5),
        {"1/N": (9.9, 19.4), "1/√N": (10.4, 19.6), "1": (10.1, 19.5)}, {},
    ),
    ConcurrencyTest(
        "300 s greeting time-out", 20_000, 20, _server(5, "accepted"),
        {"1/N": (1.16, 19.8), "1/√N": (1.21, 19.9), "1": (1.18, 20.0)}, {},
    ),
    ConcurrencyTest(
        "limiter (421)", 2_000, 5, _server(10, connections_max=5),
        {"1/N": (16.5, 5.17), "1/√N": (24.5, 5.28), "1": (49.7, 5.63)}, {"1/N": "1/6", "1/√N": "1/4", "1": "1/2"},
    ),
)  # fmt: skip


def scenario_of(test: ConcurrencyTest, feedback: str) -> Scenario:
    """Returns the scenario of a test; ``feedback`` is a key of FEEDBACKS, for good and for bad deliveries alike."""
    value = FEEDBACKS[feedback]
    return Scenario(
        parameters=Parameters(
            transports={"smtp": TransportParameters(destination_concurrency_limit=20, destination_recipient_limit=2)}
        ),
        changes=(
            Change(scope="smtp", parameter="initial_destination_concurrency", value=test.initial),
            Change(scope="smtp", parameter=f"{_PREFIX}positive_feedback", value=value),
            Change(scope="smtp", parameter=f"{_PREFIX}negative_feedback", value=value),
        ),
        next_hops={DESTINATION: test.server},
        backlog=Backlog(listed=(Listed(recipients=((DESTINATION, test.recipients),)),)),
        client=Client(connection_idle_s=0),
        limits=Limits(first_attempts_only=True),
    )


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table: SCHEDULER_README's figures and ours."""

    test: str
    feedback: str
    theory: str
    document_deferred: float  # percent
    deferred: float
    document_concurrency: float
    concurrency: float


def row_of(test: ConcurrencyTest, feedback: str, outcome: Outcome) -> Row:
    """Returns a row that compares the figures of SCHEDULER_README with an outcome."""
    deferred, concurrency = test.document[feedback]
    return Row(
        test=test.name,
        feedback=feedback,
        theory=test.theory.get(feedback, ""),
        document_deferred=deferred,
        deferred=100 * outcome.first_deferred_share,
        document_concurrency=concurrency,
        concurrency=outcome.destinations[0].concurrency_mean,
    )


def markdown(rows: Iterable[Row]) -> list[str]:
    """Returns the lines of the tables, one table per test, as in docs/scheduler.md."""
    lines: list[str] = []
    name = ""
    for row in rows:
        if row.test != name:
            name = row.test
            lines += ["", f"**{name}**", ""]
            lines += ["| feedback | deferred, document | simulator | clients at once, document | simulator | theory |"]
            lines += ["|---|---|---|---|---|---|"]
        digits = 2 if row.document_deferred < 2 else 1
        clients = 2 if row.document_concurrency < 10 else 1
        lines.append(
            f"| {row.feedback} | {row.document_deferred:.{digits}f} % | {row.deferred:.{digits}f} % | "
            f"{row.document_concurrency:.{clients}f} | {row.concurrency:.{clients}f} | {row.theory} |"
        )
    return lines[1:]
