"""The settings that are managed while Waypost runs: ``home/managed.toml``, above the configuration file.

The file has the same keys as the configuration file. A value in it counts instead of the one there; a list, a route or a
section ``[[listener]]`` counts as a whole. ``removed`` lists keys of the configuration file that do not count: values, or rows
such as ``routes."example.org"`` with all that is in them. Where ``[portal] manages`` is false, the file is neither read nor
written.

Keys that a person with the right to manage must not have are refused: places, the names of files that Waypost does not keep
itself (``mailcore.config.kept_files``), and who may do what. So a change here reads no other file, opens no door to itself, and
can be undone here.

Pure, except ``Managed.read``.

Keeps law: managed-is-a-layer (docs/laws.md).
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mailcore.bounds import bounds_by_name
from mailcore.config.kept_files import kind_of, unkept
from mailcore.config.lines import Path as Key
from mailcore.config.settings import DIRECTORIES, SECTIONS

__all__ = [
    "BYTES_MAX",
    "HISTORY",
    "NAME",
    "REMOVED",
    "Managed",
    "changed",
    "document_text",
    "dotted",
    "is_below",
    "keys_of",
    "layered",
    "manageable",
    "merged",
    "named",
    "names_files",
    "not_managed",
    "refused_values",
    "removed_keys",
    "removed_text",
    "revision_of",
    "values_of",
]

NAME = "managed.toml"
REMOVED = "removed"  # the key of the list of what is removed
HISTORY = "managed-history.jsonl"  # in the home: a line for each state
BYTES_MAX = 1 << 20
HEAD = "# Settings that were changed while Waypost ran, above the configuration file. Written by Waypost.\n"
_SECTIONS = {  # not managed -> why
    "portal": "it says who may manage",
    "nodes": "it says where the mail is",
    "oidc": "it says who may sign in",
    "control": "it says who may change what",
    "core": "the number of queues decides which processes there are",
    "supervisor": "the processes are watched by it",
}
_FILES = frozenset(
    {
        "certificate", "key", "tls_certificate", "tls_key", "header_checks",
    }
)  # fmt: skip
_KEYS: dict[tuple[str, ...], str] = {  # of sections that are managed otherwise -> why
    ("reports", "broker_url"): "the reports' process reads it when it starts",
    ("reports", "spark_master"): "all events are read there",
}
_REPEATED = ("listener", "milter", "certificate", "dkim")  # sections [[name]]
_WITH_PASSWORD = ("smtp", "smtp_tls", "smtp_user")  # of [alerts]
_FILE_ENDS = ("_file", "_files", "_directory", "_maps")


@dataclass(frozen=True, slots=True)
class Managed:
    """The file: where it is, its text, and what is in it. ``text`` is "" without a file."""

    path: Path
    text: str
    document: dict[str, Any]

    @property
    def values(self) -> dict[str, Any]:
        """Returns the values, without the list of what is removed."""
        return {name: value for name, value in self.document.items() if name != REMOVED}

    @property
    def removed(self) -> list[tuple[str, ...]]:
        """Returns the keys that are removed; those that are wrongly written are left out."""
        return removed_keys(self.document)

    @classmethod
    def read(cls, path: Path) -> Managed:
        """Reads the file. Raises OSError, UnicodeDecodeError, tomllib.TOMLDecodeError; ValueError if it is too large."""
        try:
            with path.open("rb") as file:
                data = file.read(BYTES_MAX + 1)
        except FileNotFoundError:
            return cls(path, "", {})
        if len(data) > BYTES_MAX:
            raise ValueError(f"the file is larger than {BYTES_MAX} bytes")
        text = data.decode()
        return cls(path, text, tomllib.loads(text))


def revision_of(*texts: str) -> str:
    """Returns a short name of the state of the files: another text is another revision."""
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode()
        digest.update(b"%d:%b" % (len(data), data))
    return digest.hexdigest()[:16]


def not_managed(key: Key) -> str:
    """Returns why a key can't be managed, as the end of a sentence; "" if it can."""
    names = [part for part in key if isinstance(part, str)]
    if not names:
        return "is not a setting"
    if names[0] == "home" or names[0] in DIRECTORIES:
        return "can't be managed here: mail is there; it is set in the configuration file"
    if names[0] in _SECTIONS:
        return f"can't be managed here: {_SECTIONS[names[0]]}; it is set in the configuration file"
    if why := _KEYS.get(tuple(names[:2])):
        return f"can't be managed here: {why}; it is set in the configuration file"
    if names_files(key):
        return "can't be managed here: it names a file; it is set in the configuration file"
    return ""


def names_files(key: Key) -> bool:
    """Returns whether the values of a key are names of files."""
    names = [part for part in key if isinstance(part, str)]
    return bool(kind_of(key)) or any(name in _FILES or name.endswith(_FILE_ENDS) for name in names[1:])


def refused_values(document: Mapping[str, Any], below: Mapping[str, Any]) -> Iterable[tuple[Key, str]]:
    """Yields the key of each value that must not be managed, and why. ``below``: what the configuration file has."""
    yield from _refused_removals(document, below)
    for key in keys_of({name: value for name, value in document.items() if name != REMOVED}):
        why = not_managed(key)
        if why and kind_of(key):
            why = unkept(key, _at(document, key), _all_at(below, key))
        why = why or _of_a_password(key, below)
        if why:
            yield key, why


def _refused_removals(document: Mapping[str, Any], below: Mapping[str, Any]) -> Iterable[tuple[Key, str]]:
    given = document.get(REMOVED, [])
    if not isinstance(given, list) or any(not isinstance(each, str) or named(each) is None for each in given):
        yield (REMOVED,), "must be a list of keys as in the file, such as 'routes.\"example.org\"'"
        return
    for key in removed_keys(document):
        if why := not_removable(key, below):
            yield (REMOVED,), f"{dotted(key)}: {why}"


def not_removable(key: tuple[str, ...], below: Mapping[str, Any]) -> str:
    """Returns why a key of the configuration file can't be removed here; "" if it can."""
    if len(key) < 2 and key[0] not in _REPEATED:
        return 'can\'t be removed here: it must be a value or a row, such as routes."example.org"'
    for each in [key, *(each for each in keys_of(below) if is_below(_names_of(each), key))]:
        if (why := not_managed(each)) and not kind_of(each):
            name = "" if _names_of(each) == key else f"{dotted(_names_of(each))} "
            return f"{name}{why}"
    return ""


def _names_of(key: Key) -> tuple[str, ...]:
    return tuple(part for part in key if isinstance(part, str))


def is_below(key: tuple[str, ...], above: tuple[str, ...]) -> bool:
    """Returns True if a key is another one, or in it."""
    return key[: len(above)] == above


def removed_keys(document: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Returns the keys that a managed document removes; those that are wrongly written are left out."""
    given = document.get(REMOVED, [])
    texts = given if isinstance(given, list) else []
    found = [named(text) for text in texts if isinstance(text, str)]
    return [tuple(names) for names in found if names is not None]


def removed_text(keys: Iterable[tuple[str, ...]]) -> list[str]:
    """Returns the list of keys that are removed, as the file has it."""
    return [dotted(key) for key in keys]


def layered(below: Mapping[str, Any], managed: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what counts of the configuration file with a managed document above it."""
    found: Any = below
    for key in removed_keys(managed):
        found = _without(found, key)
    return merged(found, {name: value for name, value in managed.items() if name != REMOVED})


def _without(table: Mapping[str, Any], key: tuple[str, ...]) -> dict[str, Any]:
    name, *rest = key
    found = dict(table)
    if not rest:
        found.pop(name, None)
    elif isinstance(found.get(name), dict):
        found[name] = _without(found[name], tuple(rest))
    return found


def _of_a_password(key: Key, below: Mapping[str, Any]) -> str:
    """Returns why a server for alerts is refused: the password that the configuration file names would go to it."""
    alerts = below.get("alerts")
    if len(key) < 2 or key[0] != "alerts" or key[1] not in _WITH_PASSWORD or not isinstance(alerts, dict):
        return ""
    if not alerts.get("smtp_password_file"):
        return ""
    return (
        "can't be managed here: the password in smtp_password_file would go there; it is set in the configuration file"
    )


def _at(document: Any, key: Key) -> Any:
    for part in key:
        document = document[part]
    return document


def _all_at(document: Any, key: Key) -> list[str]:
    """Returns the texts that the configuration file has at a key; of one in a section [[name]], those in all of them."""
    levels = [document]
    for part in key:
        levels = [
            each
            for level in levels
            for each in (
                level
                if isinstance(level, list) and isinstance(part, int)
                else [level.get(part)]
                if isinstance(level, dict)
                else []
            )
        ]
    return [text for each in levels for text in (each if isinstance(each, list) else [each]) if isinstance(text, str)]


@functools.cache
def manageable() -> tuple[tuple[str, str], ...]:
    """Returns each key of the sections that can be managed, with dots, and its meaning."""
    return tuple(
        (f"{section}.{name}", bounds.description)
        for section, kind in SECTIONS.items()
        for name, bounds in bounds_by_name(kind).items()
        if not not_managed((section, name))
    )


def keys_of(document: Mapping[str, Any], above: Key = ()) -> Iterable[Key]:
    """Yields the key of each value; one in a section [[name]] has its number in it."""
    for name, value in document.items():
        key = (*above, name)
        if isinstance(value, dict):
            yield from keys_of(value, key)
        elif isinstance(value, list) and any(isinstance(each, dict) for each in value):
            for number, each in enumerate(value):
                yield from keys_of(each, (*key, number)) if isinstance(each, dict) else ((*key, number),)
        else:
            yield key


def values_of(document: Mapping[str, Any]) -> dict[tuple[str, ...], Any]:
    """Returns the values by their keys; sections [[name]] as a whole."""
    found: dict[tuple[str, ...], Any] = {}
    for key in keys_of(document):
        names = tuple(str(part) for part in itertools.takewhile(lambda part: isinstance(part, str), key))
        value: Any = document
        for name in names:
            value = value[name]
        found[names] = value
    return found


def named(text: str) -> list[str] | None:
    """Returns the names of a key that is written as in TOML: relay.domains, routes."example.org"; None if it is none."""
    try:
        level: Any = tomllib.loads(f"{text.strip()} = 0") if "\n" not in text.strip() else None
    except tomllib.TOMLDecodeError:
        return None
    names: list[str] = []
    while isinstance(level, dict) and len(level) == 1:
        ((name, level),) = level.items()
        names.append(name)
    return names if names and level == 0 else None


def dotted(names: Iterable[str]) -> str:
    """Returns a key as it is written in TOML."""
    return ".".join(map(_name, names))


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a document in which each value of ``above`` counts instead of the one in ``below``."""
    found = dict(below)
    for name, value in above.items():
        under = found.get(name)
        found[name] = merged(under, value) if isinstance(value, dict) and isinstance(under, dict) else value
    return found


def changed(
    document: Mapping[str, Any],
    changes: Iterable[tuple[tuple[str, ...], Any]],
    removed: Iterable[tuple[str, ...]] = (),
) -> dict[str, Any]:
    """Returns these settings with these values; None undoes a change, and a removal. Empty sections go.

    ``removed``: keys of the configuration file that are not to count. Raises TypeError, ValueError.
    """
    removed = list(removed)
    changes = [*((key, None) for key in removed), *changes]
    new: dict[str, Any] = json.loads(json.dumps(document))  # TypeError for a date, which no setting has
    out = new.pop(REMOVED, [])
    gone = [tuple(named(each) or ()) for each in out]
    kept = [each for each in gone if not any(is_below(each, key) for key, _ in changes)]
    kept += [key for key in removed if not any(is_below(key, each) for each in kept)]
    for key, value in changes:
        *sections, name = key
        tables = [new]
        for section in sections:
            if value is None and section not in tables[-1]:
                break
            table = tables[-1].setdefault(section, {})
            if not isinstance(table, dict):
                raise ValueError(f"{section} is not a section")
            tables.append(table)
        else:
            if value is None:
                tables[-1].pop(name, None)
            else:
                tables[-1][name] = value
        for at in range(len(tables) - 1, 0, -1):
            if not tables[at]:
                del tables[at - 1][sections[at - 1]]
    return {REMOVED: removed_text(dict.fromkeys(kept)), **new} if kept else new


def document_text(document: Mapping[str, Any], head: str = HEAD) -> str:
    """Returns the settings as TOML. Raises ValueError for a value that no setting has."""
    lines: list[str] = []
    _write(lines, "", document)
    return head + "".join(f"{line}\n" for line in lines)


def _write(lines: list[str], section: str, table: Mapping[str, Any]) -> None:
    plain = {name: value for name, value in table.items() if not isinstance(value, dict) and not _has_tables(value)}
    if section and (plain or not table):
        lines += ["", f"[{section}]"]
    lines += [f"{_name(name)} = {_value(value)}" for name, value in plain.items()]
    for name, value in table.items():
        below = f"{section}.{_name(name)}" if section else _name(name)
        if isinstance(value, dict):
            _write(lines, below, value)
        elif _has_tables(value):
            for each in value:
                lines += ["", f"[[{below}]]"]
                lines += [f"{_name(key)} = {_value(one)}" for key, one in each.items()]


def _has_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) for each in value)


def _name(name: str) -> str:
    bare = name.replace("_", "").replace("-", "")
    return name if bare.isascii() and bare.isalnum() else _string(name)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    raise ValueError(f"{value!r} is not a value of a setting")


def _string(text: str) -> str:
    """Returns a TOML basic string; a JSON string is one, except for DEL and surrogates."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
