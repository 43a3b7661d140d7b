"""Sets overrides: values tuned live over the configuration. A change is put in force, into tuned.toml and into the journal,
and then answered.

Laws: a value that would not survive a restart is not in force either. Times are wall-clock here and in the file; the scheduler
has its own clock. The scheduler decides which values a scope allows, and which of them is in force.

Keeps law: override-survives-restart (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import math
from typing import Any

from mailcore.config.live_value import known_transport, naming_argument, settable, spelled_scope
from mailcore.config.tuned import Tuned
from mailcore.config.tuned_check import WHY_NOT_FATAL, ignored
from mailcore.frames import Request
from mailcore.manager.context import ManagerContext
from mailcore.manager.orders import BadRequest
from mailcore.manager_answers import InForce, Transports, ValueSet
from mailcore.queue.records import Administrative
from mailcore.scheduler.feedback import Feedback
from mailcore.scheduler.parameters import (
    DESTINATION_SCOPE,
    GLOBAL_SCOPE,
    SUSPENDED_UNTIL,
    TRANSPORT_SCOPE,
)
from mailcore.scheduler.percent import value_of
from mailcore.scheduler.tuning import Layer, Origin

__all__ = ["Overrides"]

SCOPES_SHOWN = 1_000  # of destinations with values of their own, in one answer
_ORIGINS = {Layer.CONFIGURED: "configuration", Layer.LIVE: "tuned", Layer.TIMED: "tuned"}
_OF_DESTINATIONS = [name for name in DESTINATION_SCOPE if name != SUSPENDED_UNTIL]


class Overrides:
    """Sets and removes tuned values, and lists parameters with their sources."""

    def __init__(self, context: ManagerContext, tuned: Tuned) -> None:
        self.context = context
        self.tuned = tuned

    def load(self) -> None:
        """Puts the values in force that were set before this start. Logs each that is no longer allowed, and skips it."""
        context, tuned = self.context, self.tuned
        if tuned.damage:
            context.log.failed("manager", tuned.damage)
        for scope, name, value, until in self._forget_ended():
            context.log.tuned_ended(scope, name, value, until, None)  # ended while the manager was not running
        stored = [(scope, name) for scope, values in tuned.values.items() for name in values]
        stored += [(scope, name) for scope, values in tuned.timed.items() for name in values]
        # Twice: of two values that must fit each other, one may only be allowed after the other is set.
        again = [each for each in stored if self._follow(*each)]
        told = self._tell_ignored()
        for scope, name in again:
            if (error := self._follow(scope, name)) and not told & {(scope,), (scope, name)}:
                context.log.tuned_ignored(str(tuned.path), f"[{scope}] {error}; {WHY_NOT_FATAL}")

    def _tell_ignored(self) -> set[tuple[str | int, ...]]:
        """Logs each key of the file that is not in force; returns the keys. A file that can't be read was reported before."""
        context, path = self.context, self.tuned.path
        try:
            faults = ignored(path, context.settings)
        except (OSError, ValueError):
            return set()
        for fault in faults:
            context.log.tuned_ignored(f"{path}:{fault.line}", str(fault))
        return {fault.key for fault in faults}

    def tell_ended(self) -> None:
        """Logs overrides that have expired."""
        context = self.context
        ended = context.scheduler.tuning.ended
        while ended:
            over = ended.popleft()
            value, holds = over.value, context.scheduler.get(over.scope, over.parameter)
            if over.parameter == SUSPENDED_UNTIL:
                value, holds = (self._on_wall(each) if isinstance(each, float) else None for each in (value, holds))
            context.log.tuned_ended(over.scope, over.parameter, _plain(value), self._on_wall(over.until), _plain(holds))
        self._forget_ended()

    def _forget_ended(self) -> list[tuple[str, str, Any, float]]:
        """Removes expired overrides from the file, too; otherwise the next start would log them again. Returns them."""
        ended = self.tuned.forget_ended(SUSPENDED_UNTIL, self.context.wall())
        if ended:
            with contextlib.suppress(OSError):  # logged twice then; expired all the same
                self.tuned.save()
        return ended

    # -- listing

    def listed(self, arguments: dict[str, Any]) -> Transports:
        """Returns the values in force: global ones, of transports, and of destinations with values of their own.

        With a ``destination``: all that is in force for it, and ``suspended_until`` (None: until it is resumed) while it is
        suspended.
        """
        settings = self.context.settings
        self.tuned.forget_ended(SUSPENDED_UNTIL, self.context.wall())
        if asked := str(arguments.get("destination") or ""):
            if ":" not in asked:
                raise BadRequest(f"destination: {asked!r} is not transport:next hop", argument="destination")
            scope = spelled_scope(settings, asked, "destination")
            in_force = {name: self._shown(scope, name) for name in _OF_DESTINATIONS}
            if self._is_suspended(scope):
                in_force[SUSPENDED_UNTIL] = self._shown(scope, SUSPENDED_UNTIL)
            return Transports(scopes={scope: in_force})
        answer = {"": {name: self._shown("", name) for name in GLOBAL_SCOPE}}
        for transport in sorted(settings.transports):
            answer[transport] = {name: self._shown(transport, name) for name in TRANSPORT_SCOPE}
        own: dict[str, dict[str, None]] = {}
        configured = {f"{name}:{pattern}": values for name, each in settings.transports.items()
                      for pattern, values in each.destinations.items()}  # fmt: skip
        for layer in (configured, self.tuned.values, self.tuned.timed):
            for scope, values in layer.items():
                if ":" in scope:
                    own.setdefault(scope, {}).update(dict.fromkeys(name for name in values if name in _OF_DESTINATIONS))
        for scope in sorted(scope for scope, names in own.items() if names)[:SCOPES_SHOWN]:
            answer[scope] = {name: self._shown(scope, name) for name in own[scope]}
        return Transports(scopes=answer)

    def _shown(self, scope: str, name: str) -> InForce:
        origin: Origin = self.context.scheduler.origin(scope, name)
        shown = InForce(value=_plain(origin.value), origin=self._words_of(origin, name))
        if name == SUSPENDED_UNTIL:  # a time itself
            shown.value = self._on_wall(origin.value) if isinstance(origin.value, int | float) else None
        elif origin.until is not None:
            shown.until = self._on_wall(origin.until)
        if origin.scope != scope:
            shown.scope = origin.scope
        return shown

    def _words_of(self, origin: Origin, name: str) -> str:
        """Returns where a value comes from: default, if neither the file nor an operator has set it."""
        settings = self.context.settings
        of_all = origin.layer is Layer.CONFIGURED and origin.scope in ("", *settings.transports)
        section = f"transports.{origin.scope}" if origin.scope else "scheduler"
        return "default" if of_all and f"{section}.{name}" not in settings.written else _ORIGINS[origin.layer]

    def _is_suspended(self, scope: str) -> bool:
        """Returns whether the scope has a suspension of its own, or of a wider pattern."""
        return self.context.scheduler.get(scope, SUSPENDED_UNTIL) is not None

    # -- changes

    async def set(self, request: Request) -> ValueSet:
        """Carries out set, transport_set, suspend and resume, and returns the change. Raises FaultError, OSError.

        After a resume, ``suspended`` is the suspension of a wider pattern that is still in force, as in ``listed``.
        """
        context = self.context
        scope, parameter, value, until = self._asked(request)
        is_over = until is not None and until <= context.wall()
        with naming_argument(context.settings, scope, parameter, is_over=is_over):
            before = context.scheduler.get(scope, parameter)
            value = value_of(scope, parameter, value, before)
            context.scheduler.set(scope, parameter, self._live(parameter, value), context.now(), self._end(until))
        if isinstance(before, int | float) and parameter == SUSPENDED_UNTIL:
            before = self._on_wall(before)
        try:
            self.tuned.forget_ended(SUSPENDED_UNTIL, context.wall())
            self.tuned.set(scope, parameter, value, until)
        except OSError:
            with contextlib.suppress(ValueError):
                context.scheduler.set(scope, parameter, None, context.now())
            self._follow(scope, parameter)
            raise
        change = {"scope": scope, "parameter": parameter, "value": _plain(value), "before": _plain(before)}
        if until is not None:
            change["until"] = until
        context.queue.administer(Administrative("set", "", request.who, request.why, context.wall(), change))
        context.log.tuned(scope, parameter, value, request.who, request.why, until)
        await context.commit.wait()
        context.go_on()
        answer = ValueSet(scope=scope, parameter=parameter, value=_plain(value), before=_plain(before), until=until)
        if request.operation == "resume" and self._is_suspended(scope):
            answer.suspended = self._shown(scope, SUSPENDED_UNTIL)
        return answer

    def _asked(self, request: Request) -> tuple[str, str, Any, float | None]:
        """Returns scope, parameter, value, and its end in wall-clock seconds. Raises FaultError."""
        operation, arguments = request.operation, request.arguments
        scope = str(arguments.get("scope", arguments.get("transport", arguments.get("destination", ""))))
        parameter = str(arguments.get("parameter", SUSPENDED_UNTIL))
        value, until, for_s = arguments.get("value"), arguments.get("until"), arguments.get("for_s")
        if operation == "suspend":
            if until is not None and until <= self.context.wall():
                raise BadRequest("until: the time is over; give a time that is to come", argument="until")
            value, until = math.inf if until is None else until, None
        elif operation != "resume":
            settable(parameter)
            if value is None and not (until is None and for_s is None):
                raise BadRequest(
                    f"{parameter}: default cannot be set for a time; allowed: a value, or default permanently",
                    argument="value",
                )
        if value is not None and not isinstance(value, bool | int | float | str):
            raise BadRequest(f"{parameter}: a number or text is needed, not {value!r}", argument="value")
        if operation == "transport_set":
            known_transport(self.context.settings, scope, f"transport: there is none named {scope!r}", "transport")
        if operation in ("suspend", "resume") and ":" not in scope:
            raise BadRequest(f"destination: {scope!r} is not transport:next hop", argument="destination")
        if ":" in scope:
            argument = "destination" if "destination" in arguments else "scope"
            scope = spelled_scope(self.context.settings, scope, argument)
        if for_s is not None:
            until = self.context.wall() + float(for_s)
        return scope, parameter, value, until

    def _follow(self, scope: str, parameter: str) -> ValueError | None:
        """Sets the stored values in the scheduler; returns the error if one is not allowed."""
        context, tuned = self.context, self.tuned
        try:
            if (lasting := tuned.get(scope, parameter)) is not None:
                context.scheduler.set(scope, parameter, self._live(parameter, lasting), context.now())
            if (timed := tuned.get_timed(scope, parameter)) is not None:
                context.scheduler.set(scope, parameter, timed[0], context.now(), self._end(timed[1]))
        except ValueError as error:
            return error
        return None

    def _live(self, parameter: str, value: Any) -> Any:
        """Returns the value as the scheduler takes it: times on its own clock."""
        if parameter != SUSPENDED_UNTIL or not isinstance(value, int | float):
            return value
        return self._end(value)

    def _end(self, wall: float | None) -> float | None:
        return None if wall is None else self.context.now() + wall - self.context.wall()

    def _on_wall(self, time: float) -> float | None:
        """Returns wall-clock seconds, rounded to milliseconds (two clocks); None for infinity, which JSON lacks."""
        return None if math.isinf(time) else round(self.context.wall() + time - self.context.now(), 3)


def _plain(value: object) -> Any:
    """Returns the value as answers, records and the file hold it."""
    if isinstance(value, Feedback):
        return str(value)
    return None if isinstance(value, float) and math.isinf(value) else value
