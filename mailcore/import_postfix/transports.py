"""Transports of master.cf that speak SMTP, with what Postfix's queue manager and client are told about each."""

from __future__ import annotations

import re

from mailcore.config.settings import SHIPPED_TRANSPORTS
from mailcore.import_postfix.draft import Draft, Take
from mailcore.import_postfix.machine import Machine
from mailcore.import_postfix.master_cf import Service
from mailcore.import_postfix.measures import DESTINATION
from mailcore.import_postfix.values import truth
from mailcore.routing.route import TRANSPORT_NAME

__all__ = ["transports"]

TRANSPORTS_MAX = 90  # of the 100 the configuration takes; the shipped ones are among them
_PROCESSES = Take(zero="unlimited")
_SILENT = frozenset({"syslog_name"})  # says nothing about mail
_LEVELS = {"": "none", "none": "none", "may": "may", "encrypt": "encrypt"}
_UNCHECKED = "mail goes out encrypted or not at all, but nobody's certificate is checked"
# Levels that Waypost has not: the nearest it has, by what each means in postconf(5), and what is lost.
_NEAREST = {
    "dane": (
        "may",
        "Waypost asks for no TLSA records. Postfix encrypts where there are some, and checks the certificate by them; Waypost "
        "encrypts where the other side can, and nobody's certificate is checked",
    ),
    "dane-only": ("encrypt", f"{_UNCHECKED}, also to hosts without TLSA records, to which Postfix sends nothing"),
    **dict.fromkeys(("fingerprint", "verify", "secure"), ("encrypt", _UNCHECKED)),
}


def transports(machine: Machine, draft: Draft) -> dict[str, str]:
    """Postfix's names of those that deliver over SMTP -> their names here."""
    names: dict[str, str] = {}
    services = machine.smtp_services()
    if machine.services is None:
        services = [Service(name, "unix", None, "smtp") for name in ("smtp", "relay")]
    for service in services:
        if len(names) >= TRANSPORTS_MAX:
            draft.left(f"master.cf:{service.line}", service.name, f"Waypost takes {TRANSPORTS_MAX} transports")
            continue
        name = _named(service.name, set(names.values()))
        names[service.name] = name
        draft.transports.setdefault(name, {})
        _service(machine, draft, service, name)
    for service in machine.services or ():
        if service.kind == "unix" and service.command in ("pipe", "lmtp"):
            said = f"Waypost delivers over SMTP only, not by {service.command}; see the routes that name it"
            draft.left(f"master.cf:{service.line}", f"{service.name} {service.command}", said)
    return names


def _named(given: str, taken: set[str]) -> str:
    if TRANSPORT_NAME.fullmatch(given):
        return given
    base = "t" + re.sub(r"[^a-z0-9_-]", "-", given.lower())[:24]
    return next(name for number in range(1000) if (name := f"{base}{number or ''}") not in taken)


def _service(machine: Machine, draft: Draft, service: Service, name: str) -> None:
    where = f"master.cf:{service.line}" if service.line else "main.cf"
    what = f"{service.name} unix smtp"
    if name != service.name:
        draft.changed(where, what, f"is called {name} here: names are a letter, then a-z, 0-9, _ and -")
    elif name not in SHIPPED_TRANSPORTS:
        draft.taken(where, what, f"[transports.{name}]")
    if service.limit is not None:
        draft.tune(name, "process_limit", str(service.limit), _PROCESSES, where, f"{what}, maxproc {service.limit}")
    elif "default_process_limit" in machine.cf:
        text = machine.look("default_process_limit")
        place, said = machine.where("default_process_limit"), machine.what("default_process_limit")
        draft.tune(name, "process_limit", text, _PROCESSES, place, said)
    for key, default, take in DESTINATION:
        own = f"{service.name}_{key}"
        for given in (own, default):
            if given in machine.cf:
                draft.tune(name, key, machine.look(given), take, machine.where(given), machine.what(given))
                break
    for own in (f"{service.name}_{key}" for key, _, _ in DESTINATION):
        machine.seen.add(own)
    _tls(machine, draft, service, name)
    for option in sorted(service.overrides):
        if option not in _SILENT and not option.startswith("smtp_tls_"):
            said = f"of one transport this can't be set here; [transports.{name}] goes without"
            draft.left(where, f"{what} -o {option}={service.overrides[option]}", said)


def _tls(machine: Machine, draft: Draft, service: Service, name: str) -> None:
    """Without a word Postfix's client uses no TLS; Waypost's would when it is offered, so it is said either way."""
    names = ("smtp_tls_security_level", "smtp_use_tls", "smtp_enforce_tls")
    level, use, enforce = (machine.cf.value(each, service.overrides) for each in names)
    machine.seen.update(names)
    if not level:
        level = "encrypt" if truth(enforce) else "may" if truth(use) else ""
    first = next((each for each in names if each in machine.cf or each in service.overrides), names[0])
    where = f"master.cf:{service.line}" if first in service.overrides else machine.where(first)
    what = (
        f"{service.name} -o {first}={service.overrides[first]}" if first in service.overrides else machine.what(first)
    )
    table = draft.transports[name]
    if level in _LEVELS:
        table["tls"] = _LEVELS[level]
        advice = '; "may" would encrypt where the other side can' if not level or level == "none" else ""
        draft.taken(where, what, f'[transports.{name}] tls = "{table["tls"]}"{advice}')
    else:
        table["tls"], said = _NEAREST.get(level, ("encrypt", f"{level!a} is no level Waypost knows: {_UNCHECKED}"))
        draft.changed(where, what, f'[transports.{name}] tls = "{table["tls"]}": {said}')
