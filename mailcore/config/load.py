"""The configuration file: TOML in, typed and bounded settings out.

A wrong key or value names its line and what is allowed, and stops the start; all faults are told at once. The rest of the
code gets ``Settings`` as an argument and never reads the file itself.

Keeps law: faults-name-their-line (docs/laws.md).
"""

from __future__ import annotations

import difflib
import os
import re
import reprlib
import tomllib
import typing
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from mailcore.config import values
from mailcore.config.lines import Path as Key
from mailcore.config.lines import report
from mailcore.config.settings import (
    DEFAULT_ROUTE,
    DIRECTORIES,
    HOME_DEFAULT,
    SECTIONS,
    SHIPPED_TRANSPORTS,
    Deliverer,
    Destination,
    Queue,
    Receiver,
    Relay,
    Scheduler,
    Settings,
    Transport,
)
from mailcore.routing.route import RouteError, parse_route

__all__ = [
    "ConfigError",
    "Deliverer",
    "Queue",
    "Receiver",
    "Relay",
    "Scheduler",
    "Settings",
    "Transport",
    "allowed",
    "load",
    "load_text",
]


class ConfigError(Exception):
    """What is wrong, where (file and line) and what is allowed; the message is for the operator as it is."""


FILE_BYTES_MAX = 4 << 20  # a hundred thousand routes fit
TRANSPORTS_MAX = 100  # each has its own place in the scheduler's turns
RUN_DIRECTORY_BYTES_MAX = 80  # a socket's path has 107 (unix(7)); the rest is for the socket's name

_POSITION = re.compile(r" \((?:at line (?P<line>\d+), column (?P<column>\d+)|at end of document)\)$")


def load(path: Path, *, look_at_certificate: bool = True) -> Settings:
    """Reads and checks the file. Raises ConfigError naming file, line, key and what is allowed, one line a fault."""
    return _Reading(path, look_at_certificate=look_at_certificate).settings()


def load_text(path: Path, text: str) -> Settings:
    """As ``load``, of what will stand in the file; the certificate that it names need not be there yet. Raises ConfigError."""
    return _Reading(path, text, look_at_certificate=False).settings()


def allowed(kind: Any, metadata: typing.Mapping[str, Any]) -> str:
    """What a setting may be, in words; ``kind`` is the field's type."""
    if typing.get_origin(kind) is tuple:
        return "a list of whole numbers" if typing.get_args(kind)[0] is int else "a list of strings"
    if kind is bool:
        return "true or false"
    if metadata.get("allowed"):
        return str(metadata["allowed"])
    if kind is str:
        return " or ".join(f'"{choice}"' for choice in metadata["choices"]) or "a string"
    what = "a whole number" if kind is int else "a number"
    return f"{what} from {metadata['low']:_} to {metadata['high']:_}"


class _Reading:
    """One file on its way to Settings. Faults are collected, so that the operator sees all of them at once."""

    def __init__(self, path: Path, text: str | None = None, *, look_at_certificate: bool) -> None:
        self._path = path
        self._base = Path(os.path.abspath(path)).parent
        self._looks_at_certificate = look_at_certificate
        self._text = self._read() if text is None else text
        self._faults: list[tuple[Key, str]] = []
        try:
            self._document = tomllib.loads(self._text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(self._syntax(str(error))) from None
        except RecursionError:
            raise ConfigError(f"{path}: brackets are nested too deeply; allowed: sections, keys and lists") from None

    def settings(self) -> Settings:
        known = ("home", *DIRECTORIES, *SECTIONS, "transports", "routes")
        self._refuse_unknown((), self._document, known)
        home, directories = self._directories()
        sections = {name: self._section((name,), kind) for name, kind in SECTIONS.items()}
        transports = self._transports(sections["deliverer"].get("port", Deliverer().port))
        routes = self._routes(transports)
        self._tls(sections["receiver"])
        self._backoff(sections["scheduler"])
        if self._faults:
            raise ConfigError(self._report())
        return Settings(
            home=home,
            queue_directory=directories["queue_directory"],
            spool_directory=directories["spool_directory"],
            run_directory=directories["run_directory"],
            log_directory=directories["log_directory"],
            **{name: kind(**sections[name]) for name, kind in SECTIONS.items()},
            transports={name: Transport(**given) for name, given in transports.items()},
            routes=routes,
        )

    # The text

    def _read(self) -> str:
        try:
            with open(self._path, "rb") as file:
                data = file.read(FILE_BYTES_MAX + 1)
        except OSError as error:
            raise ConfigError(f"{self._path}: cannot be read: {error.strerror}") from None
        if len(data) > FILE_BYTES_MAX:
            raise ConfigError(f"{self._path}: is too big; allowed: {FILE_BYTES_MAX} bytes")
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise ConfigError(f"{self._path}:{line}: is not UTF-8, which TOML is written in") from None

    def _syntax(self, message: str) -> str:
        """tomllib says "Expected '=' after a key (at line 3, column 5)"; the line belongs in front."""
        line = self._text.rstrip().count("\n") + 1
        where = ""
        if match := _POSITION.search(message):
            message = message[: match.start()]
            line = int(match["line"] or line)
            where = f" (column {match['column']})" if match["column"] else " (at the end of the file)"
        return f"{self._path}:{line}: is not TOML: {message}{where}"

    def _report(self) -> str:
        return report(self._path, self._text, self._faults)

    def _fault(self, key: Key, message: object) -> Any:
        """Notes it and returns None, which stands for "no value" (TOML has no null)."""
        self._faults.append((key, f"{_shown(key)} {message}"))

    # Keys and values

    def _refuse_unknown(self, table: Key, given: Iterable[str], known: Iterable[str]) -> None:
        known = tuple(known)
        for name in given:
            if name in known:
                continue
            near = difflib.get_close_matches(name, known, n=1)
            homes = [
                f"[{section}]"
                for section, kind in (*SECTIONS.items(), ("transports.NAME", Transport))
                if name in {each.name for each in fields(kind)}
            ]
            if table and (name == "home" or name in DIRECTORIES):
                hint = "it stands at the top of the file, before the first section; "
            elif homes:
                hint = f"it belongs in {' or '.join(homes)}; "
            else:
                hint = f"did you mean {near[0]!r}? " if near else ""
            self._fault((*table, name), f"is unknown; {hint}allowed: {', '.join(known)}")

    def _table(self, key: Key) -> dict[str, Any]:
        given: Any = self._document
        for part in key:
            given = given.get(part, {})
        if isinstance(given, dict):
            return given
        self._fault(key, f"= {reprlib.repr(given)} is wrong; allowed: a section [{'.'.join(map(str, key))}]")
        return {}

    def _section(self, key: Key, kind: type) -> dict[str, Any]:
        """The values given in one section, each checked; what is wrong is left out."""
        given = self._table(key)
        types = typing.get_type_hints(kind)
        known = {each.name: each for each in fields(kind)}
        self._refuse_unknown(key, given, known)
        good: dict[str, Any] = {}
        for name, value in given.items():
            if name in known and known[name].metadata:  # without: a table of its own
                checked = self._value((*key, name), value, types[name], known[name].metadata)
                if checked is not None:
                    good[name] = checked
        return good

    def _value(self, key: Key, value: Any, kind: Any, metadata: typing.Mapping[str, Any]) -> Any:
        """The value as the code sees it; None after a fault."""
        wrong = f"= {reprlib.repr(value)} is wrong; allowed: {allowed(kind, metadata)}"
        if typing.get_origin(kind) is tuple:
            element = typing.get_args(kind)[0]
            if not isinstance(value, list) or not all(type(each) is element for each in value):
                return self._fault(key, wrong)
            return self._list(key, value, metadata)
        if kind in (int, float):
            is_number = type(value) is int or (kind is float and type(value) is float)
            if is_number and metadata["low"] <= value <= metadata["high"]:
                return kind(value)
            return self._fault(key, wrong)
        if metadata.get("allowed") and type(value) in (int, float):
            value = str(value)  # a feedback may be a plain number
        if type(value) is not kind or (metadata.get("choices") and value not in metadata["choices"]):
            return self._fault(key, wrong)
        if metadata.get("check") and (value or metadata.get("allowed")):
            return self._checked(key, value, metadata["check"])
        return value

    def _list(self, key: Key, given: list[Any], metadata: typing.Mapping[str, Any]) -> Any:
        good = tuple(given)
        if metadata["check"]:
            good = tuple(self._checked((*key, index), each, metadata["check"]) for index, each in enumerate(given))
        if None in good:
            return None
        if metadata["whole"]:
            try:
                metadata["whole"](good)
            except ValueError as error:
                return self._fault(key, error)
        return good

    def _checked(self, key: Key, value: Any, check: Callable[[Any], Any]) -> Any:
        try:
            return check(value)
        except ValueError as error:
            return self._fault(key, error)

    # What hangs together

    def _directories(self) -> tuple[Path, dict[str, Path]]:
        home = self._directory("home", HOME_DEFAULT, self._base) or self._base
        found: dict[str, Path] = {}
        for name, (below, _) in DIRECTORIES.items():
            place = self._directory(name, below, self._base if name in self._document else home)
            if place is None:
                continue
            for other, taken in found.items():
                if os.path.normpath(taken) == os.path.normpath(place):
                    self._fault((name,), f"= {str(place)!r} is {other} already; allowed: a directory of its own")
            found[name] = place
        socket_room = found.get("run_directory")
        if socket_room and len(os.fsencode(socket_room)) > RUN_DIRECTORY_BYTES_MAX:
            key = "run_directory" if "run_directory" in self._document else "home"
            self._fault(
                (key,),
                f"makes the sockets' directory {str(socket_room)!r}; allowed: "
                f"{RUN_DIRECTORY_BYTES_MAX} bytes (run_directory may be set apart)",
            )
        return home, found

    def _directory(self, name: str, default: str, base: Path) -> Path | None:
        given = self._document.get(name, default)
        if not isinstance(given, str):
            self._fault((name,), f"= {reprlib.repr(given)} is wrong; allowed: a string")
            return None
        return typing.cast(Path | None, self._checked((name,), given, lambda text: values.directory(text, base)))

    def _transports(self, port: int) -> dict[str, dict[str, Any]]:
        given = self._table(("transports",))
        found: dict[str, dict[str, Any]] = {name: {} for name in SHIPPED_TRANSPORTS}
        for name in given:
            key = ("transports", name)
            if self._checked(key, name, values.transport_name):
                found[name] = self._section(key, Transport)
                if isinstance(given[name], dict):
                    found[name]["destinations"] = self._destinations((*key, "destinations"), port)
        if len(found) > TRANSPORTS_MAX:
            self._fault(("transports",), f"are {len(found)}; allowed: {TRANSPORTS_MAX}")
        return found

    def _destinations(self, key: Key, port: int) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for given in self._table(key):
            pattern = self._checked((*key, given), given, lambda text: values.destination_pattern(text, port))
            if pattern in found:
                self._fault((*key, given), f"is {pattern!r} again; allowed: each pattern once")
            section = self._section((*key, given), Destination)
            if pattern is not None:
                found[pattern] = section
        return found

    def _routes(self, transports: Iterable[str]) -> dict[str, str]:
        names = tuple(transports)
        found: dict[str, str] = {}
        for given, target in self._table(("routes",)).items():
            key = ("routes", given)
            pattern = self._checked(key, given, values.route_pattern)
            if pattern in found:
                self._fault(key, f"is {pattern!r} again; allowed: each pattern once")
            if not isinstance(target, str):
                self._fault(key, f'= {reprlib.repr(target)} is wrong; allowed: a string like "smtp:example.org:25"')
                continue
            try:
                route = parse_route(target)
            except RouteError as error:
                self._fault(key, f"= {error}")
                continue
            if route.transport not in names:
                near = difflib.get_close_matches(route.transport, names, n=1)
                meant = f"did you mean {near[0]!r}? " if near else ""
                self._fault(
                    key,
                    f"= {target!r}: transport {route.transport!r} is not defined; {meant}"
                    f"allowed: {', '.join(names)}, or add [transports.{route.transport}]",
                )
            if pattern is not None:
                found[pattern] = str(route)
        found.setdefault("*", DEFAULT_ROUTE)
        return found

    def _tls(self, receiver: dict[str, Any]) -> None:
        names = ("tls_certificate", "tls_key")
        given = [name for name in names if receiver.get(name)]
        for name in given:
            receiver[name] = str(self._base / receiver[name])
        try:
            if len(given) == 1:
                (missing,) = set(names) - set(given)
                raise ValueError(f"stands alone; allowed: both, or neither: {missing} is missing")
            if given and self._looks_at_certificate:
                values.check_certificate(receiver["tls_certificate"], receiver["tls_key"])
        except ValueError as error:
            wrong = "tls_key" if str(error).startswith("tls_key ") else given[0]
            self._fault(("receiver", wrong), str(error).removeprefix(f"{wrong} "))

    def _backoff(self, scheduler: dict[str, Any]) -> None:
        default = Scheduler()
        shortest = scheduler.get("minimal_backoff_time", default.minimal_backoff_time)
        longest = scheduler.get("maximal_backoff_time", default.maximal_backoff_time)
        if shortest > longest:
            name = "minimal_backoff_time" if "minimal_backoff_time" in scheduler else "maximal_backoff_time"
            self._fault(
                ("scheduler", name),
                f"makes the shortest wait ({shortest} s) longer than the longest ({longest} s); "
                "allowed: minimal_backoff_time <= maximal_backoff_time",
            )


def _shown(key: Key) -> str:
    """A key as it stands in the file: its section in brackets, then its name."""
    names = [str(part) for part in key if isinstance(part, str)]
    if len(names) == 1:
        return names[0]
    return f"[{'.'.join(names[:-1])}] {names[-1]}"
