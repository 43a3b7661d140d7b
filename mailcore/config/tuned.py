"""Reads and writes ``home/tuned.toml``: parameters and suspensions set live. They override the configuration file.

The file is replaced atomically and synced before a change is answered. Only the manager writes it. Suspensions, and the ends of
values set for a time, are wall-clock seconds; the reader converts them to its own clock.

    ["smtp:example.org"]
    destination_rate_delay = 2
    destination_concurrency_limit = { lasting = 8, value = 4, until = 1795000000.0 }

A plain value holds until it is removed; a value in braces until a time, and after that the lasting one, if there is one.

Laws: a file that can't be understood stops no mail. It is set aside under another name, never deleted, ``damage`` says so,
and the values of the configuration file hold (decision 0008).

Keeps law: damaged-tuning-is-set-aside (docs/laws.md).
"""

from __future__ import annotations

import itertools
import json
import math
import os
import tomllib
from pathlib import Path
from typing import TypeVar

from mailcore.log.disk import Disk

__all__ = ["Timed", "Tuned", "Values", "in_force", "parsed", "read", "text_of", "with_value"]

_HEAD = "# Values changed live, above the configuration file. Written by Waypost; change them with its commands.\n"


T = TypeVar("T")
Value = float | int | bool | str
Values = dict[str, dict[str, Value]]
Timed = dict[str, dict[str, tuple[Value, float]]]


class Tuned:
    """scope ("", "smtp", "smtp:example.org") -> parameter -> value; ``timed`` has the time it ends with it."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self.disk = disk
        self.path = path
        self.damage = ""  # the fault of the file at the start, and its new name
        self.values: Values = {}
        self.timed: Timed = {}
        try:
            self.values, self.timed = read(path)
        except (ValueError, RecursionError) as error:  # TOMLDecodeError and UnicodeDecodeError are ValueErrors
            self.damage = f"{path}: {error}; {self._set_aside()}; the values of the configuration file are used"

    def _set_aside(self) -> str:
        for number in itertools.count(1):
            aside = f"{self.path}.damaged.{number}"
            if not self.disk.exists(aside):
                break
        self.disk.replace(str(self.path), aside)
        self.disk.sync_directory(os.path.dirname(self.path))
        return f"the file was renamed to {aside}"

    def get(self, scope: str, parameter: str) -> Value | None:
        """Returns the lasting value, or None."""
        return self.values.get(scope, {}).get(parameter)

    def get_timed(self, scope: str, parameter: str) -> tuple[Value, float] | None:
        """Returns the value set for a time and its end, or None."""
        return self.timed.get(scope, {}).get(parameter)

    def set(self, scope: str, parameter: str, value: Value | None, until: float | None = None) -> None:
        """Sets a value, lasting or ``until`` a time, and writes the file.

        None removes the value set for a time and, unless ``until`` is given, the lasting one too. Raises OSError; the file and
        the values are unchanged then.
        """
        values, timed = with_value(self.values, self.timed, scope, parameter, value, until)
        self._store(values, timed)
        self.values, self.timed = values, timed

    def forget_ended(self, parameter: str, wall: float) -> list[tuple[str, str, Value, float]]:
        """Removes the values that ended until ``wall`` from memory; the next ``set`` removes them from the file.

        A value of ``parameter`` is a time itself. Returns scope, parameter, value and end of each.
        """
        ended: list[tuple[str, str, Value, float]] = []
        for scope, parameters in self.values.items():
            until = parameters.get(parameter)
            if isinstance(until, int | float) and until <= wall:
                ended.append((scope, parameter, until, until))
                self.values[scope] = {name: value for name, value in parameters.items() if name != parameter}
        for scope, timed in self.timed.items():
            ended += [(scope, name, value, until) for name, (value, until) in timed.items() if until <= wall]
            self.timed[scope] = {name: each for name, each in timed.items() if each[1] > wall}
        self.values, self.timed = _copy(self.values), _copy(self.timed)
        return ended

    def save(self) -> None:
        """Writes the values in memory to the file. Raises OSError; the file is unchanged then."""
        self._store(self.values, self.timed)

    def _store(self, values: Values, timed: Timed) -> None:
        self.disk.write_whole(str(self.path), text_of(values, timed).encode())


def with_value(
    values: Values, timed: Timed, scope: str, parameter: str, value: Value | None, until: float | None = None
) -> tuple[Values, Timed]:
    """Returns the values after a change, as ``Tuned.set`` makes it."""
    values, timed = _copy(values), _copy(timed)
    if value is None:
        timed.get(scope, {}).pop(parameter, None)
        if until is None:
            values.get(scope, {}).pop(parameter, None)
    elif until is None:
        values.setdefault(scope, {})[parameter] = value
    else:
        timed.setdefault(scope, {})[parameter] = value, until
    return _copy(values), _copy(timed)


def text_of(values: Values, timed: Timed) -> str:
    """Returns the text of a file with these values: equal values have equal texts."""
    lines = [_HEAD]
    for scope in sorted({*values, *timed}):
        lines.append(f"\n[{_quoted(scope)}]\n")
        lasting, ending = values.get(scope, {}), timed.get(scope, {})
        for name in sorted({*lasting, *ending}):
            text = _toml(lasting[name]) if name in lasting else ""
            if name in ending:
                value, until = ending[name]
                before = f"lasting = {text}, " if text else ""
                text = f"{{ {before}value = {_toml(value)}, until = {_toml(until)} }}"
            lines.append(f"{name} = {text}\n")
    return "".join(lines)


def in_force(values: Values, timed: Timed, parameter: str, wall: float) -> tuple[Values, Timed]:
    """Returns the values without those that ended until ``wall``. A value of ``parameter`` is a time itself."""
    lasting = {
        scope: {
            name: value
            for name, value in parameters.items()
            if name != parameter or not isinstance(value, int | float) or value > wall
        }
        for scope, parameters in values.items()
    }
    ending = {scope: {name: each for name, each in ends.items() if each[1] > wall} for scope, ends in timed.items()}
    return _copy(lasting), _copy(ending)


def _copy(values: dict[str, dict[str, T]]) -> dict[str, dict[str, T]]:
    """Copies the values, without scopes that have no values."""
    return {scope: dict(parameters) for scope, parameters in values.items() if parameters}


def read(path: Path) -> tuple[Values, Timed]:
    """Returns the lasting values and those set for a time; both are empty without a file. Raises OSError, ValueError."""
    try:
        return parsed(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}, {}


def parsed(text: str) -> tuple[Values, Timed]:
    """Returns the values that a text has. Raises ValueError."""
    loaded = tomllib.loads(text)
    values: Values = {}
    timed: Timed = {}
    for scope, parameters in loaded.items():
        if not isinstance(parameters, dict):
            raise ValueError(f"[{scope}] must be a section")
        for name, stored in parameters.items():
            where = f"[{scope}] {name}"
            if not isinstance(stored, dict):
                values.setdefault(scope, {})[name] = _value(where, stored)
                continue
            if not {"value", "until"} <= set(stored) <= {"lasting", "value", "until"}:
                raise ValueError(f"{where} must be a value, or {{ value = …, until = … }}")
            until = _value(where, stored["until"])
            if isinstance(until, str):
                raise ValueError(f"{where}: until must be a time in seconds")
            timed.setdefault(scope, {})[name] = _value(where, stored["value"]), until
            if "lasting" in stored:
                values.setdefault(scope, {})[name] = _value(where, stored["lasting"])
    return values, timed


def _value(where: str, value: object) -> Value:
    if not isinstance(value, bool | int | float | str) or (isinstance(value, float) and math.isnan(value)):
        raise ValueError(f"{where} must be a number, a string, true or false")
    return value


def _quoted(text: str) -> str:
    """Returns a TOML basic string; a JSON string is one, except for DEL and surrogate pairs."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml(value: Value) -> str:
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return "inf" if math.isinf(value) else repr(value)
