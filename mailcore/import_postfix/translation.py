"""From Postfix's configuration directory to a waypost.toml, with a finding for each setting. Nothing is changed there."""

from __future__ import annotations

import re
from pathlib import Path

from mailcore.import_postfix.draft import Draft
from mailcore.import_postfix.machine import Machine, open_machine
from mailcore.import_postfix.meanings import HOUSEKEEPING, meaning
from mailcore.import_postfix.measures import DESTINATION, measures
from mailcore.import_postfix.relaying import (
    listeners,
    local_domains,
    networks,
    relay_domains,
    restrictions,
    server_names,
    tls,
)
from mailcore.import_postfix.routes import routes
from mailcore.import_postfix.transports import transports

__all__ = ["translate"]

_NAMED = re.compile(r"\$[{(]?\s*([A-Za-z0-9_]+)")


def translate(directory: Path, hostname: str) -> tuple[Draft, Machine]:
    """``hostname``: of this host, where main.cf has none. Raises OSError, UnicodeDecodeError: there is no main.cf to read."""
    machine = open_machine(directory, hostname)
    draft = Draft()
    server_names(machine, draft)
    listeners(machine, draft)
    tls(machine, draft)
    networks(machine, draft)
    restrictions(machine, draft)
    domains = relay_domains(machine, draft, local_domains(machine, draft))
    measures(machine, draft)
    names = transports(machine, draft)
    routes(machine, draft, names, domains)
    _instances(machine, draft)
    _rest(machine, draft)
    for fault in [*machine.faults, *(each for each in machine.cf.faults if each not in machine.faults)]:
        where, _, said = fault.partition(": ")
        draft.left(where, "what stands there", said)
    return draft, machine


def _instances(machine: Machine, draft: Draft) -> None:
    name = "multi_instance_directories"
    for directory in machine.other_instances():
        machine.seen.add(name)
        said = (
            "another Postfix of this host, with settings and a queue of its own: neither is in this import. Do one for each: "
            f"waypost import-postfix {directory}"
        )
        draft.left(machine.where(name), f"{name} = {directory}", said)


def _rest(machine: Machine, draft: Draft) -> None:
    """Each setting that nothing looked at."""
    inside = {name for text in machine.cf.given.values() for name in _NAMED.findall(text)}
    house = []
    for name in machine.cf.given:
        if name in machine.seen:
            continue
        if name in HOUSEKEEPING:
            house.append(name)
        elif not machine.cf.value(name) or (name.endswith("_rate_limit") and machine.cf.value(name) == "0"):
            draft.taken(machine.where(name), machine.what(name), "nothing is asked for, and nothing is lost")
        elif name in inside:
            draft.taken(machine.where(name), machine.what(name), "put in where it is named")
        elif own := next((f"{name[: -len(key) - 1]}" for key, _, _ in DESTINATION if name.endswith(f"_{key}")), ""):
            draft.left(machine.where(name), machine.what(name), f"{own} is no transport that delivers over SMTP")
        else:
            draft.left(machine.where(name), machine.what(name), meaning(name))
    if house:
        draft.taken("main.cf", ", ".join(house), "of Postfix's own house: nothing of mail depends on it")
