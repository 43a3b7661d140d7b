"""``home/tuned.toml``: what was changed live (parameters, suspensions), above the configuration file.

Replaced atomically and synced before a change is answered. A person may read it; only the manager writes it. Suspensions
are stored in wall-clock seconds; whoever loads them turns them into its own clock.

Laws: a file that can't be understood stops no mail. It is set aside under another name, never deleted, ``damage`` says so,
and the values of the configuration file hold (decision 0008).
"""

from __future__ import annotations

import itertools
import json
import math
import os
import tomllib
from pathlib import Path

from mailcore.log.disk import Disk

__all__ = ["Tuned"]

_HEAD = "# Values changed live, above the configuration file. Written by Waypost; change them with its commands.\n"


class Tuned:
    """scope ("", "smtp", "smtp:example.org") -> parameter -> value."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self.disk = disk
        self.path = path
        self.damage = ""  # what was wrong with the file at the start, and where it is now
        self.values: dict[str, dict[str, float]] = {}
        try:
            self.values = _read(path)
        except (ValueError, RecursionError) as error:  # TOMLDecodeError and UnicodeDecodeError are ValueErrors
            self.damage = f"{path}: {error}; {self._set_aside()}; the values of the configuration file hold"

    def _set_aside(self) -> str:
        for number in itertools.count(1):
            aside = f"{self.path}.damaged.{number}"
            if not self.disk.exists(aside):
                break
        self.disk.replace(str(self.path), aside)
        self.disk.sync_directory(os.path.dirname(self.path))
        return f"it is {aside} now"

    def get(self, scope: str, parameter: str) -> float | None:
        return self.values.get(scope, {}).get(parameter)

    def set(self, scope: str, parameter: str, value: float | None) -> None:
        """Changes the file; None takes the value out of it. Raises OSError, and the file stays as it was."""
        values = {name: dict(parameters) for name, parameters in self.values.items()}
        if value is None:
            values.get(scope, {}).pop(parameter, None)
        else:
            values.setdefault(scope, {})[parameter] = value
        values = {name: parameters for name, parameters in values.items() if parameters}
        self._store(values)
        self.values = values

    def forget_ended(self, parameter: str, wall: float) -> None:
        """Takes out times that are over, from memory; the next ``set`` takes them out of the file."""
        for scope, parameters in list(self.values.items()):
            if parameters.get(parameter, math.inf) <= wall:
                del parameters[parameter]
                if not parameters:
                    del self.values[scope]

    def _store(self, values: dict[str, dict[str, float]]) -> None:
        lines = [_HEAD]
        for scope in sorted(values):
            lines.append(f"\n[{_quoted(scope)}]\n")
            lines += [f"{name} = {_number(value)}\n" for name, value in sorted(values[scope].items())]
        new = f"{self.path}.new"
        if self.disk.exists(new):
            self.disk.unlink(new)
        fd = self.disk.create(new)
        try:
            self.disk.write(fd, ["".join(lines).encode()], 0)
            self.disk.sync(fd)
        finally:
            self.disk.close(fd)
        self.disk.replace(new, str(self.path))
        self.disk.sync_directory(os.path.dirname(self.path))


def _read(path: Path) -> dict[str, dict[str, float]]:
    """Raises ValueError at what is no file of ours, OSError."""
    try:
        loaded = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    values: dict[str, dict[str, float]] = {}
    for scope, parameters in loaded.items():
        if not isinstance(parameters, dict):
            raise ValueError(f"[{scope}] is no table")
        for name, value in parameters.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
                raise ValueError(f"[{scope}] {name} is no number")
            values.setdefault(scope, {})[name] = value
    return values


def _quoted(scope: str) -> str:
    """A TOML basic string; JSON's is one but for DEL, and for what it escapes as two halves."""
    return json.dumps(scope, ensure_ascii=False).replace("\x7f", "\\u007f")


def _number(value: float) -> str:
    return "inf" if math.isinf(value) else repr(value)
