"""What the manager answers about itself: live state, sizes, where to browse, why a message waits, parameters."""

from __future__ import annotations

import dataclasses
import math
import os
from typing import Any

from mailcore.process.core import Core
from mailcore.process.flow import Flow
from mailcore.process.orders import BadRequest
from mailcore.process.wire import Request
from mailcore.queue.records import Administrative
from mailcore.routing.route import RouteError, parse_route
from mailcore.scheduler.parameters import GLOBAL_SCOPE, SUSPENDED_UNTIL, TRANSPORT_SCOPE
from mailcore.tuned import Tuned

__all__ = ["State"]

NAMES_MAX = 1_000  # destinations in one answer
WORKING_MAX = 5_000  # queue ids in one question


class State:
    def __init__(self, core: Core, flow: Flow, tuned: Tuned) -> None:
        self.core = core
        self.flow = flow
        self.tuned = tuned
        self.started_at = core.wall()
        self.receivers: dict[str, int] = {}  # lane -> pid
        self.recovered = 0

    def state(self, arguments: dict[str, Any]) -> dict[str, Any]:
        core = self.core
        queue = core.queue
        positions = core.checkpoints.newest
        return {
            "pid": os.getpid(),
            "uptime_s": core.wall() - self.started_at,
            "stalled": core.stalled,
            "tuned_damage": self.tuned.damage,
            "active_messages": len(queue.active),
            "recovered_waiting": len(queue.recovered),
            "recovered_at_start": self.recovered,
            "counters": dict(core.counters),
            "receivers": dict(self.receivers),
            "deliverers": [
                {"number": link.number, "pid": link.pid, "in_flight": len(link.flights), "capacity": link.capacity}
                for link in self.flow.deliverers
            ],
            "lanes": {
                lane: {"runner": runner.position, "end": runner.readable_end, "interval_s": runner.interval_s}
                for lane, runner in sorted(queue.runners.items())
            },
            "journal": {"suffix": positions.suffix, "end": queue.journal.end, "durable": queue.journal.durable},
            "positions": {"sequence": positions.sequence, "written_at": positions.written_at},
            "scheduler": core.scheduler.snapshot(core.now(), 100),
        }

    def size(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return self.core.queue.sizes.summary()

    def cut(self, arguments: dict[str, Any]) -> dict[str, Any]:
        lanes = {}
        for lane, runner in self.core.queue.runners.items():
            lowest = self.core.queue.floor(lane).lowest()
            browse = runner.position if lowest is None else min(lowest, runner.position)
            lanes[lane] = [browse, runner.position, runner.readable_end]
        return {"lanes": lanes}

    def working(self, arguments: dict[str, Any]) -> dict[str, Any]:
        queue_ids = arguments.get("queue_ids", ())
        if len(queue_ids) > WORKING_MAX:
            raise BadRequest(f"queue_ids: {len(queue_ids)} of them; at most {WORKING_MAX} are allowed")
        waiting = {known.queue_id: known for known, _ in self.core.queue.recovered}
        answer: dict[str, Any] = {}
        for queue_id in queue_ids:
            active = self.core.queue.active.get(queue_id)
            if active is not None:
                answer[queue_id] = {
                    "remaining": active.remaining,
                    "in_flight": active.in_flight,
                    "lane": active.lane,
                    "offset": active.offset,
                    "generation": active.envelope.generation,
                    "done": sorted(active.done)[:NAMES_MAX],
                    "replies": {number: reply for number, (_, reply) in list(active.deferred.items())[:NAMES_MAX]},
                }
            elif queue_id in waiting:
                known = waiting[queue_id]
                answer[queue_id] = {
                    "remaining": max(known.recipients - len(known.done), 0),
                    "in_flight": 0,
                    "lane": known.place.lane,
                    "offset": known.place.offset,
                    "generation": known.generation,
                    "done": sorted(known.done)[:NAMES_MAX],
                    "replies": {},
                }
        return answer

    def locate(self, arguments: dict[str, Any]) -> dict[str, Any] | None:
        active = self.core.queue.active.get(str(arguments.get("queue_id", "")))
        return None if active is None else {"lane": active.lane, "offset": active.offset}

    def explain(self, arguments: dict[str, Any]) -> list[dict[str, Any]]:
        core = self.core
        queue_id = str(arguments.get("queue_id", ""))
        return core.scheduler.explain(queue_id, core.now())

    # -- parameters

    def load_tuned(self) -> None:
        """Values changed live before this start. One that is no longer allowed is reported and left alone."""
        core = self.core
        if self.tuned.damage:
            core.log.failed("manager", self.tuned.damage)
        for scope, parameters in self.tuned.values.items():
            for name, value in parameters.items():
                try:
                    core.scheduler.set(scope, name, self._live(name, value), core.now())
                except ValueError as error:
                    core.log.failed("manager", f"{self.tuned.path}: {error}")

    def transports(self, arguments: dict[str, Any]) -> dict[str, Any]:
        get = self.core.scheduler.get
        answer: dict[str, Any] = {"": {name: self._value("", name, get("", name)) for name in GLOBAL_SCOPE}}
        for transport in sorted(self.core.settings.transports):
            answer[transport] = {name: self._value(transport, name, get(transport, name)) for name in TRANSPORT_SCOPE}
        return answer

    def _value(self, scope: str, name: str, value: float | None) -> dict[str, Any]:
        origin = "tuned" if name in self.tuned.values.get(scope, {}) else "configuration"
        return {"value": value, "origin": origin}

    def destinations(self, arguments: dict[str, Any]) -> dict[str, Any]:
        limit = min(int(arguments.get("limit") or 100), NAMES_MAX)
        core = self.core
        snapshot = core.scheduler.snapshot(core.now(), limit)
        sizes = core.queue.sizes.summary()["destinations"]
        offset = core.wall() - core.now()
        suspended = {
            scope: values[SUSPENDED_UNTIL]
            for scope, values in self.tuned.values.items()
            if values.get(SUSPENDED_UNTIL, 0) > core.wall()
        }
        return {
            "destinations": _on_wall_clock(snapshot.get("destinations"), offset),
            "queued": dict(sorted(sizes.items(), key=lambda item: -item[1])[:limit]),
            "suspended": {scope: None if math.isinf(until) else until for scope, until in suspended.items()},
        }

    async def set(self, request: Request) -> dict[str, Any]:
        """set, transport_set, suspend, resume: in force, in tuned.toml and in the journal, then answered."""
        core, arguments = self.core, request.arguments
        scope = str(arguments.get("scope", arguments.get("transport", arguments.get("destination", ""))))
        parameter = str(arguments.get("parameter", SUSPENDED_UNTIL))
        value = arguments.get("value")
        if request.operation == "suspend":
            until = arguments.get("until")
            value = math.inf if until is None else until
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise BadRequest(f"{parameter}: a number is needed, not {value!r}")
        if request.operation == "transport_set" and scope not in core.settings.transports:
            raise BadRequest(f"transport: there is none named {scope!r}")
        if request.operation in ("suspend", "resume") and ":" not in scope:
            raise BadRequest(f"destination: {scope!r} is not transport:next hop")
        if ":" in scope:
            scope = self._destination(scope)
        try:
            before = core.scheduler.get(scope, parameter)
            core.scheduler.set(scope, parameter, self._live(parameter, value), core.now())
        except ValueError as error:
            raise BadRequest(str(error)) from error
        before = self._on_wall(parameter, before)
        try:
            self.tuned.forget_ended(SUSPENDED_UNTIL, core.wall())
            self.tuned.set(scope, parameter, value)
        except OSError:
            # What would not survive a restart is not in force either.
            core.scheduler.set(scope, parameter, self._live(parameter, self.tuned.get(scope, parameter)), core.now())
            raise
        change = {"scope": scope, "parameter": parameter, "value": _finite(value), "before": _finite(before)}
        core.queue.administer(Administrative("set", "", request.who, request.why, core.wall(), change))
        core.log.tuned(scope, parameter, value, request.who, request.why)
        await core.commit.wait()
        core.go_on()
        return change

    def _destination(self, text: str) -> str:
        """A destination in its one spelling, as the routes give it. Raises BadRequest."""
        try:
            route = parse_route(text)
        except RouteError as error:
            raise BadRequest(f"destination: {error}") from error
        transports = self.core.settings.transports
        if route.transport not in transports:
            raise BadRequest(
                f"destination: there is no transport {route.transport!r}; there are {', '.join(transports)}"
            )
        if route.port == self.core.settings.deliverer.port:
            route = dataclasses.replace(route, port=None)
        return str(route)

    def _live(self, parameter: str, value: float | None) -> float | None:
        """As the scheduler has it: times on its own clock."""
        if parameter != SUSPENDED_UNTIL or value is None:
            return value
        return self.core.now() + value - self.core.wall()

    def _on_wall(self, parameter: str, value: float | None) -> float | None:
        if parameter != SUSPENDED_UNTIL or value is None:
            return value
        return self.core.wall() + value - self.core.now()


def _finite(value: float | None) -> float | None:
    """JSON has no infinity; "until further notice" is none at all there."""
    return None if value is None or math.isinf(value) else value


def _on_wall_clock(destinations: Any, offset: float) -> Any:
    """The scheduler's times are its own clock's; people want the wall's."""
    if not isinstance(destinations, list | dict):
        return destinations
    rows = destinations if isinstance(destinations, list) else list(destinations.values())
    for row in rows:
        if isinstance(row, dict) and isinstance(row.get(SUSPENDED_UNTIL), int | float):
            until = row[SUSPENDED_UNTIL]
            row[SUSPENDED_UNTIL] = None if math.isinf(until) else until + offset
    return destinations
