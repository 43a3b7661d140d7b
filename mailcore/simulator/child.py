"""The child process that simulates: it reads a question and writes progress and the answer, one JSON object per line.

    python -m mailcore.simulator.child PARENT <question >answer

The scheduler runs twice, with the values in force and with the changes asked for, over the same mail and equally fast next
hops. A backlog that would take too long is scaled down, and so are all times and limits that depend on its length: waits
before the next attempt, ages, pauses, recipients in memory, the rate of a next hop. The duration and the number of concurrent
deliveries stay the same. So the simulation covers less time, and its outcome is scaled up. The process ends when its parent
ends.
"""

from __future__ import annotations

import ctypes
import heapq
import math
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import msgspec

from mailcore.config.scheduler_parameters import parameters_of
from mailcore.scheduler.parameters import GLOBAL_SCOPE, SUSPENDED_UNTIL, Parameters
from mailcore.scheduler.scheduler import Scheduler
from mailcore.scheduler.tuning import Tuning
from mailcore.simulator.backlog import Backlog, Mail
from mailcore.simulator.distribution import Chance, Distribution
from mailcore.simulator.next_hop import NextHop
from mailcore.simulator.outcome import Outcome
from mailcore.simulator.question import Question, Value, decoded
from mailcore.simulator.result import SimulationResult, result_of
from mailcore.simulator.sampled import SampledLane, SampledMail, SampledMessage, scaled
from mailcore.simulator.scenario import Change, Limits, Scenario
from mailcore.simulator.simulate import simulate
from mailcore.simulator.site import Client

__all__ = ["answered", "main"]

NICE = 10  # mail comes first
TOLD_EVERY_S = 0.25
DESTINATIONS_SHOWN = 5
STEP_S = 0.1  # the first one: a small backlog is done in seconds
IN_MEMORY_MIN = 2_000  # a smaller active set would keep a destination's deliveries waiting for messages
_PR_SET_PDEATHSIG = 1  # prctl(2)
_MEMORY = ("message_active_limit", "message_recipient_limit")
# In this order: the shortest may not be longer than the longest.
_WAITS = (
    "minimal_backoff_time", "maximal_backoff_time", "maximal_queue_lifetime", "bounce_queue_lifetime", "transport_retry_time",
)  # fmt: skip


class ChildLine(msgspec.Struct, kw_only=True):
    """A line of the child's output: progress, or in the last one the results or an error."""

    done: bool = False
    progress: float = 0.0  # from 0 to 1, of the stage
    stage: str = ""  # before or after
    before: SimulationResult | None = None
    after: SimulationResult | None = None
    assumptions: list[str] = []
    error: str = ""


Tell = Callable[[ChildLine], None]


def main() -> int:
    """Reads a question from standard input, simulates, and writes the answer to standard output. Returns the exit status."""
    os.nice(NICE)
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(sys.argv[1]):  # it ended before we could say so
        return 1
    question = decoded(sys.stdin.buffer.read())

    def tell(part: ChildLine) -> None:
        sys.stdout.buffer.write(msgspec.json.encode(part) + b"\n")
        sys.stdout.buffer.flush()

    try:
        tell(answered(question, tell, time.monotonic))
    except ValueError as error:  # a value that the scheduler does not allow, though it was checked
        tell(ChildLine(error=str(error)))
    return 0


def answered(question: Question, tell: Tell, clock: Callable[[], float]) -> ChildLine:
    """Returns the last line: before, after, assumptions. ``tell`` gets progress. Raises ValueError."""
    whole = _mail_of(question)
    entries = _entries(whole, question)
    share = min(1.0, question.entries_max / entries) if entries else 1.0
    runs = _Runs(question, whole, share, tell, clock)
    before = runs.result("before", [])
    after = runs.result("after", question.asked)
    return ChildLine(before=before, after=after, assumptions=runs.assumptions(entries), done=True)


class _Runs:
    """The simulations of one question."""

    def __init__(
        self, question: Question, whole: SampledMail, share: float, tell: Tell, clock: Callable[[], float]
    ) -> None:
        self._question = question
        self._whole = whole
        self._share = share
        self._mail = scaled(whole, share)
        self._tell = tell
        self._clock = clock
        self._told_at = 0.0
        self._begun_at = clock()
        self._truncated = False
        self._until_s = question.duration_s * share  # simulated seconds

    def result(self, stage: str, asked: list[Value]) -> SimulationResult:
        until = self._begun_at + self._question.patience_s * (0.5 if stage == "before" else 1.0)
        outcome = self._run(stage, asked, until)
        if outcome.end in ("stopped", "events_max"):
            self._truncated = True
            self._until_s = min(self._until_s, outcome.simulated_s)  # the other one ends there too: counts are compared
        result = result_of(outcome, self._share, self._whole.messages, self._mail.recipients)
        result.truncated = self._truncated
        return result

    def _run(self, stage: str, asked: list[Value], until: float) -> Outcome:
        question = self._question
        until_s = self._until_s
        scenario = _scenario(question, self._mail, asked, self._share, until_s)
        coming = sum(question.arriving.values()) * until_s / question.recipients_of_one
        finished_max = self._mail.messages + min(coming, question.entries_max)  # the backlog is done long before that
        total = max(finished_max, 1)

        def watch(now: float, finished: int) -> bool:
            at = self._clock()
            if at - self._told_at >= TOLD_EVERY_S:
                self._told_at = at
                done = max(finished / total, now / until_s)
                self._tell(ChildLine(progress=round(min(done, 1.0), 3), stage=stage))
            return at < until and (finished < finished_max or coming <= question.entries_max)

        def chances(name: str) -> Chance:
            return random.Random(f"{question.seed} {name}")  # noqa: S311 - chance that can be repeated is what is wanted

        return simulate(scenario, chances, watch)

    def assumptions(self, entries: int) -> list[str]:
        said: list[str] = []
        if self._share < 1:
            said.append(
                f"So that an answer comes soon, {100 * self._share:.2g} % of the {entries} deliveries were simulated, as much "
                "of each destination's, with waits that are as much shorter, and the outcome was stretched. When the very last "
                "deferred recipients are done is uncertain then."
            )
        if self._truncated:
            said.append("There was no time to simulate all of it; what is shown ends before.")
        return said


# -- the mail


def _mail_of(question: Question) -> SampledMail:
    lanes = []
    for lane in question.lanes:
        parts = tuple(
            tuple(
                SampledMessage(0.0 if lane.is_new else age_s, due_s, tuple((name, count) for name, count in groups))
                for age_s, due_s, groups in part
            )
            for part in lane.parts
        )
        lanes.append(SampledLane(lane.is_new, lane.recipients, parts))
    return SampledMail(tuple(lanes), tuple(question.destinations.items()))


def _entries(mail: SampledMail, question: Question) -> int:
    """Estimates how many deliveries the mail needs, from the number of recipients per destination of messages in the
    sample."""
    groups: dict[str, list[int]] = {}
    for lane in mail.lanes:
        for part in lane.parts:
            for message in part:
                for name, count in message.groups:
                    groups.setdefault(name, []).append(count)
    scheduler = Scheduler(parameters_of(question.settings))
    for each in (*question.live, *question.asked):
        scheduler.set(each.scope, each.parameter, each.value, 0.0)
    limits: dict[str, int] = {}
    entries = 0.0
    for name, recipients in mail.destinations:
        counts = groups.get(name)
        if not counts:
            entries += recipients
            continue
        limit = limits.get(name)
        if limit is None:
            value = scheduler.get(name, "destination_recipient_limit")
            limit = limits[name] = int(value) if isinstance(value, int) else 1
        entries += recipients * sum(math.ceil(count / limit) for count in counts) / sum(counts)
    return math.ceil(entries)


# -- the scenario


def _scenario(question: Question, mail: SampledMail, asked: list[Value], share: float, until_s: float) -> Scenario:
    settings = question.settings
    deliverer = settings.deliverer
    parameters = parameters_of(settings)
    values = [*question.live, *asked]
    return Scenario(
        parameters=parameters,
        changes=(*_shorter(parameters, share), *(_change(each, share) for each in values)),
        next_hops={scope: _next_hop(hop, share) for scope, hop in question.hops.items()},
        backlog=Backlog(sampled=mail if mail.recipients else None, mail=_arriving(question)),
        client=Client(
            concurrency=deliverer.concurrency * deliverer.processes,
            connect_timeout_s=deliverer.connect_timeout_s,
            greeting_timeout_s=deliverer.greeting_timeout_s,
            connection_idle_s=deliverer.connection_idle_s,
            connection_uses_max=deliverer.connection_uses_max,
        ),
        limits=Limits(until_s=until_s, destinations_max=DESTINATIONS_SHOWN, step_s=STEP_S),
        watched=_watched(question),
        retry_ladder_s=tuple(step * share for step in settings.queue.retry_ladder_s),
    )


def _watched(question: Question) -> tuple[str, ...]:
    """Returns the destinations with the most mail among those that the changes touch, those named exactly in front."""
    weights = {name: float(count) for name, count in question.destinations.items()}
    for name, per_s in question.arriving.items():
        weights[name] = weights.get(name, 0.0) + per_s * question.duration_s
    scopes = sorted({each.scope for each in question.asked if each.scope}, key=lambda scope: ":" not in scope)
    watched: dict[str, None] = {}
    for scope in scopes:
        touched = Tuning.matching(scope, weights)
        watched |= dict.fromkeys(heapq.nlargest(DESTINATIONS_SHOWN, touched, key=lambda name: weights[name]))
    return tuple(watched)


def _change(value: Value, share: float) -> Change:
    until_s = None if value.until_s is None else value.until_s * share
    given = value.value
    if share < 1 and isinstance(given, int | float):
        if value.parameter == SUSPENDED_UNTIL:
            given = given * share
        elif not value.scope:
            given = _scaled_value(value.parameter, given, share)
    return Change(scope=value.scope, parameter=value.parameter, value=given, until_s=until_s)


def _shorter(parameters: Parameters, share: float) -> Iterator[Change]:
    """Yields changes that shorten waits and limits in memory by ``share``: with less mail nothing would have to wait to
    be read otherwise."""
    for name in (*_WAITS, *_MEMORY) if share < 1 else ():
        yield Change(scope="", parameter=name, value=_scaled_value(name, getattr(parameters, name), share))


def _scaled_value(name: str, value: float, share: float) -> float:
    bounds = GLOBAL_SCOPE[name]
    if name in _MEMORY:
        return max(math.ceil(value * share), min(IN_MEMORY_MIN, int(value)))
    return max(value * share, bounds.low) if name in _WAITS else value


def _next_hop(values: dict[str, Any], share: float) -> NextHop:
    made = dict(values)
    for name in ("transaction_s", "recipient_s"):
        if name in made:
            made[name] = Distribution.parse(made[name])
    if "dead" in made:
        made["dead"] = tuple((start * share, end * share) for start, end in made["dead"])
    hop = replace(NextHop(), **made)
    if not hop.rate_recipients or share >= 1:
        return hop
    taken = max(1, round(hop.rate_recipients * share))  # in a period that is as much shorter
    return replace(hop, rate_recipients=taken, rate_period_s=hop.rate_period_s * taken / hop.rate_recipients)


def _arriving(question: Question) -> dict[str, Mail]:
    per_s = sum(question.arriving.values()) / question.recipients_of_one
    if per_s <= 0:
        return {}
    recipients = max(1, round(question.recipients_of_one))
    return {
        "arriving": Mail(
            per_s=per_s * question.recipients_of_one / recipients,
            recipients=Distribution("constant", (float(recipients),)),
            destinations=tuple((name, weight) for name, weight in question.arriving.items() if weight > 0),
        )
    }


if __name__ == "__main__":
    sys.exit(main())
