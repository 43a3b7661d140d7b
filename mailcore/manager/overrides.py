"""Sets overrides: values tuned live over the configuration. A change is put in force, into tuned.toml and into the journal,
and then answered.

Where nodes share their settings, the database of the nodes has the values, tuned.toml is this node's copy, and a change is in
the database before it is in force. Changes of other nodes, and of other shards of this one, come into the file;
``follow`` puts them in force.

Laws: a value that would not survive a restart is not in force either. Times are wall-clock here and in the file; the scheduler
has its own clock. The scheduler decides which values a scope allows, and which of them is in force.

Keeps law: override-survives-restart, law: settings-once (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import socket
from typing import Any

from mailcore.config.live_value import known_transport, naming_argument, settable, spelled_scope
from mailcore.config.managed_history import State
from mailcore.config.scheduler_parameters import parameters_of
from mailcore.config.shared_settings import TUNED, Shared
from mailcore.config.tuned import Timed, Tuned, Values, in_force, parsed, read, text_of, with_value
from mailcore.config.tuned_check import WHY_NOT_FATAL, ignored
from mailcore.faults import Code, FaultError
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
from mailcore.scheduler.scheduler import Scheduler
from mailcore.scheduler.tuning import Layer, Origin

__all__ = ["Overrides"]

FOLLOW_S = 0.5  # between two looks whether another node, or another shard of this one, has changed a value
TRIES = 5  # of a change, while other nodes change other values
SAME_END_S = 5.0  # two shards that are asked for the same value for some seconds name ends this close
SCOPES_SHOWN = 1_000  # of destinations with values of their own, in one answer
_ORIGINS = {Layer.CONFIGURED: "configuration", Layer.LIVE: "tuned", Layer.TIMED: "tuned"}
_OF_DESTINATIONS = [name for name in DESTINATION_SCOPE if name != SUSPENDED_UNTIL]


class Overrides:
    """Sets and removes tuned values, and lists parameters with their sources."""

    def __init__(self, context: ManagerContext, tuned: Tuned, shared: Shared | None = None) -> None:
        """``shared``: the settings of all nodes; None without a database."""
        self.context = context
        self.tuned = tuned
        self._shared = shared
        self._one_at_a_time = asyncio.Lock()
        self._followed = self._signature()

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
        if ended and not self._is_shared:  # of a copy, the process that keeps it removes them
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
        if self._is_shared:
            async with self._one_at_a_time:
                before, value, until = await self._set_for_all(request, scope, parameter, value, until)
        else:
            before, value = self._set_here(scope, parameter, value, until)
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

    def _set_here(self, scope: str, parameter: str, value: Any, until: float | None) -> tuple[Any, Any]:
        """Sets a value of this node alone; returns the one before, and the value. Raises FaultError, OSError."""
        context = self.context
        is_over = until is not None and until <= context.wall()
        with naming_argument(context.settings, scope, parameter, is_over=is_over):
            before = context.scheduler.get(scope, parameter)
            value = value_of(scope, parameter, value, before)
            context.scheduler.set(scope, parameter, self._live(parameter, value), context.now(), self._end(until))
        try:
            self.tuned.forget_ended(SUSPENDED_UNTIL, context.wall())
            self.tuned.set(scope, parameter, value, until)
        except OSError:
            with contextlib.suppress(ValueError):
                context.scheduler.set(scope, parameter, None, context.now())
            self._follow(scope, parameter)
            raise
        return self._before(parameter, before), value

    def _before(self, parameter: str, before: Any) -> Any:
        if isinstance(before, int | float) and parameter == SUSPENDED_UNTIL:
            return self._on_wall(before)
        return before

    # -- values of all nodes

    @property
    def _is_shared(self) -> bool:
        return self._shared is not None and self._shared.is_on()

    async def _set_for_all(
        self, request: Request, scope: str, parameter: str, value: Any, until: float | None
    ) -> tuple[Any, Any, float | None]:
        """Sets a value of all nodes: in the database, then here. Returns the one before, the value, and its end.

        Raises FaultError: then nothing has changed, unless its code is OUTCOME_UNKNOWN; OSError.
        """
        context = self.context
        loop = asyncio.get_running_loop()
        for _ in range(TRIES):
            is_over = until is not None and until <= context.wall()
            own = in_force(self.tuned.values, self.tuned.timed, SUSPENDED_UNTIL, context.wall())
            with naming_argument(context.settings, scope, parameter, is_over=is_over):
                before = context.scheduler.get(scope, parameter)
                wanted = value_of(scope, parameter, value, before)
                self._try(scope, parameter, wanted, until)
            new = with_value(*own, scope, parameter, wanted, until)
            if text_of(*new) == text_of(*own):  # such as the resumption of a dead destination, which is this node's own
                break
            node = context.settings.nodes.node or socket.gethostname()
            state = State("", context.wall(), request.who, request.why, [], text_of(*new), node=node)
            other = await loop.run_in_executor(context.pool, self._write, text_of(*own), state)
            if other is None:
                self.take(*new)
                break
            theirs = in_force(*parsed(other.text), SUSPENDED_UNTIL, context.wall())
            self.take(*theirs)
            if _at(theirs, scope, parameter) == _at(own, scope, parameter):
                continue  # another value was changed meanwhile
            if (end := _is_wanted(_at(theirs, scope, parameter), wanted, until)) is None:
                who = f"{other.who or 'unknown'} at node {other.node}" + (f" ({other.why})" if other.why else "")
                raise FaultError(
                    f"{parameter} of {scope or 'all'} was changed meanwhile by {who}; look again", code=Code.CONFLICT
                )
            until = None if until is None else end
            break
        else:
            raise FaultError("other values are changed at this moment; nothing was changed", code=Code.BUSY)
        context.scheduler.set(scope, parameter, self._live(parameter, wanted), context.now(), self._end(until))
        return self._before(parameter, before), wanted, until

    def _try(self, scope: str, parameter: str, value: Any, until: float | None) -> None:
        """Sets a value in a scheduler without mail, beside those that are in force. Raises ValueError if it is not allowed."""
        context = self.context
        trial = Scheduler(parameters_of(context.settings))
        for _ in range(2):  # of two values that must fit each other, one may only be allowed after the other is set
            for each, name in self._stored():
                self._set_in(trial, each, name)
        trial.set(scope, parameter, self._live(parameter, value), context.now(), self._end(until))

    def _stored(self) -> list[tuple[str, str]]:
        layers = (self.tuned.values, self.tuned.timed)
        return list(dict.fromkeys((scope, name) for layer in layers for scope, each in layer.items() for name in each))

    def _write(self, own: str, state: State) -> State | None:
        """Writes the values into the database, then into the file, in a thread.

        Returns what the database has, if this is not what this node has. Raises FaultError, OSError.
        """
        assert self._shared is not None
        if why := self._shared.why_not(TUNED):
            raise FaultError(f"{why}; nothing was changed", code=Code.CONFLICT)
        with self._shared.changing(TUNED) as change:
            newest = change.newest.state
            there = self._in_file()  # our own values may be older: another process replaces the file
            is_newest = not there or there == self._plain(newest.text)
            if not is_newest and all(self._plain(each.text) != there for each in change.taken_states()):
                raise FaultError(
                    f"{self.tuned.path} was changed by hand, and differs from what all nodes have; waypost node settings"
                    " --take tuned, or --give tuned, decides; nothing was changed",
                    code=Code.CONFLICT,
                )
            if self._plain(newest.text) != own:
                return newest
            written = change.write(state)
            with contextlib.suppress(OSError):  # the process that takes over what other nodes change does it
                self.tuned.disk.write_whole(str(self.tuned.path), written.text.encode())
                change.taken(written.version)
        return None

    def _in_file(self) -> str:
        """Returns the values of the file as texts are compared; "" without any. Raises OSError."""
        try:
            values, timed = in_force(*read(self.tuned.path), SUSPENDED_UNTIL, self.context.wall())
        except ValueError as error:
            raise FaultError(f"{self.tuned.path}: {error}; nothing was changed", code=Code.CONFLICT) from None
        return text_of(values, timed) if values or timed else ""

    def _plain(self, text: str) -> str:
        """Returns a text as texts are compared: without values that have ended."""
        return text_of(*in_force(*parsed(text), SUSPENDED_UNTIL, self.context.wall()))

    def take(self, values: Values, timed: Timed) -> list[tuple[str, str]]:
        """Puts these values in force instead of those of before; returns the scopes and parameters that changed."""
        context, tuned = self.context, self.tuned
        before = (tuned.values, tuned.timed)
        keys = dict.fromkeys(
            [*self._stored(), *((s, n) for layer in (values, timed) for s, each in layer.items() for n in each)]
        )
        tuned.values, tuned.timed = values, timed
        changed = [key for key in keys if _at(before, *key) != _at((values, timed), *key)]
        for scope, name in changed:
            old, new = _at(before, scope, name), _at((values, timed), scope, name)
            if any(then is not None and now is None for then, now in zip(old, new, strict=True)):
                with contextlib.suppress(ValueError):
                    context.scheduler.set(scope, name, None, context.now())
        again = [each for each in changed if self._follow(*each)]
        for scope, name in again:
            if error := self._follow(scope, name):
                context.log.tuned_ignored(str(tuned.path), f"[{scope}] {error}; {WHY_NOT_FATAL}")
        if changed:
            context.go_on()
        return changed

    async def follow(self) -> None:
        """Puts in force what other nodes, and other shards of this one, have changed, until it is cancelled."""
        context = self.context
        while True:
            await asyncio.sleep(FOLLOW_S)
            if self._one_at_a_time.locked():
                continue
            self.look_at_file()
            context.log.flush()

    def look_at_file(self) -> None:
        """Takes the values of the file, if it is another one. One that cannot be understood is left to the next start."""
        context, signature = self.context, self._signature()
        if signature == self._followed:
            return
        try:
            found = in_force(*read(self.tuned.path), SUSPENDED_UNTIL, context.wall())
        except (OSError, ValueError):
            return
        self._followed = signature
        for scope, name in self.take(*found):
            lasting, timed = _at(found, scope, name)
            value, until = timed if timed is not None else (lasting, None)
            context.log.tuned(scope, name, value, "another node", "", until)

    def _signature(self) -> object:
        try:
            status = os.stat(self.tuned.path)
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size

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
        return self._set_in(self.context.scheduler, scope, parameter)

    def _set_in(self, scheduler: Scheduler, scope: str, parameter: str) -> ValueError | None:
        context, tuned = self.context, self.tuned
        try:
            if (lasting := tuned.get(scope, parameter)) is not None:
                scheduler.set(scope, parameter, self._live(parameter, lasting), context.now())
            if (timed := tuned.get_timed(scope, parameter)) is not None:
                scheduler.set(scope, parameter, timed[0], context.now(), self._end(timed[1]))
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


def _at(values: tuple[Values, Timed], scope: str, parameter: str) -> tuple[Any, Any]:
    """Returns the lasting value, and the one for a time with its end; None for what is not there."""
    lasting, timed = values
    return lasting.get(scope, {}).get(parameter), timed.get(scope, {}).get(parameter)


def _is_wanted(there: tuple[Any, Any], value: Any, until: float | None) -> float | None:
    """Returns the end of the value that is there, if it is the wanted one; otherwise None."""
    lasting, timed = there
    if value is None:
        return math.inf if timed is None and (until is not None or lasting is None) else None
    if until is None:
        return math.inf if lasting == value else None
    return timed[1] if timed is not None and timed[0] == value and abs(timed[1] - until) <= SAME_END_S else None
