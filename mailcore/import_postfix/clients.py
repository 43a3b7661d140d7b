"""Translates the hosts that may speak for a client, and who is not counted, to [clients]."""

from __future__ import annotations

from mailcore.config import values
from mailcore.import_postfix.draft import Draft
from mailcore.import_postfix.machine import Machine
from mailcore.import_postfix.tables import TableFault, networks_without
from mailcore.import_postfix.values import truth

__all__ = ["clients"]

_HOSTS = (
    ("smtpd_authorized_xclient_hosts", "xclient_networks", "XCLIENT"),
    ("smtpd_authorized_xforward_hosts", "xforward_networks", "XFORWARD"),
)
_EXCEPTIONS = "smtpd_client_event_limit_exceptions"


def clients(machine: Machine, draft: Draft) -> None:
    """Sets the networks of [clients], and whether names of clients are looked up."""
    _reverse_names(machine, draft)
    for name, key, verb in _HOSTS:
        if name in machine.cf and machine.cf.value(name):
            _networks(machine, draft, name, key, verb)
    if _EXCEPTIONS not in machine.cf:
        return
    given, own = machine.cf.list(_EXCEPTIONS), machine.cf.list("mynetworks")
    machine.seen.add(_EXCEPTIONS)
    where, what = machine.where(_EXCEPTIONS), machine.what(_EXCEPTIONS)
    said = "the clients that Waypost does not count are those of [relay] networks, as by Postfix's default"
    if not draft.sections.get("relay", {}).get("networks", True):
        draft.left(where, what, "[relay] networks is empty, so Waypost counts all clients")
    elif given == own:
        draft.taken(where, what, said)
    else:
        draft.left(where, what, said)


def _reverse_names(machine: Machine, draft: Draft) -> None:
    """Keeps Postfix's default, which is not ours (decision 0068)."""
    name = "smtpd_peername_lookup"
    is_on = truth(machine.look(name))
    if is_on:
        draft.put("clients", "reverse_names", True)
    if name in machine.cf:
        draft.taken(machine.where(name), machine.what(name), f"[clients] reverse_names = {str(is_on).lower()}")


def _networks(machine: Machine, draft: Draft, name: str, key: str, verb: str) -> None:
    machine.seen.add(name)
    where, what = machine.where(name), machine.what(name)
    try:
        words = list(machine.tables.elements(machine.cf.list(name)))
        found, faults = networks_without(iter(words))
        texts = [str(each) for each in found]
        values.refuse_open_relay(texts)
    except (TableFault, ValueError) as fault:
        draft.left(where, what, f"{fault}; no host may use {verb}")
        return
    for unread in faults:
        draft.left(where, what, f"{unread}: it may not use {verb}; write its network into [clients] {key}")
    if texts:
        draft.put("clients", key, texts)
        draft.taken(where, what, f"[clients] {key}: {', '.join(texts)}")
