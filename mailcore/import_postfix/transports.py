"""Transports of master.cf that deliver over SMTP or LMTP, with the settings of Postfix's queue manager and client for each."""

from __future__ import annotations

import re

from mailcore.bounds import BadValue
from mailcore.config.protocol import (
    LINE_LENGTH_FORM,
    LINE_LENGTH_LEAST,
    LINE_LENGTH_LIMIT,
    LINE_LENGTH_MOST,
    fallback_hop,
)
from mailcore.config.settings import SHIPPED_TRANSPORTS
from mailcore.import_postfix.draft import Draft, Take
from mailcore.import_postfix.ehlo_keywords import keywords_of_transport
from mailcore.import_postfix.encryption import LEVELS
from mailcore.import_postfix.machine import Machine
from mailcore.import_postfix.master_cf import Service
from mailcore.import_postfix.meanings import HOUSEKEEPING, IMPLICIT_TLS
from mailcore.import_postfix.measures import DESTINATION
from mailcore.import_postfix.values import ValueFault, next_hop, number, truth
from mailcore.routing.route import TRANSPORT_NAME

__all__ = ["transports"]

TRANSPORTS_MAX = 90  # of the 100 that a configuration may have, including the built-in ones
_PROCESSES = Take(zero="unlimited")
_SILENT = frozenset({"syslog_name"})  # does not affect mail
_TAKEN_BY_TRANSPORT = frozenset(
    (
        *(f"{each}_{key}" for each in ("smtp", "lmtp") for key in ("tls_security_level", "use_tls", "enforce_tls")),
        *(f"{each}_tls_wrappermode" for each in ("smtp", "lmtp")),
        "smtp_discard_ehlo_keywords",
        "lmtp_discard_lhlo_keywords",
        "smtp_fallback_relay",
        "lmtp_fallback_relay",
        "fallback_relay",
        "disable_mime_output_conversion",
        "smtp_line_length_limit",
        "lmtp_line_length_limit",
    )
)
_SOCKET_FALLBACK = (
    "a fallback cannot be a Unix socket. Let its server listen on TCP, too, and add that address, "
    "such as [127.0.0.1]:24"
)
_UNCHECKED = "mail is sent only encrypted, but certificates are not checked"


def transports(machine: Machine, draft: Draft) -> dict[str, str]:
    """Translates the transports that deliver over SMTP or LMTP; returns their new names by Postfix's names."""
    names: dict[str, str] = {}
    services = machine.delivering_services()
    if machine.services is None:
        services = [Service(name, "unix", None, "smtp") for name in ("smtp", "relay")]
    for service in services:
        if len(names) >= TRANSPORTS_MAX:
            draft.left(
                f"master.cf:{service.line}",
                service.name,
                f"Waypost supports at most {TRANSPORTS_MAX} imported transports",
            )
            continue
        name = _named(service.name, set(names.values()))
        names[service.name] = name
        draft.transports.setdefault(name, {})
        _service(machine, draft, service, name)
    for service in machine.services or ():
        if service.kind == "unix" and service.command in ("pipe",):
            said = f"Waypost delivers over SMTP and LMTP only, not by {service.command}; check the routes that use it"
            draft.left(f"master.cf:{service.line}", f"{service.name} {service.command}", said)
    return names


def _named(given: str, taken: set[str]) -> str:
    if TRANSPORT_NAME.fullmatch(given):
        return given
    base = "t" + re.sub(r"[^a-z0-9_-]", "-", given.lower())[:24]
    return next(name for number in range(1000) if (name := f"{base}{number or ''}") not in taken)


def _service(machine: Machine, draft: Draft, service: Service, name: str) -> None:
    where = f"master.cf:{service.line}" if service.line else "main.cf"
    what = f"{service.name} unix {service.command}"
    if service.command == "lmtp":
        draft.transports[name]["protocol"] = "lmtp"
    if name != service.name:
        draft.changed(where, what, f"renamed to {name}: a name is a letter, then a-z, 0-9, _ and -")
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
    _implicit_tls(machine, draft, service, name)
    _conversion(machine, draft, service, name)
    _line_length(machine, draft, service, name)
    keywords_of_transport(machine, draft, service.command, service.overrides, name)
    _fallback(machine, draft, service, name)
    for option in sorted(service.overrides):
        if option not in _SILENT | _TAKEN_BY_TRANSPORT | HOUSEKEEPING:
            said = f"cannot be set for a single transport; not set in [transports.{name}]"
            draft.left(where, f"{what} -o {option}={service.overrides[option]}", said)


def _implicit_tls(machine: Machine, draft: Draft, service: Service, name: str) -> None:
    key = f"{service.command}_tls_wrappermode"
    machine.seen.add(key)
    if truth(machine.cf.value(key, service.overrides)):
        own = key in service.overrides
        where = f"master.cf:{service.line}" if own else machine.where(key)
        what = f"{service.name} unix {service.command} -o {key}=yes" if own else machine.what(key)
        draft.left(where, what, f"[transports.{name}]: {IMPLICIT_TLS}")


def _conversion(machine: Machine, draft: Draft, service: Service, name: str) -> None:
    key = "disable_mime_output_conversion"
    machine.seen.add(key)
    if truth(machine.cf.value(key, service.overrides) or "no"):
        draft.transports[name]["mime_output_conversion"] = "off"
        where = f"master.cf:{service.line}" if key in service.overrides else machine.where(key)
        draft.taken(where, f"{key} = yes", f'[transports.{name}] mime_output_conversion = "off"')


def _line_length(machine: Machine, draft: Draft, service: Service, name: str) -> None:
    """Takes over the longest line that a transport sends, within our bounds."""
    key = f"{service.command}_line_length_limit"
    text = machine.cf.value(key, service.overrides)
    machine.seen.add(key)
    if not text:
        return
    where, what = machine.where(key), machine.what(key)
    if key in service.overrides:
        where, what = f"master.cf:{service.line}", f"{service.name} unix {service.command} -o {key}={text}"
    ours = f"[transports.{name}] line_length_limit"
    try:
        given = number(text)
    except ValueFault as fault:
        draft.left(where, what, f"{fault}; {ours} is {LINE_LENGTH_LIMIT}")
        return
    limit = given
    if given > LINE_LENGTH_MOST:
        limit = 0
    elif given:
        limit = max(given, LINE_LENGTH_LEAST)
    if limit != LINE_LENGTH_LIMIT:
        draft.transports[name]["line_length_limit"] = limit
    if limit == given:
        draft.taken(where, what, f"{ours} = {limit}")
    else:
        draft.changed(where, what, f"{ours} = {limit}; allowed: {LINE_LENGTH_FORM}, and 0 means no limit")


def _fallback(machine: Machine, draft: Draft, service: Service, name: str) -> None:
    """Takes over the fallback next hops of a transport."""
    key = f"{service.command}_fallback_relay"
    if service.command == "smtp" and key not in machine.cf and key not in service.overrides:
        key = "fallback_relay"  # its name before Postfix 2.3
    text = machine.cf.value(key, service.overrides)
    machine.seen.add(key)
    if not text:
        return
    where = f"master.cf:{service.line}" if key in service.overrides else machine.where(key)
    hops, faults = list[str](), list[str]()
    for each in re.split(r"[,\s]+", text.strip()):
        if each.startswith("unix:"):
            faults.append(f"'{each}': {_SOCKET_FALLBACK}")
            continue
        try:
            hops.append(fallback_hop(str(next_hop(each.removeprefix("inet:"))[0]).partition(":")[2]))
        except (ValueFault, BadValue) as fault:
            faults.append(str(fault))
    hops = list(dict.fromkeys(hops))
    if hops:
        draft.transports[name]["fallback_relay"] = hops
        draft.taken(where, f"{key} = {text}", f"[transports.{name}] fallback_relay = {', '.join(hops)}")
    for each in faults:
        draft.left(where, f"{key} = {text}", f"{each}; left out of fallback_relay of [transports.{name}]")


def _tls(machine: Machine, draft: Draft, service: Service, name: str) -> None:
    """Sets the TLS level of a transport. It is always written: by default Postfix uses no TLS, but Waypost does if offered."""
    names = tuple(f"{service.command}_{each}" for each in ("tls_security_level", "use_tls", "enforce_tls"))
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
    ours, difference = LEVELS.get(level or "none", ("encrypt", f"{level!a} is not a known level: {_UNCHECKED}"))
    table["tls"] = ours
    if level == "secure" and "smtp_tls_secure_cert_match" in machine.cf:
        machine.seen.add("smtp_tls_secure_cert_match")
        difference = "the names of smtp_tls_secure_cert_match are not taken over; set match in [tls_policy]"
    if not difference:
        advice = '; "may" would encrypt if the server supports it' if not level or level == "none" else ""
        draft.taken(where, what, f'[transports.{name}] tls = "{table["tls"]}"{advice}')
    else:
        draft.changed(where, what, f'[transports.{name}] tls = "{ours}": {difference}')
