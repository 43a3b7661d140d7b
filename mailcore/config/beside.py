"""The part of the managed settings that programs beside the core use: the portal, and commands of users without access to keys.

On a server their configuration file is another one, without certificates, keys and listeners, whose files they may not read.
A managed setting that needs those, such as a listener with TLS, is right for the core and a fault here. Pure.
"""

from __future__ import annotations

from mailcore.config.managed import REMOVED, Managed, changed, dotted, is_below, values_of

__all__ = ["of_programs_beside"]

_USED = (
    ("alerts",), ("deliverer", "nameservers"), ("queue",), ("receiver", "hostname"), ("receiver", "listen"),
    ("relay", "domains"), ("reports",),
)  # fmt: skip


def of_programs_beside(managed: Managed) -> Managed:
    """Returns the managed file with only what these programs use; of listeners their addresses."""
    kept = [
        (key, value) for key, value in values_of(managed.values).items() if any(is_below(key, each) for each in _USED)
    ]
    document = changed({}, kept)
    removed = [dotted(key) for key in managed.removed if any(is_below(key, each) for each in _USED)]
    listeners = managed.values.get("listener", [])
    addresses = [each["address"] for each in listeners if isinstance(each, dict) and "address" in each]
    if addresses:
        document["listener"] = [{"address": each} for each in addresses]
    return Managed(managed.path, managed.text, {REMOVED: removed, **document} if removed else document)
