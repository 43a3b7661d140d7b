"""Decides whether clients in mynetworks may send anywhere without a login, and compares restrictions with Waypost's rule.

Law: the import never permits more relaying than Postfix did. In Postfix, mynetworks alone permits nothing: a list of
restrictions must have permit_mynetworks before it refuses (SMTPD_ACCESS_README). [relay] networks does permit.

Keeps law: no-relaying-is-added (docs/laws.md).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping

from mailcore.import_postfix.draft import Draft
from mailcore.import_postfix.machine import Machine
from mailcore.import_postfix.main_cf import split_list
from mailcore.import_postfix.master_cf import Service

__all__ = ["refusing_list", "restrictions", "say_refused"]

_RELAY = "smtpd_relay_restrictions"
_CLASSES = "smtpd_restriction_classes"
# All must let the recipient pass, in this order. Most are about mail for our own domains, but each can refuse.
_LISTS = (
    "smtpd_client_restrictions",
    "smtpd_helo_restrictions",
    "smtpd_sender_restrictions",
    _RELAY,
    "smtpd_recipient_restrictions",
)
_PERMITS = {"permit", "permit_mynetworks"}
_REFUSES = {"reject", "defer", "defer_if_permit", "reject_unauth_destination", "defer_unauth_destination"}
_KNOWN = {"permit_mynetworks", "permit_sasl_authenticated", "defer_unauth_destination", "reject_unauth_destination"}
_MAIN = Service("", "inet", None, "smtpd")  # a line without settings of its own
_CLASS_DEPTH_MAX = 10


def refusing_list(machine: Machine) -> str:
    """Returns the list that refuses to relay for clients in mynetworks without a login; "" if one port relays for them.

    Ports of the loopback address alone do not count: other clients cannot reach them.
    """
    behind = {
        machine.cf.value("smtpd_service_name", each.overrides) or "smtpd"
        for each in machine.services or ()
        if each.command == "postscreen"
    }
    services = [
        each
        for each in machine.services or ()
        if each.command == "smtpd" and (each.kind == "inet" or (each.kind == "pass" and each.name in behind))
    ]
    services = [each for each in services if not _is_local(each)] or services or [_MAIN]
    lists = [_refuses(machine, each) for each in services]
    return "" if "" in lists else (_refuses(machine, _MAIN) or lists[0])


def _refuses(machine: Machine, service: Service) -> str:
    """Returns the list of a service that refuses to relay for clients in the mynetworks of main.cf; "" if none does."""
    if "mynetworks" in service.overrides:
        return "mynetworks"  # its other networks are not those that would be taken over
    return next((name for name in _LISTS if _ends_in_refusal(machine, name, service.overrides)), "")


def _ends_in_refusal(machine: Machine, name: str, overrides: Mapping[str, str]) -> bool:
    """Tells whether a list refuses a client in mynetworks without a login and a recipient that is not ours."""
    conditional = False
    for word in _words(machine, machine.cf.value(name, overrides), overrides, 0):
        if conditional or word == "warn_if_reject":
            conditional = not conditional  # the word after it refuses nothing
        elif word in _PERMITS:
            return False
        elif word in _REFUSES:
            return True
    return False


def _words(machine: Machine, text: str, overrides: Mapping[str, str], depth: int) -> Iterator[str]:
    """Yields the restrictions of a list, with those of its classes in their place."""
    classes = machine.cf.list(_CLASSES) if depth < _CLASS_DEPTH_MAX else []
    for word in split_list(text):
        if word in classes:
            yield from _words(machine, machine.cf.value(word, overrides), overrides, depth + 1)
        else:
            yield word.lower()


def _is_local(service: Service) -> bool:
    host = service.name.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def say_refused(machine: Machine, draft: Draft, name: str) -> None:
    """Sets [relay] networks to none, because a list of Postfix refuses clients in mynetworks; adds the finding."""
    draft.put("relay", "networks", [])
    machine.seen.add("mynetworks")
    if name == "mynetworks":
        why = "each smtpd line of master.cf has mynetworks of its own"
    else:
        why = f"{name} does not permit them (permit_mynetworks)"
    said = (
        f"[relay] networks is empty: in Postfix these clients cannot send to other domains without a login, because {why}. "
        "Waypost limits and counts them like all other clients"
    )
    own = [each for each in machine.services or () if _permits_itself(machine, each)]
    if own:
        lines = ", ".join(f"{each.name} (master.cf:{each.line})" for each in own)
        said += f". Only {lines} permits some clients: add those that send there without a login to [relay] networks"
    draft.changed(machine.where("mynetworks"), machine.what("mynetworks"), said)


def _permits_itself(machine: Machine, service: Service) -> bool:
    """Tells whether a line of master.cf permits clients that main.cf does not."""
    if service.command != "smtpd" or not {"mynetworks", *_LISTS} & service.overrides.keys():
        return False
    return not any(_ends_in_refusal(machine, name, service.overrides) for name in _LISTS)


def restrictions(machine: Machine, draft: Draft) -> None:
    """Compares smtpd_relay_restrictions with Waypost's fixed rule, which is Postfix's default."""
    if _RELAY not in machine.cf:
        return
    machine.seen.add(_RELAY)
    where, what = machine.where(_RELAY), machine.what(_RELAY)
    others = [word for word in machine.cf.list(_RELAY) if word.lower() not in _KNOWN]
    rule = "[relay] networks and users who have logged in may send anywhere, all others only to [relay] domains"
    has_networks = bool(draft.sections.get("relay", {}).get("networks", True))
    if others:
        draft.left(where, what, f"Waypost has one fixed rule ({rule}); not part of it: {', '.join(others)}")
    elif _ends_in_refusal(machine, _RELAY, {}) and has_networks:
        said = (
            "other lines of master.cf permit clients in mynetworks, so in Waypost they may send anywhere at each port"
        )
        draft.changed(where, what, f"{rule}; {said}")
    else:
        draft.taken(where, what, rule if has_networks else f"{rule}; [relay] networks is empty")
