"""Translates Postfix's configuration to a waypost.toml, with a finding for each setting; changes nothing in Postfix."""

from __future__ import annotations

import re
from pathlib import Path

from mailcore.import_postfix.alias_domains import alias_domains, refuse_others
from mailcore.import_postfix.clients import clients
from mailcore.import_postfix.dns_lists import dns_lists
from mailcore.import_postfix.draft import Draft
from mailcore.import_postfix.ehlo_keywords import ehlo_keywords
from mailcore.import_postfix.encryption import encryption
from mailcore.import_postfix.filters import filters
from mailcore.import_postfix.listeners import listeners
from mailcore.import_postfix.machine import Machine, open_machine
from mailcore.import_postfix.meanings import HOUSEKEEPING, RESTRICTION_CLASS, meaning, read_with
from mailcore.import_postfix.measures import DESTINATION, measures
from mailcore.import_postfix.other_services import other_services
from mailcore.import_postfix.recipients import recipients
from mailcore.import_postfix.relay_restrictions import restrictions
from mailcore.import_postfix.relaying import (
    local_domains,
    networks,
    origin_domain,
    relay_domains,
    server_names,
    tls,
)
from mailcore.import_postfix.rewriting import rewriting
from mailcore.import_postfix.routes import routes
from mailcore.import_postfix.tables import is_of_this_host
from mailcore.import_postfix.transports import transports

__all__ = ["translate"]

_NAMED = re.compile(r"\$[{(]?\s*([A-Za-z0-9_]+)")


def translate(directory: Path, hostname: str) -> tuple[Draft, Machine]:
    """Translates a configuration. ``hostname``: used if main.cf sets no name; "" if it is not known.

    Raises OSError, UnicodeDecodeError.
    """
    machine = open_machine(directory, hostname)
    draft = Draft()
    server_names(machine, draft)
    origin_domain(machine, draft)
    tls(machine, draft)
    listeners(machine, draft)
    networks(machine, draft)
    restrictions(machine, draft)
    rewriting(machine, draft)
    aliased = alias_domains(machine, draft)
    domains = relay_domains(machine, draft, {*local_domains(machine, draft), *aliased}, aliased)
    measures(machine, draft)
    names = transports(machine, draft)
    encryption(machine, draft)
    filters(machine, draft)
    clients(machine, draft)
    ehlo_keywords(machine, draft)
    routes(machine, draft, names, domains)
    recipients(machine, draft, domains)
    refuse_others(machine, draft, aliased)
    dns_lists(machine, draft)
    other_services(machine, draft)
    _instances(machine, draft)
    _rest(machine, draft)
    for fault in [*machine.faults, *(each for each in machine.cf.faults if each not in machine.faults)]:
        where, _, said = fault.partition(": ")
        draft.left(where, "unreadable", said)
    return draft, machine


def _instances(machine: Machine, draft: Draft) -> None:
    name = "multi_instance_directories"
    for directory in machine.other_instances():
        machine.seen.add(name)
        said = "another Postfix instance on its host; its settings and its queue are not part of this import. "
        if is_of_this_host(machine.directory):
            said += f"Run: waypost import-postfix {directory}"
        else:
            said += "Copy its directory, too, and run waypost import-postfix on the copy"
        draft.left(machine.where(name), f"{name} = {directory}", said)


def _rest(machine: Machine, draft: Draft) -> None:
    """Adds a finding for each setting without one."""
    options = [text for service in machine.services or () for text in service.overrides.values()]
    inside = {name for text in (*machine.cf.given.values(), *options) for name in _NAMED.findall(text)}
    classes = machine.cf.list("smtpd_restriction_classes")
    house = []
    places = {each.where for each in draft.findings}
    for name in machine.cf.given:
        if name in machine.seen:
            if machine.where(name) not in places:
                draft.taken(machine.where(name), machine.what(name), read_with(name, machine.cf.value(name)))
        elif name in HOUSEKEEPING:
            house.append(name)
        elif not machine.cf.value(name) and machine.cf.fault_of(name):
            continue  # reported with the other faults
        elif not machine.cf.value(name) or (name.endswith("_rate_limit") and machine.cf.value(name) == "0"):
            draft.taken(machine.where(name), machine.what(name), "empty or 0; nothing to take over")
        elif name in inside:
            draft.taken(machine.where(name), machine.what(name), "expanded in the settings that use it")
        elif own := next((f"{name[: -len(key) - 1]}" for key, _, _ in DESTINATION if name.endswith(f"_{key}")), ""):
            draft.left(machine.where(name), machine.what(name), f"{own} is not a transport that delivers over SMTP")
        elif name in classes:
            draft.left(machine.where(name), machine.what(name), RESTRICTION_CLASS)
        else:
            draft.left(machine.where(name), machine.what(name), meaning(name))
    if house:
        draft.taken("main.cf", ", ".join(house), "internal to Postfix; mail does not depend on it")
