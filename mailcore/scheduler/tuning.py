"""Decides which value of a parameter is in force: configured, or set live, lasting or for a time. The most specific scope wins.

From the least specific to the most: the transport; ".org"; ".example.org"; "example.org"; the next hop as it is written,
"example.org:587" or "[192.0.2.1]:2526"; one recipient, where the destination is the recipient, "user@example.org". A
pattern with a dot in front takes all below the domain, not the domain itself, as in the routes; a host in brackets is only
taken as it is written, with its port or without.

Laws
- Scope goes before layer: a value set live for a transport does not beat one configured for a destination.
- Within a scope, what is set for a time goes before what is set live, and that before what is configured.
- A pattern never makes the recipient the destination; only the transport's own destination_recipient_limit does.
- What is set is checked, also that the backoff times do not contradict each other. When they do because one ended
  automatically, the shortest wait is used for both.

Times are seconds on the caller's monotonic clock.

Keeps law: scope-before-layer (docs/laws.md).
"""

from __future__ import annotations

import dataclasses
import enum
import heapq
import math
import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from mailcore.bounds import BadValue, shown
from mailcore.scheduler.parameters import (
    DESTINATION_SCOPE,
    SUSPENDED_UNTIL,
    DestinationParameters,
    GlobalParameters,
    Parameters,
    TransportParameters,
    Value,
    bounds_of,
    check,
    check_backoff,
)

__all__ = ["SCOPES_MAX", "Ended", "Layer", "Origin", "Tuning", "scopes_of"]

SCOPES_MAX = 10_000  # scopes with values set live; set by people, so far more than anyone will write
SCOPE_CHARACTERS_MAX = 400  # an address has 320 (RFC 5321 4.5.3.1), a transport's name 32, a port 6
ENDED_MAX = 1_000  # ended values kept for the log; the oldest are dropped first
STALE = 64  # rebuild the timetable when len > 2 * timed + STALE

_NEXT_HOP = re.compile(r"(?P<host>\[[^\]]*\]|[^:]*)(?::\d+)?")
_BACKOFF = ("minimal_backoff_time", "maximal_backoff_time")
_OF_DESTINATIONS = tuple(name for name in DESTINATION_SCOPE if name != SUSPENDED_UNTIL)


class Layer(enum.Enum):
    """The layer that a value comes from, in words."""

    CONFIGURED = "configuration"
    LIVE = "tuned"
    TIMED = "tuned for a time"


@dataclasses.dataclass(frozen=True, slots=True)
class Origin:
    """A value in force, the scope and layer it comes from, and its end (None: no end; may be infinity)."""

    value: Value | None
    scope: str
    layer: Layer
    until: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Ended:
    """A value set for a time, or a suspension, that has ended."""

    scope: str
    parameter: str
    value: Value | None
    until: float


@dataclasses.dataclass(slots=True)
class _Live:
    """The values set live for one parameter of one scope."""

    lasting: Value | None = None
    timed: Value | None = None
    until: float | None = None  # of ``timed``


class _Transport:
    """The values in force for one transport, computed when they change."""

    __slots__ = ("defaults", "parameters", "patterns", "shared")

    def __init__(self, parameters: TransportParameters, patterns: set[str]) -> None:
        self.parameters = parameters
        self.defaults = _destinations_of(parameters)
        self.patterns = patterns  # those with a value, configured or live
        self.shared: dict[tuple[str, ...], DestinationParameters] = {}  # patterns that hold -> what is in force


def scopes_of(rest: str) -> Iterator[str]:
    """Yields the patterns that match a destination, or a pattern, the most specific first; without the transport's
    name.

    >>> list(scopes_of("user@example.org:587"))
    ['user@example.org:587', 'user@example.org', 'example.org:587', 'example.org', '.org']
    """
    local, at, next_hop = rest.rpartition("@")
    match = _NEXT_HOP.fullmatch(next_hop)
    host = match["host"] if match else next_hop
    yield rest
    if at:
        if host != next_hop:
            yield f"{local}@{host}"
        yield next_hop
    if host != next_hop:
        yield host
    if not host.startswith("["):
        dot = host.find(".", 1)
        while dot >= 0:
            yield host[dot:]
            dot = host.find(".", dot + 1)


class Tuning:
    """See the top of the file."""

    def __init__(self, parameters: Parameters) -> None:
        """Raises ValueError at configured values that are not allowed."""
        self._configured = parameters
        self._patterns: dict[str, dict[str, Value]] = {}  # configured: scope -> parameter -> value
        self._live: dict[str, dict[str, _Live]] = {}  # scope -> parameter -> what is set
        self._timetable: list[tuple[float, str, str]] = []  # (until, scope, parameter); also what is true no more
        self._timed = 0  # how many values have an end that comes
        self._suspended = 0
        self.ended: deque[Ended] = deque(maxlen=ENDED_MAX)  # for the log; the caller clears it
        self._unconfigured = _Transport(TransportParameters(), set())
        self._transports: dict[str, _Transport] = {}
        for name, transport in parameters.transports.items():
            for pattern, values in transport.destinations.items():
                scope = f"{name}:{pattern}"
                if not pattern:
                    raise BadValue("scope", scope, f'must have a pattern after the colon (got "{scope}")')
                if SUSPENDED_UNTIL in values:
                    raise BadValue(SUSPENDED_UNTIL, None, f'cannot be configured, only set live (got it for "{scope}")')
                self._patterns[scope] = {each: check(scope, each, value) for each, value in values.items()}
            self._transports[name] = _Transport(transport, set(transport.destinations))
        self.globals: GlobalParameters = parameters  # in force
        self.by_recipient: frozenset[str] = frozenset()  # transports whose destinations are recipients
        self._refresh_globals()
        self._refresh_by_recipient()

    # -- what is in force

    def transport(self, name: str) -> TransportParameters:
        """Returns a transport's parameters; a transport that is not configured has the defaults."""
        return self._transports.get(name, self._unconfigured).parameters

    def destination(self, name: str) -> DestinationParameters:
        """Returns a destination's parameters; ``name`` is "transport:next hop". All destinations with the same scopes
        share one object."""
        transport_name, _, rest = name.partition(":")
        transport = self._transports.get(transport_name, self._unconfigured)
        patterns = transport.patterns
        if not patterns:
            return transport.defaults
        held = tuple(scope for scope in scopes_of(rest) if scope in patterns)
        if not held:
            return transport.defaults
        known = transport.shared.get(held)
        if known is None:
            changes: dict[str, Any] = {}
            for pattern in reversed(held):
                changes.update(self._own(f"{transport_name}:{pattern}"))
            known = transport.shared[held] = dataclasses.replace(transport.defaults, **changes)
        return known

    def get(self, scope: str, parameter: str) -> Value | None:
        """Returns the value in force, in the scopes of ``set``; None only for ``suspended_until`` if the scope is not
        suspended.

        Raises BadValue if the scope has no such parameter.
        """
        return self.origin(scope, parameter).value

    def origin(self, scope: str, parameter: str) -> Origin:
        """Returns the value in force and its origin. Raises BadValue if the scope has no such parameter."""
        bounds_of(scope, parameter)
        name, colon, rest = scope.partition(":")
        if colon:
            for pattern in scopes_of(rest):
                if said := self._said(f"{name}:{pattern}", parameter):
                    return said
            if parameter == SUSPENDED_UNTIL:
                return Origin(None, name, Layer.CONFIGURED)
        configured = self.transport(name) if name else self._configured
        return self._said(name, parameter) or Origin(getattr(configured, parameter), name, Layer.CONFIGURED)

    def tuned(self) -> list[str]:
        """Returns the scopes with values that were set live."""
        return list(self._live)

    @property
    def any_suspended(self) -> bool:
        """Returns whether any scope is suspended."""
        return self._suspended > 0

    # -- changes

    def set(self, scope: str, parameter: str, value: object, now: float, until: float | None = None) -> None:
        """Sets a value live, lasting or until a time; the latter keeps the lasting one.

        None removes the value set for a time and, unless ``until`` is given, the lasting one. ``suspended_until`` is a time
        itself; one that has passed resumes. Raises BadValue; nothing has changed then.
        """
        bounds_of(scope, parameter)
        self._check_scope(scope, parameter, value)
        new = None if value is None else check(scope, parameter, value)
        if until is not None and not now < until:  # not a number is not later either
            raise BadValue(parameter, value, "cannot be set until a time that has passed")
        if parameter == SUSPENDED_UNTIL:
            if until is not None:
                raise BadValue(parameter, value, "is a time itself, and cannot be set until another time")
            new = until = new if isinstance(new, float) and new > now else None
        if not scope:
            self._check_backoff(parameter, new, until)
        parameters = self._live.get(scope, {})
        live = parameters.get(parameter, _Live())
        self._count(parameter, live, -1)
        if new is None:
            lasting = live.lasting if until is not None else None
            self._put(scope, parameter, _Live(lasting))
        elif until is None:
            self._put(scope, parameter, dataclasses.replace(live, lasting=new))
        else:
            self._put(scope, parameter, _Live(live.lasting, new, until))
        self._refresh(scope, parameter)

    def over(self, now: float) -> list[str]:
        """Ends what was set until now or earlier, and says which scopes changed."""
        changed: dict[str, None] = {}
        while (until := self.first_end()) is not None and until <= now:
            _, scope, parameter = heapq.heappop(self._timetable)
            live = self._live[scope][parameter]
            self._count(parameter, live, -1)
            self._put(scope, parameter, _Live(live.lasting))
            self._refresh(scope, parameter)
            self.ended.append(Ended(scope, parameter, live.timed, until))
            changed[scope] = None
        return list(changed)

    def first_end(self) -> float | None:
        """Returns when the next value that is set for a time ends; None if there is none."""
        timetable = self._timetable
        while timetable and not self._true(timetable[0]):
            heapq.heappop(timetable)
        return timetable[0][0] if timetable else None

    @staticmethod
    def touches(scope: str, destination: str) -> bool:
        """Returns whether a value set in the scope may be in force for the destination; the global scope touches
        all."""
        name, colon, pattern = scope.partition(":")
        transport_name, _, rest = destination.partition(":")
        if not scope:
            return True
        # A pattern is part of every name it takes: looked at first, because it is cheap.
        return transport_name == name and (not colon or (pattern in rest and pattern in scopes_of(rest)))

    @classmethod
    def matching(cls, scope: str, destinations: Iterable[str]) -> list[str]:
        """Returns those of the destinations that the scope touches."""
        return [name for name in destinations if cls.touches(scope, name)]

    # -- inside

    def _said(self, scope: str, parameter: str) -> Origin | None:
        """Returns the value of the scope itself, or None."""
        live = self._live.get(scope, {}).get(parameter)
        if live is not None:
            if live.timed is not None:
                return Origin(live.timed, scope, Layer.TIMED, live.until)
            return Origin(live.lasting, scope, Layer.LIVE)
        configured = self._patterns.get(scope, {})
        return Origin(configured[parameter], scope, Layer.CONFIGURED) if parameter in configured else None

    def _own(self, scope: str) -> dict[str, Any]:
        """Returns all values of the scope itself."""
        own: dict[str, Any] = dict(self._patterns.get(scope, ()))
        for parameter, live in self._live.get(scope, {}).items():
            own[parameter] = live.lasting if live.timed is None else live.timed
        return own

    def _check_scope(self, scope: str, parameter: str, value: object) -> None:
        name, colon, rest = scope.partition(":")
        refused = f'cannot be set to {shown(value)} for "{scope[:SCOPE_CHARACTERS_MAX]}"'
        if (name or colon) and name not in self._transports:
            names = ", ".join(sorted(self._transports)) or "none"
            raise BadValue(parameter, value, f'{refused}: there is no transport "{name}"; the transports are {names}')
        if colon and (not rest or len(scope) > SCOPE_CHARACTERS_MAX or not rest.isprintable() or " " in rest):
            forms = '"transport:example.org" or "transport:.example.org", for all its subdomains'
            raise BadValue(parameter, value, f"{refused}: a scope must be a destination, {forms}")
        if value is not None and scope not in self._live and len(self._live) >= SCOPES_MAX:
            raise BadValue(parameter, value, f"{refused}: {SCOPES_MAX} scopes have values of their own already")

    def _check_backoff(self, parameter: str, new: Value | None, until: float | None) -> None:
        if parameter not in _BACKOFF:
            return
        live = self._live.get("", {}).get(parameter, _Live())
        if new is None:
            lasting = live.lasting if until is not None else None
            new = lasting if lasting is not None else getattr(self._configured, parameter)
        others = {each: self.get("", each) for each in _BACKOFF}
        shortest, longest = (new if each == parameter else others[each] for each in _BACKOFF)
        check_backoff(float(shortest), float(longest), parameter)  # type: ignore[arg-type]  # both are numbers

    def _put(self, scope: str, parameter: str, live: _Live) -> None:
        """Puts it in place of what was there, which is counted no more."""
        self._count(parameter, live, 1)
        parameters = self._live.setdefault(scope, {})
        if live.lasting is None and live.timed is None:
            parameters.pop(parameter, None)
            if not parameters:
                del self._live[scope]
            return
        parameters[parameter] = live
        if live.until is not None and live.until < math.inf:
            heapq.heappush(self._timetable, (live.until, scope, parameter))
            if len(self._timetable) > 2 * self._timed + STALE:
                self._timetable = list(filter(self._true, set(self._timetable)))
                heapq.heapify(self._timetable)

    def _count(self, parameter: str, live: _Live, by: int) -> None:
        if live.until is not None:
            self._timed += by if live.until < math.inf else 0
            self._suspended += by if parameter == SUSPENDED_UNTIL else 0

    def _true(self, planned: tuple[float, str, str]) -> bool:
        until, scope, parameter = planned
        live = self._live.get(scope, {}).get(parameter)
        return live is not None and live.until == until

    def _refresh(self, scope: str, parameter: str) -> None:
        """Computes the values in force after a change."""
        name, colon, pattern = scope.partition(":")
        if not scope:
            self._refresh_globals()
        elif colon:
            transport = self._transports[name]
            if scope in self._live or scope in self._patterns:
                transport.patterns.add(pattern)
            else:
                transport.patterns.discard(pattern)
            transport.shared.clear()
        else:
            configured = self._configured.transports[name]
            in_force = dataclasses.replace(configured, **self._own(name))
            self._transports[name] = _Transport(in_force, self._transports[name].patterns)
            self._refresh_by_recipient()

    def _refresh_globals(self) -> None:
        in_force = dataclasses.replace(self._configured, **self._own(""))
        longest = max(in_force.minimal_backoff_time, in_force.maximal_backoff_time)
        self.globals = dataclasses.replace(in_force, maximal_backoff_time=longest)

    def _refresh_by_recipient(self) -> None:
        self.by_recipient = frozenset(
            name for name, each in self._transports.items() if each.parameters.destination_recipient_limit == 1
        )


def _destinations_of(transport: TransportParameters) -> DestinationParameters:
    return DestinationParameters(**{name: getattr(transport, name) for name in _OF_DESTINATIONS})
