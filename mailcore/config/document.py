"""Reads a TOML file by the bounds of its settings: keys and values that are checked one by one, and the faults of all.

``mailcore.config.load`` makes the settings of it.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from mailcore.bounds import BadValue, Bounds, Kind, bounds_by_name, shown
from mailcore.config.lines import Fault, key_lines, located, report
from mailcore.config.lines import Path as Key
from mailcore.config.managed import Managed, layered, refused_values
from mailcore.config.settings import DIRECTORIES, SECTIONS, TlsPolicy, Transport

__all__ = ["ConfigError", "Document"]


FILE_BYTES_MAX = 4 << 20  # a hundred thousand routes fit

_POSITION = re.compile(r" \((?:at line (?P<line>\d+), column (?P<column>\d+)|at end of document)\)$")


class ConfigError(Exception):
    """A configuration file that cannot be used. The message, one line for each fault, is for the operator.

    ``faults`` has the same as data, in the order of the file; it is empty if the file cannot be read at all.
    """

    def __init__(self, message: str, faults: Sequence[Fault] = ()) -> None:
        super().__init__(message)
        self.faults = tuple(faults)

    @classmethod
    def of(cls, path: Path, text: str, faults: Iterable[Fault]) -> ConfigError:
        """Returns the error for the faults of a TOML text."""
        in_order = located(text, faults)
        return cls(report(path, in_order), in_order)


class Document:
    """One file as a TOML document. Collects the faults, so that the operator sees all of them at once."""

    def __init__(
        self,
        path: Path,
        text: str | None = None,
        *,
        look_at_certificate: bool,
        managed: Callable[[dict[str, Any], Path], Managed | None] = lambda document, base: None,
    ) -> None:
        """Reads the file. ``managed`` returns what is above it, given its values and its directory. Raises ConfigError."""
        self._path = path
        self._base = Path(os.path.abspath(path)).parent
        self._looks_at_certificate = look_at_certificate
        self._text = self._read() if text is None else text
        self._faults: list[Fault] = []
        try:
            self._document = tomllib.loads(self._text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(self._syntax(str(error))) from None
        except RecursionError:
            raise ConfigError(f"{path}: brackets are nested too deeply") from None
        self._managed = managed(self._document, self._base)
        if self._managed is not None:
            for key, why in refused_values(self._managed.document, self._document):
                self._fault(key, why)
            self._document = layered(self._document, self._managed.document)

    def _error(self) -> ConfigError:
        """Returns the error of all faults, each with the line of the file that its value is in."""
        if self._managed is None or not self._managed.text:
            return ConfigError.of(self._path, self._text, self._faults)
        above = key_lines(self._managed.text)
        mine = [each for each in self._faults if not _is_in(each.key, above)]
        errors = [ConfigError.of(self._path, self._text, mine)] if mine else []
        if theirs := [each for each in self._faults if _is_in(each.key, above)]:
            errors.append(ConfigError.of(self._managed.path, self._managed.text, theirs))
        return ConfigError("\n".join(map(str, errors)), [fault for error in errors for fault in error.faults])

    # The text

    def _read(self) -> str:
        try:
            with open(self._path, "rb") as file:
                data = file.read(FILE_BYTES_MAX + 1)
        except OSError as error:
            raise ConfigError(f"{self._path}: cannot be read: {error.strerror}") from None
        if len(data) > FILE_BYTES_MAX:
            raise ConfigError(f"{self._path}: the file is larger than {FILE_BYTES_MAX} bytes")
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise ConfigError(f"{self._path}:{line}: the line is not UTF-8, as TOML must be") from None

    def _syntax(self, message: str) -> str:
        """Moves the line to the front of tomllib's "Expected '=' after a key (at line 3, column 5)"."""
        line = self._text.rstrip().count("\n") + 1
        where = ""
        if match := _POSITION.search(message):
            message = message[: match.start()]
            line = int(match["line"] or line)
            where = f" (column {match['column']})" if match["column"] else " (at the end of the file)"
        return f"{self._path}:{line}: not valid TOML: {message}{where}"

    def _fault(self, key: Key, reason: str) -> Any:
        """Adds a fault and returns None, which stands for "no value" (TOML has no null)."""
        self._faults.append(Fault(key, reason))

    # Keys and values

    def _refuse_unknown(self, table: Key, names: Iterable[str], known: Iterable[str]) -> None:
        known = tuple(known)
        for name in names:
            if name in known:
                continue
            near = difflib.get_close_matches(name, known, n=1)
            sections = [
                f"[{section}]"
                for section, kind in (
                    *SECTIONS.items(),
                    ("transports.NAME", Transport),
                    ('tls_policy."PATTERN"', TlsPolicy),
                )
                if name in bounds_by_name(kind)
            ]
            if table and (name == "home" or name in DIRECTORIES):
                hint = "it belongs at the top of the file, before the first section"
            elif sections:
                hint = f"it belongs in {' or '.join(sections)}"
            else:
                hint = f"did you mean {near[0]!r}?" if near else f"allowed here: {', '.join(known)}"
            self._fault((*table, name), f"is not a setting here; {hint}")

    def _table(self, key: Key) -> dict[str, Any]:
        given: Any = self._document
        for part in key:
            given = given.get(part, {}) if isinstance(part, str) else given[part]
        if isinstance(given, dict):
            return given
        self._fault(key, f"must be a section, [{'.'.join(map(str, key))}] (got {shown(given)})")
        return {}

    def _section(self, key: Key, kind: type) -> dict[str, Any]:
        """Returns the checked values of one section; invalid ones are left out."""
        table = self._table(key)
        self._refuse_unknown(key, table, [each.name for each in fields(kind)])
        known = bounds_by_name(kind)
        section = {
            name: self._value((*key, name), value, known[name]) for name, value in table.items() if name in known
        }
        return {name: value for name, value in section.items() if value is not None}

    def _value(self, key: Key, value: Any, bounds: Bounds) -> Any:
        """Returns the value as the code uses it; None after a fault."""
        if bounds.kind is not Kind.LIST or not isinstance(value, list):
            return self._checked(key, value, bounds.read)
        if any(type(element) is not bounds.element for element in value):
            return self._fault(key, bounds.error(value).reason)
        elements = [self._checked((*key, index), element, bounds.read_element) for index, element in enumerate(value)]
        return None if None in elements else self._checked(key, tuple(elements), bounds.read_list)

    def _checked(self, key: Key, value: Any, read: Callable[[Any], Any]) -> Any:
        try:
            return read(value)
        except BadValue as error:
            return self._fault(key, error.reason)

    def _tables(self, name: str, kind: type) -> list[dict[str, Any]]:
        """Returns the checked values of each section [[name]]."""
        given = self._document.get(name, [])
        if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
            self._fault((name,), f"must be one or more sections, [[{name}]] (got {shown(given)})")
            return []
        return [self._section((name, number), kind) for number in range(len(given))]


def _is_in(key: Key, lines: Container[Key]) -> bool:
    """Returns True if the value of this key, or the section of it, is in the text with these lines."""
    return key in lines or (len(key) > 2 and isinstance(key[1], int) and key[:2] in lines)
