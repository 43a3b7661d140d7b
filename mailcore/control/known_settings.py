"""Lists the settings that are set, each with its layers: the configuration file, the managed one, and values tuned live.

A value that is tuned counts above both files at the same key; ``value`` and ``origin`` are of the files. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from mailcore.config.managed import Managed, is_below, not_managed, values_of
from mailcore.config.tuned import Timed, Values
from mailcore.control.protocol.settings import KnownSetting, TunedLayer
from mailcore.scheduler.parameters import SUSPENDED_UNTIL

__all__ = ["known_settings", "plain"]

Key = tuple[str, ...]


def known_settings(
    document: Mapping[str, Any], managed: Managed, tuned: tuple[Values, Timed] = ({}, {}), wall: float = 0.0
) -> list[KnownSetting]:
    """Returns each value that is set in a file or tuned, or is removed; ``wall``: now, for values that were set for a time."""
    above, below, out = values_of(managed.values), values_of(document), managed.removed
    layers = dict(_layers(*tuned, wall))
    found: dict[Key, KnownSetting] = {}
    for key in dict.fromkeys((*above, *below)):
        removed = next((each for each in out if is_below(key, each)), ()) if key in below else ()
        found[key] = KnownSetting(
            key=list(key),
            value=plain(above.get(key, None if removed else below.get(key))),
            origin="managed" if key in above else "removed" if removed else "file",
            below=plain(below.get(key)) if key in above or removed else None,
            fixed=not_managed(key),
            removed=list(removed),
            tuned=layers.get(key, []),
        )
    for key in out:
        if not any(is_below(each, key) for each in below):
            found.setdefault(key, KnownSetting(key=list(key), value=None, origin="removed", removed=list(key)))
    for key, values in layers.items():
        found.setdefault(key, KnownSetting(key=list(key), value=None, origin="tuned", tuned=values))
    return list(found.values())


def _layers(values: Values, timed: Timed, wall: float) -> Iterator[tuple[Key, list[TunedLayer]]]:
    """Yields the tuned values of each setting, first the one that counts."""
    for scope in sorted({*values, *timed}):
        lasting, ending = values.get(scope, {}), timed.get(scope, {})
        for name in sorted({*lasting, *ending} - {SUSPENDED_UNTIL}):
            found = []
            if name in ending and ending[name][1] > wall:
                found.append(TunedLayer(value=ending[name][0], until=ending[name][1]))
            if name in lasting:
                found.append(TunedLayer(value=lasting[name]))
            if found:
                yield (*_section_of(scope), name), found


def _section_of(scope: str) -> Key:
    """Returns the section of the file that a scope belongs to: "", "smtp", "smtp:example.org"."""
    transport, colon, destination = scope.partition(":")
    if not scope:
        return ("scheduler",)
    return ("transports", transport, "destinations", destination) if colon else ("transports", transport)


def plain(value: Any) -> Any:
    """Returns the value as MessagePack can carry it."""
    return json.loads(json.dumps(value, default=_object))


def _object(value: Any) -> Any:
    return msgspec.to_builtins(value, str_keys=True) if hasattr(value, "__dataclass_fields__") else str(value)
