"""The settings of a section as a form needs them: the bounds of each key that can be managed. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from mailcore.bounds import Bounds, bounds_by_name
from mailcore.config.listeners import Listener
from mailcore.config.managed import not_managed
from mailcore.config.milters import Milter
from mailcore.config.settings import SECTIONS, TlsPolicy, Transport

__all__ = ["ROWS", "bounds_of", "title_of"]

ROWS: Mapping[str, type] = MappingProxyType(  # sections that are repeated, or have a name
    {"listener": Listener, "milter": Milter, "transports": Transport, "tls_policy": TlsPolicy}
)


def bounds_of(section: str) -> Mapping[str, Bounds]:
    """Returns the bounds of the keys of a section, or of a row of one, that can be managed. Raises KeyError."""
    kind = ROWS[section] if section in ROWS else SECTIONS[section]
    return {name: bounds for name, bounds in bounds_by_name(kind).items() if not not_managed((section, name))}


def title_of(section: str) -> str:
    """Returns the meaning of a section, as a sentence without its name. Raises KeyError."""
    text = " ".join((SECTIONS[section].__doc__ or "").split())
    return text.partition(": ")[2]
