"""Checks the maps that are kept, or are handed in to be kept, with the readers that the processes use."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from mailcore.config.kept_files import DIRECTORY, MAP
from mailcore.config.map_file import REGEXP
from mailcore.config.rewriting import MAPS
from mailcore.config.settings import Settings
from mailcore.control.protocol.settings import KeyFault

__all__ = ["kept_map_faults", "text_faults"]

FAULTS_MAX = 50
_LINE = re.compile(r":(\d+): ")


def kept_map_faults(settings: Settings) -> list[KeyFault]:
    """Returns the faults of the kept maps that settings name: a map may be right for one setting and not for another."""
    kept = f"{settings.home / DIRECTORY / MAP}/"
    found = []
    for section in ("rewriting", "recipients", "route_maps"):
        values = getattr(settings, section)
        for field in dataclasses.fields(values):
            value = getattr(values, field.name)
            for name in value if isinstance(value, tuple) else ():
                if isinstance(name, str) and name.removeprefix(REGEXP).startswith(kept):
                    for line in _lines(name, f"{section}.{field.name}", settings):
                        found.append(KeyFault(key=f"{section}.{field.name}", reason=f"{Path(name).name}: {line}"))
    return found[:FAULTS_MAX]


def text_faults(path: Path, form: str, settings: Settings) -> list[KeyFault]:
    """Returns the faults of a map that is handed in, each with its line, as of the argument ``text``."""
    name = f"{REGEXP if form == 'patterns' else ''}{path}"
    key = {
        "addresses": "rewriting.virtual_alias_maps", "patterns": "rewriting.virtual_alias_maps",
        "header_checks": "rewriting.header_checks", "recipients": "recipients.relay_recipient_maps",
    }.get(form, f"route_maps.{form}")  # fmt: skip
    return [KeyFault(key="text", reason=line) for line in _lines(name, key, settings)[:FAULTS_MAX]]


def _lines(name: str, key: str, settings: Settings) -> list[str]:
    """Returns a sentence for each fault of a map, with the number of its line."""
    # The settings are checked without these libraries; the control process has them only if it rewrites addresses.
    from mailcore.config.route_files import route_faults
    from mailcore.rewriting.address_map import read_map
    from mailcore.rewriting.header_checks import read_checks
    from mailcore.rewriting.map_text import MapFault
    from mailcore.rewriting.recipient_list import read_recipients

    section, _, field = key.partition(".")
    path = name.removeprefix(REGEXP)
    faults: list[str] = []
    try:
        if section == "route_maps":
            only = dataclasses.replace(type(settings.route_maps)(), **{field: (path,)})
            faults = route_faults(dataclasses.replace(settings, route_maps=only))
        elif field == "header_checks":
            read_checks(name)
        elif field in MAPS:
            read_map(name)
        elif field == "relay_recipient_maps":
            read_recipients([path])
    except MapFault as fault:
        faults = str(fault).splitlines()
    return [_without_path(each, path) for each in faults]


def _without_path(line: str, path: str) -> str:
    """Returns "line 2: …" of "/…/aliases.0123456789abcdef:2: …"."""
    return _LINE.sub(r"line \1: ", line.removeprefix(path), count=1).removeprefix(": ")
