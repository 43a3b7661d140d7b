"""The changes of settings that use a kept file, or end its use. Pure: values of the files in, changes out."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mailcore.config.kept_files import CERTIFICATE, DKIM, MAP, Reference, references_in
from mailcore.config.map_file import REGEXP
from mailcore.control.protocol.settings import SettingChange

__all__ = ["changes_of_dkim", "changes_of_place", "changes_of_rows", "changes_without", "renewals", "used_by"]

Rows = list[dict[str, Any]]


def used_by(document: Mapping[str, Any]) -> dict[Reference, list[str]]:
    """Returns the settings that refer to each file, as they are in the file: "[receiver] tls_key", "[[dkim]] example.org"."""
    found: dict[Reference, list[str]] = {}
    for section, value in document.items():
        tables = value if isinstance(value, list) else [value]
        for table in tables:
            if not isinstance(table, Mapping):
                continue
            for name, each in table.items():
                for reference in references_in(each):
                    found.setdefault(reference, []).append(_words(section, name, table, isinstance(value, list)))
    return found


def _words(section: str, name: str, table: Mapping[str, Any], is_row: bool) -> str:
    if not is_row:
        return f"[{section}] {name}"
    names = table.get("names")
    of = (
        ", ".join(map(str, names))
        if isinstance(names, list)
        else f"{table.get('selector', '')}._domainkey.{table.get('domain', '')}"
    )
    return f"[[{section}]] {of}"


def renewals(document: Mapping[str, Any], new: Sequence[Reference]) -> list[SettingChange]:
    """Returns the changes that put ``new`` wherever another content of the same name is used."""
    by_name = {(each.kind, each.name): each for each in new}
    return [SettingChange(key=list(key), value=value) for key, value in _renewed(document, by_name)]


def _renewed(
    document: Mapping[str, Any], by_name: Mapping[tuple[str, str], Reference]
) -> Iterator[tuple[tuple[str, ...], Any]]:
    for section, value in document.items():
        if isinstance(value, list):
            if (renewed := _with(value, by_name)) != value:
                yield (section,), renewed
        elif isinstance(value, Mapping):
            for name, each in value.items():
                if isinstance(each, Mapping):  # tls_policy."example.org"
                    for inner, one in each.items():
                        if (renewed := _with(one, by_name)) != one:
                            yield (section, name, inner), renewed
                elif (renewed := _with(each, by_name)) != each:
                    yield (section, name), renewed


def _with(value: Any, by_name: Mapping[tuple[str, str], Reference]) -> Any:
    if isinstance(value, list):
        return [_with(each, by_name) for each in value]
    if isinstance(value, Mapping):
        return {name: _with(each, by_name) for name, each in value.items()}
    reference = Reference.parse(value)
    new = None if reference is None else by_name.get((reference.kind, reference.name))
    return value if new is None else f"{REGEXP if value.startswith(REGEXP) else ''}{new}"


def changes_of_place(
    document: Mapping[str, Any], place: Sequence[str], file: Reference, key: Reference | None, *, patterns: bool = False
) -> list[SettingChange]:
    """Returns the changes that use the file in a setting: behind the others of a list, or instead of the one there."""
    if file.kind == CERTIFICATE and key is not None:
        return [
            SettingChange(key=["receiver", "tls_certificate"], value=str(file)),
            SettingChange(key=["receiver", "tls_key"], value=str(key)),
        ]
    if file.kind != MAP:
        return [SettingChange(key=list(place), value=str(file))]
    text = f"{REGEXP if patterns else ''}{file}"
    now = _value(document, place)
    others = [each for each in now if _name(each) != (file.kind, file.name)] if isinstance(now, list) else []
    at = next((number for number, each in enumerate(now or ()) if _name(each) == (file.kind, file.name)), len(others))
    return [SettingChange(key=list(place), value=[*others[:at], text, *others[at:]])]


def changes_of_rows(
    document: Mapping[str, Any], file: Reference, key: Reference, names: Sequence[str]
) -> list[SettingChange]:
    """Returns the change that adds a section [[certificate]] for these names; one with the same names is replaced."""
    rows = [each for each in _rows(document, "certificate") if set(each.get("names", ())) != set(names)]
    row = {"names": list(names), "certificate": str(file), "key": str(key)}
    return [SettingChange(key=["certificate"], value=[*rows, row])]


def changes_of_dkim(
    document: Mapping[str, Any], file: Reference, domain: str, selector: str, *, subdomains: bool
) -> list[SettingChange]:
    """Returns the change that signs with a key, beside the others; one with the same names is replaced."""
    rows = [each for each in _rows(document, DKIM) if (each.get("domain"), each.get("selector")) != (domain, selector)]
    row: dict[str, Any] = {"domain": domain, "selector": selector, "key": str(file)}
    if subdomains:
        row["subdomains"] = True
    return [SettingChange(key=[DKIM], value=[*rows, row])]


def changes_without(document: Mapping[str, Any], files: Sequence[Reference]) -> list[SettingChange]:
    """Returns the changes after which no setting refers to the files."""
    gone = {str(each) for each in files}
    changes = []
    for section, value in document.items():
        if isinstance(value, list):
            left = [
                each
                for each in value
                if not gone.intersection(map(str, each.values() if isinstance(each, Mapping) else ()))
            ]
            if left != value:
                changes.append(SettingChange(key=[section], value=left or None))
        elif isinstance(value, Mapping):
            changes += _without(section, value, gone)
    return changes


def _without(section: str, table: Mapping[str, Any], gone: set[str]) -> Iterator[SettingChange]:
    for name, value in table.items():
        if isinstance(value, list):
            left = [each for each in value if str(each).removeprefix(REGEXP) not in gone]
            if left != value:
                yield SettingChange(key=[section, name], value=left or None)
        elif isinstance(value, Mapping):
            for inner, each in value.items():
                if str(each) in gone:
                    yield SettingChange(key=[section, name, inner], value=None)
        elif str(value) in gone:
            yield SettingChange(key=[section, name], value=None)


def _rows(document: Mapping[str, Any], section: str) -> Rows:
    found = document.get(section, [])
    return [dict(each) for each in copy.deepcopy(found) if isinstance(each, Mapping)] if isinstance(found, list) else []


def _value(document: Mapping[str, Any], place: Sequence[str]) -> Any:
    value: Any = document
    for name in place:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _name(value: object) -> tuple[str, str] | None:
    reference = Reference.parse(value)
    return None if reference is None else (reference.kind, reference.name)
