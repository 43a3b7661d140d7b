"""``home/tuned.toml``: what was changed live (parameters, suspensions), above the configuration file.

Replaced atomically and synced before a change is answered. A person may read it; only the manager writes it. Suspensions
are stored in wall-clock seconds; whoever loads them turns them into its own clock.
"""

from __future__ import annotations

import json
import math
import os
import tomllib
from pathlib import Path

from mailcore.log.disk import Disk

__all__ = ["Tuned", "TunedDamaged"]

_HEAD = "# Values changed live, above the configuration file. Written by Waypost; change them with its commands.\n"


class TunedDamaged(Exception):
    """The file can't be read; the message names it and what is wrong."""


class Tuned:
    """scope ("", "smtp", "smtp:example.org") -> parameter -> value."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self.disk = disk
        self.path = path
        self.values: dict[str, dict[str, float]] = self._load()

    def _load(self) -> dict[str, dict[str, float]]:
        """Raises TunedDamaged."""
        try:
            loaded = tomllib.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise TunedDamaged(f"{self.path}: {error}") from error
        values: dict[str, dict[str, float]] = {}
        for scope, parameters in loaded.items():
            if not isinstance(parameters, dict):
                raise TunedDamaged(f"{self.path}: [{scope}] is no table")
            for name, value in parameters.items():
                if isinstance(value, bool) or not isinstance(value, int | float):
                    raise TunedDamaged(f"{self.path}: [{scope}] {name} is no number")
                values.setdefault(scope, {})[name] = value
        return values

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

    def _store(self, values: dict[str, dict[str, float]]) -> None:
        lines = [_HEAD]
        for scope in sorted(values):
            lines.append(f"\n[{json.dumps(scope)}]\n")
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


def _number(value: float) -> str:
    return "inf" if math.isinf(value) else repr(value)
