"""A scenario file: TOML in, a scenario out, checked like the configuration; a bad key or value names its line.

    [simulation]                     seed, until_s, events_max, destinations_max, first_attempts_only, parameters
    [deliverer]                      our end of the connections
    [next_hops."SCOPE"]              the model of a next hop; "*": all others
    [mail.NAME]  [messages.NAME]     sorts of mail drawn by chance; messages listed one by one
    [set."SCOPE"]                    parameters from the start; "global": what holds for all transports
    [changes.NAME]                   a parameter that is set at a time

docs/simulate.md has all keys. Knows the file and its words; runs nothing.
"""

from __future__ import annotations

import dataclasses
import difflib
import reprlib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from mailcore.config.lines import Path as Key
from mailcore.config.lines import report
from mailcore.config.load import ConfigError
from mailcore.scheduler.parameters import check
from mailcore.simulator.backlog import Backlog, Listed, Mail
from mailcore.simulator.field import checked, choice, number
from mailcore.simulator.next_hop import NextHop
from mailcore.simulator.scenario import Change, Limits
from mailcore.simulator.site import Client

__all__ = ["ALL", "GLOBAL", "Options", "ScenarioFile", "read_scenario"]

GLOBAL = "global"  # how people write the scope of all transports
ALL = "*"  # and of all next hops
FILE_BYTES_MAX = 4 << 20
TABLES_MAX = 10_000  # next hops, or sorts of mail, or changes

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Of [simulation], what is not ``Limits``."""

    seed: int = number(1, 0, 1 << 62, "the same seed gives the same outcome")
    parameters: str = choice(
        "configuration",
        ("configuration", "defaults"),
        "where parameters begin: at the configuration file and what is tuned live, or at the defaults",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioFile:
    options: Options = dataclasses.field(default_factory=Options)
    limits: Limits = dataclasses.field(default_factory=Limits)
    client: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # only what is given
    next_hops: Mapping[str, NextHop] = dataclasses.field(default_factory=dict)
    backlog: Backlog = dataclasses.field(default_factory=Backlog)
    changes: tuple[Change, ...] = ()


def read_scenario(path: Path) -> ScenarioFile:
    """Raises ConfigError naming file, line, key and what is allowed, one line a fault."""
    return _Reading(path).scenario()


SECTIONS = ("simulation", "deliverer", "next_hops", "mail", "messages", "set", "changes")
CHANGE_KEYS = ("at_s", "until_s", "scope", "parameter", "value")
_AT_S = fields(Change)[0]


class _Reading:
    """One file. Faults are collected, so that all of them are seen at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._faults: list[tuple[Key, str]] = []
        try:
            with open(path, "rb") as file:
                data = file.read(FILE_BYTES_MAX + 1)
            if len(data) > FILE_BYTES_MAX:
                raise ConfigError(f"{path}: is too big; allowed: {FILE_BYTES_MAX} bytes")
            self._text = data.decode()
            self._document = tomllib.loads(self._text)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
        except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
            raise ConfigError(f"{path}: is not TOML: {error}") from None

    def scenario(self) -> ScenarioFile:
        self._refuse_unknown((), self._document, SECTIONS)
        simulation = self._section(("simulation",), self._document.get("simulation", {}), Options, Limits)
        options, limits = ({each.name for each in fields(kind)} for kind in (Options, Limits))
        client = self._section(("deliverer",), self._document.get("deliverer", {}), Client)
        next_hops = self._named("next_hops", NextHop)
        mail = self._named("mail", Mail)
        listed = self._named("messages", Listed)
        for section, key, there in (("mail", "destinations", mail), ("messages", "recipients", listed)):
            for name, each in there.items():
                if not getattr(each, key) and key not in self._document[section][name]:
                    self._fault((section, name), f"has no {key}; allowed: {_doc(type(each), key)}")
        for scope in next_hops:
            if scope != ALL and not scope.partition(":")[0]:
                self._fault(("next_hops", scope), 'is no scope; allowed: "transport:next hop", "transport:.below", "*"')
        changes = (*self._set(), *self._changes())
        if self._faults:
            raise ConfigError(self._report())
        return ScenarioFile(
            options=Options(**{name: value for name, value in simulation.items() if name in options}),
            limits=Limits(**{name: value for name, value in simulation.items() if name in limits}),
            client=client,
            next_hops={"" if scope == ALL else scope: hop for scope, hop in next_hops.items()},
            backlog=Backlog(listed=tuple(listed.values()), mail=mail),
            changes=changes,
        )

    # -- tables

    def _table(self, key: Key, given: Any) -> dict[str, Any]:
        if isinstance(given, dict):
            return given
        self._fault(key, f"= {reprlib.repr(given)} is wrong; allowed: a section")
        return {}

    def _named(self, section: str, kind: type[T]) -> dict[str, T]:
        """Tables below a section, each an object of its own."""
        made: dict[str, T] = {}
        tables = self._table((section,), self._document.get(section, {}))
        if len(tables) > TABLES_MAX:
            self._fault((section,), f"are {len(tables)}; allowed: {TABLES_MAX}")
        for name, given in list(tables.items())[:TABLES_MAX]:
            values = self._section((section, name), given, kind)
            try:
                made[name] = kind(**values)
            except ValueError as error:
                self._fault((section, name), f"contradicts itself: {error}")
        return made

    def _section(self, key: Key, given: Any, *kinds: type) -> dict[str, Any]:
        """The values given, each checked; what is wrong is left out."""
        known = {each.name: each for kind in kinds for each in fields(kind)}
        table = self._table(key, given)
        self._refuse_unknown(key, table, known)
        values: dict[str, Any] = {}
        for name, value in table.items():
            if name in known:
                try:
                    values[name] = checked(known[name], value)
                except ValueError as error:
                    self._fault((*key, name), f"is wrong: {error}")
        return values

    def _set(self) -> Iterable[Change]:
        for scope, given in self._table(("set",), self._document.get("set", {})).items():
            for parameter, value in self._table(("set", scope), given).items():
                if (change := self._change(("set", scope, parameter), scope, parameter, value)) is not None:
                    yield change

    def _changes(self) -> Iterable[Change]:
        tables = self._table(("changes",), self._document.get("changes", {}))
        for name, given in list(tables.items())[:TABLES_MAX]:
            key = ("changes", name)
            table = self._table(key, given)
            self._refuse_unknown(key, table, CHANGE_KEYS)
            for needed in ("scope", "parameter", "value"):
                if needed not in table:
                    self._fault(key, f"has no {needed}")
            times: dict[str, Any] = {}
            for time in ("at_s", "until_s"):
                try:
                    if time in table:
                        times[time] = checked(_AT_S, table[time])
                except ValueError as error:
                    self._fault((*key, time), f"is wrong: {error}")
            if times.get("until_s", 1e99) <= times.get("at_s", 0):
                self._fault((*key, "until_s"), "is not after at_s")
            if {"scope", "parameter", "value"} <= table.keys():
                change = self._change((*key, "value"), str(table["scope"]), str(table["parameter"]), table["value"])
                if change is not None:
                    yield dataclasses.replace(change, **times)

    def _change(self, key: Key, scope: str, parameter: str, value: Any) -> Change | None:
        scope = "" if scope == GLOBAL else scope
        try:
            check(scope, parameter, value)
        except ValueError as error:
            self._fault(key, f"is wrong: {error}")
            return None
        return Change(scope=scope, parameter=parameter, value=value)

    # -- faults

    def _refuse_unknown(self, table: Key, given: Iterable[str], known: Iterable[str]) -> None:
        known = tuple(known)
        for name in given:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]!r}? " if near else ""
                self._fault((*table, name), f"is unknown; {hint}allowed: {', '.join(known)}")

    def _fault(self, key: Key, message: str) -> None:
        names = [str(part) for part in key]
        shown = names[0] if len(names) == 1 else f"[{'.'.join(names[:-1])}] {names[-1]}"
        self._faults.append((key, f"{shown} {message}"))

    def _report(self) -> str:
        return report(self._path, self._text, self._faults)


def _doc(kind: Any, name: str) -> str:
    return str(next(each for each in fields(kind) if each.name == name).metadata["doc"])
