"""The difference between two configurations: what changed, which processes have to start again for it, and what cannot change
while Waypost runs.

A process gets its settings when it starts and never reads them again. So a change is in force when the processes that it
concerns have started again, and no others need to.

Pure: no I/O, no clock.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

from mailcore.config.cut_through import cut_through_transports
from mailcore.config.settings import DIRECTORIES, Settings

__all__ = ["OF_THE_PORTAL", "ROLES", "Changed", "changed_keys", "concerned", "not_while_running"]

ROLES = ("receiver", "manager", "control", "deliverer", "exporter")

# The processes that read a section or a table of the file. A test compares this with the source of each process.
_READ_BY: dict[str, tuple[str, ...]] = {
    "alerts": (),  # the portal's processes read the file again when it comes into force
    "arc": ("manager", "control", "deliverer"),
    "auth": ("receiver", "control"),
    "authenticity": ("receiver", "deliverer"),
    "bounce": ("manager",),
    "certificate": ("receiver", "control"),
    "client_auth": ("deliverer",),
    "clients": ("receiver",),
    "control": ("control", "exporter"),
    "core": ("control",),
    "deliverer": ("receiver", "manager", "control", "deliverer"),
    "dkim": ("receiver", "manager", "control", "deliverer"),
    "dnsbl": ("receiver",),
    "esmtp": ("receiver",),
    "export": ("manager", "control", "exporter"),
    "greylist": ("receiver",),
    "lenient": ("receiver", "manager", "control"),
    "listener": ("receiver", "manager", "control", "deliverer"),
    "login_routes": ("receiver", "manager", "control"),
    "maildrop": ("control",),
    "metrics": ("receiver", "manager", "control"),
    "milter": ("receiver", "control"),
    "nodes": ("receiver", "manager", "control", "exporter"),
    "oidc": (),  # the portal
    "portal": (),  # the portal's own processes read the file
    "queue": ("receiver", "manager", "control", "exporter"),
    "receiver": ROLES,
    "recipients": ("receiver", "control"),
    "relay": ("receiver", "manager", "control"),
    "reports": ("exporter",),
    "rewriting": ("receiver", "manager", "control"),
    "route_maps": ("receiver", "manager", "control"),
    "routes": ("receiver", "manager", "control"),
    "scheduler": ("manager", "control"),
    "sender_routes": ("receiver", "manager", "control"),
    "shard": ROLES,
    "smtp_discard_ehlo_keywords": ("deliverer",),
    "source": ("control",),
    "smtpd_discard_ehlo_keywords": ("receiver",),
    "supervisor": (),  # the supervisor itself
    "tls": ("receiver", "control", "deliverer"),
    "tls_policy": ("receiver", "control", "deliverer"),
    "tlsrpt": ("control", "deliverer"),
    "traces": ("control", "exporter"),
    "transports": ("receiver", "manager", "control", "deliverer"),
    "written": ("manager",),
}
# Receivers read these to ask the next hop whether a recipient exists, and little else.
_FOR_RECIPIENT_CHECKS = frozenset(
    {"deliverer", "login_routes", "route_maps", "routes", "sender_routes", "tls", "tls_policy", "transports"}
)
# Of [receiver], which every process reads for our name: these are read as the section [[certificate]] is.
_CERTIFICATE_KEYS = frozenset({"[receiver] tls_certificate", "[receiver] tls_key"})
_PLACES = ("home", *DIRECTORIES)
OF_THE_PORTAL = ("portal", "oidc")  # its processes read these when they start


class Changed(NamedTuple):
    """One key of the file whose value is another now. ``before`` and ``after`` are None where it was not set, or is not."""

    key: str  # as in the file: "[relay] domains", "[routes] example.org", "[[listener]]"
    field: str  # of Settings
    before: Any
    after: Any


def changed_keys(old: Settings, new: Settings) -> list[Changed]:
    """Returns what differs, in the order of the file's sections. A value that is set to its default does not count."""
    return [each for field in dataclasses.fields(Settings) for each in _of_field(field.name, old, new)]


def _of_field(name: str, old: Settings, new: Settings) -> Iterator[Changed]:
    before, after = getattr(old, name), getattr(new, name)
    if before == after:
        return
    if dataclasses.is_dataclass(before):
        yield from _of_section(name, name, before, after)
    elif isinstance(before, dict):
        for key in dict.fromkeys([*before, *after]):
            values = before.get(key), after.get(key)
            if all(map(dataclasses.is_dataclass, values)):
                yield from _of_section(f"{name}.{key}", name, *values)
            elif values[0] != values[1]:
                yield Changed(f"[{name}] {key}", name, *values)
    elif name in _PLACES:
        yield Changed(name, name, before, after)
    elif name not in ("written", "source"):
        yield Changed(f"[[{name}]]", name, before, after)


def _of_section(section: str, field: str, before: Any, after: Any) -> Iterator[Changed]:
    for each in dataclasses.fields(before):
        values = getattr(before, each.name), getattr(after, each.name)
        if values[0] != values[1]:
            yield Changed(f"[{section}] {each.name}", field, *values)


def concerned(old: Settings, new: Settings) -> frozenset[str]:
    """Returns the roles whose processes have to start again for the change."""
    roles: set[str] = set()
    checks_recipients = old.recipients.is_on or new.recipients.is_on
    keys = changed_keys(old, new)
    fields = {"certificate" if each.key in _CERTIFICATE_KEYS else each.field for each in keys}
    if old.written != new.written:
        fields.add("written")
    for field in fields:
        read_by = set(_READ_BY.get(field, ROLES))
        if field in _FOR_RECIPIENT_CHECKS and not checks_recipients and not _is_of_receivers(field, old, new):
            read_by.discard("receiver")
        roles |= read_by
    return frozenset(roles)


def _is_of_receivers(field: str, old: Settings, new: Settings) -> bool:
    """Returns True if receivers read what changed for more than checks of recipients."""
    if field == "transports":  # they offer mail to the manager if a transport has cut-through
        return bool(cut_through_transports(old.transports)) != bool(cut_through_transports(new.transports))
    if field == "deliverer":  # they ask the same name servers
        asks = [each.clients.reverse_names or each.authenticity.evaluate != "off" for each in (old, new)]
        return any(asks)
    return False


def not_while_running(old: Settings, new: Settings, *, sockets_are_given: bool) -> list[str]:
    """Returns a sentence for each change that needs a restart of the service. ``sockets_are_given``: systemd holds them."""
    found = [
        f"{name} can't be changed while Waypost runs: mail is there"
        for name in _PLACES
        if getattr(old, name) != getattr(new, name)
    ]
    if old.export.enabled != new.export.enabled:
        found.append("[export] enabled can't be changed while Waypost runs: it decides which directories are locked")
    if old.nodes != new.nodes:
        found.append("[nodes] can't be changed while Waypost runs: it says which queue this is; restart the service")
    if old.core.shards != new.core.shards:
        found.append("[core] shards can't be changed while Waypost runs: each shard has processes of its own")
    addresses = [each.address for each in new.all_listeners]
    if sockets_are_given and sorted(addresses) != sorted(each.address for each in old.all_listeners):
        found.append(
            "[receiver] listen and [[listener]] address can't be changed while Waypost runs: systemd has the sockets. Change "
            "them in waypost.toml and run waypost setup, or change them in the playbook"
        )
    return found
