"""Reads a scenario file: TOML in, a scenario out, checked like the configuration.

    [simulation]                     seed, until_s, events_max, destinations_max, first_attempts_only, parameters
    [deliverer]                      our end of the connections
    [next_hops."SCOPE"]              the model of a next hop; "*": all others
    [mail.NAME]  [messages.NAME]     mail drawn at random; messages listed one by one
    [set."SCOPE"]                    parameters from the start; "global": those of all transports
    [changes.NAME]                   a parameter that is set at a time

docs/scenario.md has all keys. Runs nothing.
"""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from mailcore.bounds import BadValue, bounds_by_name, choice, shown, whole
from mailcore.config.lines import Fault
from mailcore.config.lines import Path as Key
from mailcore.config.load import ConfigError
from mailcore.scheduler.parameters import check
from mailcore.simulator.backlog import Backlog, Listed, Mail
from mailcore.simulator.next_hop import NextHop
from mailcore.simulator.scenario import Change, Limits
from mailcore.simulator.site import Client

__all__ = ["ALL", "GLOBAL", "Options", "ScenarioFile", "read_scenario"]

GLOBAL = "global"  # the scope of all transports, as people write it
ALL = "*"  # and of all next hops
FILE_BYTES_MAX = 4 << 20
TABLES_MAX = 10_000  # next hops, kinds of mail, or changes

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The keys of [simulation] beside ``Limits``."""

    seed: int = whole(1, 0, 1 << 62, "", "random seed (same seed, same result)")
    parameters: str = choice(
        "configuration",
        ("configuration", "defaults"),
        "initial parameters: those of the configuration file and the values set live, or the defaults",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioFile:
    """The content of a scenario file."""

    options: Options = dataclasses.field(default_factory=Options)
    limits: Limits = dataclasses.field(default_factory=Limits)
    client: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # only the keys that are set
    next_hops: Mapping[str, NextHop] = dataclasses.field(default_factory=dict)
    backlog: Backlog = dataclasses.field(default_factory=Backlog)
    changes: tuple[Change, ...] = ()


def read_scenario(path: Path) -> ScenarioFile:
    """Reads and checks the file. Raises ConfigError, with all faults."""
    return _Reading(path).scenario()


SECTIONS = ("simulation", "deliverer", "next_hops", "mail", "messages", "set", "changes")
CHANGE_KEYS = ("at_s", "until_s", "scope", "parameter", "value")
_AT_S = bounds_by_name(Change)["at_s"]


class _Reading:
    """Reads one file. Collects the faults, so that all of them are seen at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._faults: list[Fault] = []
        try:
            with open(path, "rb") as file:
                data = file.read(FILE_BYTES_MAX + 1)
            if len(data) > FILE_BYTES_MAX:
                raise ConfigError(f"{path}: the file is larger than {FILE_BYTES_MAX} bytes")
            self._text = data.decode()
            self._document = tomllib.loads(self._text)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
        except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
            raise ConfigError(f"{path}: not valid TOML: {error}") from None

    def scenario(self) -> ScenarioFile:
        self._refuse_unknown((), self._document, SECTIONS)
        simulation = self._section(("simulation",), self._document.get("simulation", {}), Options, Limits)
        options, limits = ({each.name for each in fields(kind)} for kind in (Options, Limits))
        client = self._section(("deliverer",), self._document.get("deliverer", {}), Client)
        next_hops = self._named("next_hops", NextHop)
        mail = self._named("mail", Mail)
        listed = self._named("messages", Listed)
        for section, key, tables, bounds in (
            ("mail", "destinations", mail, bounds_by_name(Mail)),
            ("messages", "recipients", listed, bounds_by_name(Listed)),
        ):
            for name, table in tables.items():
                if not getattr(table, key) and key not in self._document[section][name]:
                    self._fault((section, name), f"must have {key}: {bounds[key]}")
        for scope in next_hops:
            if scope != ALL and not scope.partition(":")[0]:
                self._fault(("next_hops", scope), 'must be a scope: "transport:next hop", "transport:.domain" or "*"')
        changes = (*self._set(), *self._changes())
        if self._faults:
            raise ConfigError.of(self._path, self._text, self._faults)
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
        self._fault(key, f"must be a section (got {shown(given)})")
        return {}

    def _named(self, section: str, kind: type[T]) -> dict[str, T]:
        """Returns the tables below a section, each as an object of ``kind``."""
        objects: dict[str, T] = {}
        tables = self._table((section,), self._document.get(section, {}))
        if len(tables) > TABLES_MAX:
            self._fault((section,), f"must have at most {TABLES_MAX} tables (got {len(tables)})")
        for name, given in list(tables.items())[:TABLES_MAX]:
            values = self._section((section, name), given, kind)
            try:
                objects[name] = kind(**values)
            except BadValue as error:
                self._fault((section, name, error.name), error.reason)
        return objects

    def _section(self, key: Key, given: Any, *kinds: type) -> dict[str, Any]:
        """Returns the checked values of a section; invalid ones are left out."""
        known = {name: bounds for kind in kinds for name, bounds in bounds_by_name(kind).items()}
        table = self._table(key, given)
        self._refuse_unknown(key, table, known)
        values: dict[str, Any] = {}
        for name, value in table.items():
            if name in known:
                try:
                    values[name] = known[name].read(value)
                except BadValue as error:
                    self._fault((*key, name), error.reason)
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
                    self._fault(key, f"must have a {needed}")
            times: dict[str, Any] = {}
            for time in ("at_s", "until_s"):
                try:
                    if time in table:
                        times[time] = _AT_S.read(table[time])
                except BadValue as error:
                    self._fault((*key, time), error.reason)
            if times.get("until_s", 1e99) <= times.get("at_s", 0):
                self._fault((*key, "until_s"), f"must be after at_s (got {shown(times['until_s'])})")
            if {"scope", "parameter", "value"} <= table.keys():
                change = self._change((*key, "value"), str(table["scope"]), str(table["parameter"]), table["value"])
                if change is not None:
                    yield dataclasses.replace(change, **times)

    def _change(self, key: Key, scope: str, parameter: str, value: Any) -> Change | None:
        scope = "" if scope == GLOBAL else scope
        try:
            check(scope, parameter, value)
        except BadValue as error:
            self._fault(key, error.reason if error.name == key[-1] else f"is refused: {error}")
            return None
        return Change(scope=scope, parameter=parameter, value=value)

    # -- faults

    def _refuse_unknown(self, table: Key, given: Iterable[str], known: Iterable[str]) -> None:
        known = tuple(known)
        for name in given:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"allowed here: {', '.join(known)}"
                self._fault((*table, name), f"is not a key here; {hint}")

    def _fault(self, key: Key, reason: str) -> None:
        self._faults.append(Fault(key, reason))
