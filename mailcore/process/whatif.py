"""The child that simulates: a question in, progress and the answer out, a JSON object a line.

    python -m mailcore.process.whatif PARENT <question >answer

The scheduler runs twice, with what is in force and with what is asked, over the same mail and equally quick next hops. A
backlog that would take too long is made smaller in proportion; a second run with half of that tells which part of the time
grows with the backlog and which does not, and the rest is extrapolated. It lives no longer than who asked.
"""

from __future__ import annotations

import ctypes
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

from mailcore.control.whatif_question import Question, Value, decoded
from mailcore.process.parameters import parameters_of
from mailcore.process.whatif_result import result_of
from mailcore.scheduler.parameters import Parameters
from mailcore.scheduler.scheduler import Scheduler
from mailcore.scheduler.simulate import simulate
from mailcore.scheduler.simulation.backlog import Backlog, Mail
from mailcore.scheduler.simulation.distribution import Chance, Distribution
from mailcore.scheduler.simulation.next_hop import NextHop
from mailcore.scheduler.simulation.outcome import Outcome
from mailcore.scheduler.simulation.sampled import SampledLane, SampledMail, SampledMessage, scaled
from mailcore.scheduler.simulation.scenario import Change, Limits, Scenario
from mailcore.scheduler.simulation.site import Client

__all__ = ["answered", "main"]

NICE = 10  # mail comes first
TOLD_EVERY_S = 0.25
DESTINATIONS_SHOWN = 5
IN_MEMORY_MIN = 2_000  # a smaller active set would keep a destination's deliveries waiting for messages
_PR_SET_PDEATHSIG = 1  # prctl(2)
_MEMORY = ("message_active_limit", "message_recipient_limit")

Tell = Callable[[dict[str, Any]], None]


def main() -> int:
    os.nice(NICE)
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(sys.argv[1]):  # it ended before we could say so
        return 1
    question = decoded(sys.stdin.buffer.read())

    def tell(part: dict[str, Any]) -> None:
        sys.stdout.buffer.write(msgspec.json.encode(part) + b"\n")
        sys.stdout.buffer.flush()

    try:
        tell(answered(question, tell, time.monotonic))
    except ValueError as error:  # a value that the scheduler does not allow, though it was checked
        tell({"error": str(error)})
    return 0


def answered(question: Question, tell: Tell, clock: Callable[[], float]) -> dict[str, Any]:
    """The last part: before, after, assumptions. ``tell`` gets progress. Raises ValueError."""
    whole = _mail_of(question)
    entries = _entries(whole, question)
    share = min(1.0, question.entries_max / entries) if entries else 1.0
    runs = _Runs(question, whole, share, tell, clock)
    before = runs.result("before", [])
    after = runs.result("after", question.asked)
    return {"before": before, "after": after, "assumptions": runs.assumptions(entries), "done": True}


class _Runs:
    """The simulations of one question."""

    def __init__(
        self, question: Question, whole: SampledMail, share: float, tell: Tell, clock: Callable[[], float]
    ) -> None:
        self._question = question
        self._whole = whole
        self._share = share
        self._tell = tell
        self._clock = clock
        self._told_at = 0.0
        self._begun_at = clock()
        self._truncated = False

    def result(self, stage: str, asked: list[Value]) -> dict[str, Any]:
        whole, share = self._whole, self._share
        until = self._begun_at + self._question.patience_s * (0.5 if stage == "before" else 1.0)
        outcome = self._run(stage, asked, share, until, 0.0, 1.0 if share >= 1 else 0.7)
        drained_s, stretch = outcome.drained_s, 1.0
        if share < 1:
            stretch = 1 / share
            if outcome.drained_s:
                half = self._run(stage, asked, share / 2, until, 0.7, 1.0)
                if half.drained_s is not None:
                    drained_s = _extrapolated(share, outcome.drained_s, half.drained_s)
                else:
                    drained_s = outcome.drained_s / share
                stretch = drained_s / outcome.drained_s
        duration_s = self._question.duration_s
        if drained_s is not None and drained_s > duration_s:
            drained_s = None
        self._truncated |= outcome.end in ("stopped", "events_max")
        return result_of(outcome, drained_s, stretch, share, whole.messages, duration_s)

    def _run(self, stage: str, asked: list[Value], share: float, until: float, low: float, high: float) -> Outcome:
        question = self._question
        mail = scaled(self._whole, share)
        scenario = _scenario(question, mail, asked, share)
        messages = max(mail.messages, 1)

        def watch(now: float, finished: int) -> bool:
            at = self._clock()
            if at - self._told_at >= TOLD_EVERY_S:
                self._told_at = at
                done = max(min(finished / messages, 1.0) if mail.messages else 0.0, now / question.duration_s)
                self._tell({"progress": round(low + (high - low) * min(done, 1.0), 3), "stage": stage})
            return at < until

        def chances(name: str) -> Chance:
            return random.Random(f"{question.seed} {name}")  # noqa: S311 - chance that can be repeated is what is wanted

        return simulate(scenario, chances, watch)

    def assumptions(self, entries: int) -> list[str]:
        said: list[str] = []
        if self._share < 1:
            said.append(
                f"So that an answer comes soon, {100 * self._share:.2g} % of the queued mail were simulated, in proportion for "
                "each destination, and then half of that: what grows with the mail was extrapolated to all "
                f"{entries} deliveries, and curves were stretched."
            )
        if self._truncated:
            said.append("There was no time to simulate to the end; what is shown ends before.")
        return said


def _extrapolated(share: float, at_share_s: float, at_half_s: float) -> float:
    """The time for all, which is a part that does not depend on the backlog and one in proportion to it."""
    slope = max(0.0, (at_share_s - at_half_s) / (share / 2))
    return at_share_s + slope * (1 - share)


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
    """About how many deliveries the mail is, from how many recipients a message of the sample has for a destination."""
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


def _scenario(question: Question, mail: SampledMail, asked: list[Value], share: float) -> Scenario:
    settings = question.settings
    deliverer = settings.deliverer
    parameters = parameters_of(settings)
    values = [*question.live, *asked]
    return Scenario(
        parameters=parameters,
        changes=(*map(_change, values), *_smaller_memory(parameters, values, share)),
        next_hops={scope: _next_hop(values) for scope, values in question.hops.items()},
        backlog=Backlog(sampled=mail if mail.recipients else None, mail=_arriving(question)),
        client=Client(
            concurrency=deliverer.concurrency * deliverer.processes,
            connect_timeout_s=deliverer.connect_timeout_s,
            greeting_timeout_s=deliverer.greeting_timeout_s,
            connection_idle_s=deliverer.connection_idle_s,
            connection_uses_max=deliverer.connection_uses_max,
        ),
        limits=Limits(until_s=question.duration_s, destinations_max=DESTINATIONS_SHOWN),
        retry_ladder_s=settings.queue.retry_ladder_s,
    )


def _change(value: Value) -> Change:
    given = value.value
    return Change(scope=value.scope, parameter=value.parameter, value=given, until_s=value.until_s)


def _smaller_memory(parameters: Parameters, values: list[Value], share: float) -> Iterator[Change]:
    """Less mail, and as much of it in memory in proportion: else none would have to wait to be read."""
    if share >= 1:
        return
    in_force: dict[str, Any] = {name: getattr(parameters, name) for name in _MEMORY}
    in_force.update({each.parameter: each.value for each in values if not each.scope and each.parameter in _MEMORY})
    for name, value in in_force.items():
        smaller = max(math.ceil(value * share), min(IN_MEMORY_MIN, int(value)))
        yield Change(scope="", parameter=name, value=smaller)


def _next_hop(values: dict[str, Any]) -> NextHop:
    distributions = {
        name: Distribution.parse(value) for name, value in values.items() if name in ("transaction_s", "recipient_s")
    }
    dead = {"dead": tuple(tuple(span) for span in values["dead"])} if "dead" in values else {}
    return replace(NextHop(), **values | distributions | dead)


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
