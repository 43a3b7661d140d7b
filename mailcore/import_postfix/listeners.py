"""Translates the smtpd and postscreen lines of master.cf to [receiver] listen and [[listener]].

A line with logins, TLS, restrictions or milters of its own becomes a ``[[listener]]``; any other an address of
``[receiver] listen``.
"""

from __future__ import annotations

import ipaddress
from typing import Any

from mailcore.bounds import BadValue
from mailcore.config.milters import macro_value
from mailcore.import_postfix.draft import Draft
from mailcore.import_postfix.filters import milters_of_service
from mailcore.import_postfix.machine import Machine
from mailcore.import_postfix.main_cf import split_list
from mailcore.import_postfix.master_cf import Service
from mailcore.import_postfix.other_services import option_left
from mailcore.import_postfix.values import ValueFault, port, truth

__all__ = ["listeners"]

_LOOPBACK = ("127.0.0.1", "::1")
_USUAL = Service("smtp", "inet", None, "smtpd")
# Restrictions that may close a port to all but our own clients, in the order in which smtpd applies them.
_RESTRICTIONS = ("smtpd_client_restrictions", "smtpd_relay_restrictions", "smtpd_recipient_restrictions")
_PERMITS = {"permit_mynetworks", "permit_sasl_authenticated"}
_HAVE_NO_EFFECT = ("syslog_name", "smtpd_tls_auth_only", "smtpd_delay_reject")  # AUTH is always under TLS only
_SMTPD_NAME = "smtpd_service_name"  # of postscreen: the line that it passes connections to
_DAEMON_NAME = "milter_macro_daemon_name"
_UNDERSTOOD = (
    "smtpd_tls_wrappermode",
    "smtpd_tls_security_level",
    "smtpd_enforce_tls",
    "smtpd_use_tls",
    "smtpd_sasl_auth_enable",
    "smtpd_milters",
    _DAEMON_NAME,
    *_HAVE_NO_EFFECT,
)
_USERS = "add its users with waypost user add"


def listeners(machine: Machine, draft: Draft) -> None:
    """Sets [receiver] listen and the listeners from inet_interfaces and master.cf; the certificate is known already."""
    hosts = _interfaces(machine, draft)
    found: list[str] = []
    for service in machine.services if machine.services is not None else [_USUAL]:
        if service.kind in ("inet", "pass"):
            _listener(machine, service, hosts, found, draft)
    if found:
        draft.put("receiver", "listen", found)
    elif not draft.listeners:
        draft.left(
            "master.cf", "listeners", "none taken over; Waypost would listen on 127.0.0.1:2525. Set [receiver] listen"
        )


def _interfaces(machine: Machine, draft: Draft) -> list[str]:
    name, hosts = "inet_interfaces", []
    machine.seen |= {"inet_protocols", "smtpd_sasl_auth_enable", "smtpd_tls_auth_only"}
    protocols = machine.cf.list("inet_protocols")
    for word in machine.cf.list(name):
        if word == "all":
            hosts += ["0.0.0.0", "::"]  # noqa: S104 - as Postfix did
        elif word in ("loopback-only", "localhost"):
            hosts += _LOOPBACK
        else:
            try:
                hosts.append(ipaddress.ip_address(word.strip("[]")).compressed)
            except ValueError:
                said = f"{word!a} is a name, but Waypost needs addresses; add its address to [receiver] listen"
                draft.left(machine.where(name), machine.what(name), said)
    machine.seen.add(name)
    wanted = {4, 6} if "all" in protocols else {int(each[-1]) for each in protocols if each in ("ipv4", "ipv6")}
    kept = [host for host in hosts if ipaddress.ip_address(host).version in wanted]
    if kept:
        draft.taken(machine.where(name), machine.what(name), f"[receiver] listen on {', '.join(kept)}")
    return kept


def _listener(machine: Machine, service: Service, hosts: list[str], found: list[str], draft: Draft) -> None:
    where, what = f"master.cf:{service.line}", f"{service.name} {service.kind} {service.command}"
    if service is _USUAL:
        where, what = "master.cf", f"{what} (Postfix's default)"
    if (service.kind, service.command) == ("pass", "smtpd"):
        _behind_postscreen(machine, service, draft, where, what)
        return
    if service.kind == "pass":
        return  # a service of postscreen, such as tlsproxy: other_services reports its options
    if service.command not in ("smtpd", "postscreen"):
        draft.left(where, what, "Waypost has no such service")
        return
    host, _, name = service.name.rpartition(":")
    try:
        number = port(name)
        mine = hosts if not host else [ipaddress.ip_address(host.strip("[]")).compressed]
    except (ValueFault, ValueError):
        draft.left(where, what, f"{service.name!a} is not an address with a port; add it to [receiver] listen")
        return
    endpoints = [f"[{each}]:{number}" if ":" in each else f"{each}:{number}" for each in mine]
    smtpd = _smtpd_of(machine, service)
    section, notes = _section(machine, smtpd, draft, where, what)
    if section and not _has_certificate(draft) and (section["tls"] in ("required", "implicit") or _logs_in(section)):
        users = f"; {_USERS}" if _logs_in(section) else ""
        said = "needs a certificate, which was not taken over: set tls_certificate and tls_key in [receiver]"
        draft.left(where, what, f"{said}, and add a [[listener]] with {_shown(section)} (docs/submission.md){users}")
        return
    taken = {*found, *(each["address"] for each in draft.listeners)}
    endpoints = [each for each in endpoints if each not in taken]
    if section:
        draft.listeners += [{"address": each, **section} for each in endpoints]
        said = f"[[listener]] {', '.join(endpoints) or 'nothing'} with {_shown(section)}"
        if _logs_in(section):
            notes.insert(0, _USERS)
    else:
        found += endpoints
        said = f"[receiver] listen has {', '.join(endpoints) or 'nothing'}"
    if service.command == "postscreen":
        notes.append("without postscreen's tests of clients")
    understood = (*_UNDERSTOOD, _SMTPD_NAME) if service.command == "postscreen" else _UNDERSTOOD
    if left := sorted(set(service.overrides) - {*understood, *_closing(machine, service)[1]}):
        notes.append(f"its own settings are not taken over: -o {', -o '.join(left)}")
    if notes:
        draft.changed(where, what, "; ".join([said, *notes]))
    else:
        draft.taken(where, what, said)


def _smtpd_of(machine: Machine, service: Service) -> Service:
    """Returns the smtpd that gets the connections of a line: for postscreen, the one that it passes them to."""
    if service.command != "postscreen":
        return service
    name = machine.cf.value(_SMTPD_NAME, service.overrides) or "smtpd"
    passed = (each for each in machine.services or () if (each.kind, each.command) == ("pass", "smtpd"))
    return next((each for each in passed if each.name == name), service)


def _behind_postscreen(machine: Machine, service: Service, draft: Draft, where: str, what: str) -> None:
    """Reports the options of an smtpd behind postscreen: its listener is that of the postscreen line."""
    lines = [each for each in machine.services or () if each.command == "postscreen"]
    places = [f"master.cf:{each.line}" for each in lines if _smtpd_of(machine, each) is service]
    machine.seen.add(_SMTPD_NAME)
    if not places:
        draft.left(where, what, "no postscreen line passes connections to it, so it has no listener")
        return
    draft.taken(where, what, f"gets its connections from postscreen; see the finding of {', '.join(places)}")
    for name in sorted(set(service.overrides) - {*_UNDERSTOOD, *_closing(machine, service)[1]}):
        option_left(machine, draft, service, name)


def _section(
    machine: Machine, service: Service, draft: Draft, where: str, what: str
) -> tuple[dict[str, Any], list[str]]:
    """Returns the [[listener]] of an smtpd, and the differences; nothing if [receiver] listen does as well."""
    if service.command == "postscreen" or (service.kind == "pass" and not service.overrides):
        return {}, []
    options, notes = service.overrides, []
    permits, closing = _closing(machine, service)
    logs_in = truth(machine.cf.value("smtpd_sasl_auth_enable", options))
    level = _level(machine, service, draft)
    if logs_in and level == "none":
        level = "starttls"
        notes.append("STARTTLS is offered, because Waypost takes no passwords in the clear")
    section: dict[str, Any] = {"tls": level}
    if closing:
        section = {"purpose": "submission", **section}
    if logs_in:
        section["auth"] = "required" if closing and "permit_mynetworks" not in permits else "offered"
    elif closing:
        section["auth"] = "off"
        if "permit_mynetworks" not in permits:
            notes.append("in Postfix it takes no mail at all, because clients cannot log in")
    if "smtpd_milters" in options:
        section["milters"] = milters_of_service(machine, draft, options, where, what)
    if _DAEMON_NAME in options:
        name = machine.cf.value(_DAEMON_NAME, options)
        try:
            section[_DAEMON_NAME] = macro_value(name)
        except BadValue:
            notes.append(f"{_DAEMON_NAME} is not taken over, since {name[:40]!a} is not printable ASCII, or too long")
    return ({} if section == {"tls": "starttls"} else section), notes


def _level(machine: Machine, service: Service, draft: Draft) -> str:
    options = service.overrides
    value = machine.cf.value
    if truth(value("smtpd_tls_wrappermode", options)):
        return "implicit"
    level = value("smtpd_tls_security_level", options)
    if level == "encrypt" or (not level and truth(value("smtpd_enforce_tls", options))):
        return "required"
    if level == "may" or (not level and truth(value("smtpd_use_tls", options))):
        return "starttls"
    return "none" if _has_certificate(draft) else "starttls"  # without a certificate there is nothing to leave out


def _closing(machine: Machine, service: Service) -> tuple[set[str], list[str]]:
    """Returns the clients that restrictions of this line permit, and the options that then refuse all others.

    Only lists that are made of nothing else can be said by the purpose of a listener.
    """
    permits, names = set(_PERMITS), []
    for name in _RESTRICTIONS:
        if name not in service.overrides:
            continue
        words = split_list(machine.cf.value(name, service.overrides))
        if words and words[-1] == "reject" and set(words[:-1]) <= _PERMITS:
            permits &= set(words[:-1])
            names.append(name)
    return permits, names


def _logs_in(section: dict[str, Any]) -> bool:
    return bool(section.get("auth", "off") != "off")


def _has_certificate(draft: Draft) -> bool:
    return "tls_certificate" in draft.sections.get("receiver", {})


def _shown(section: dict[str, Any]) -> str:
    return ", ".join(
        f'{key} = "{value}"' if isinstance(value, str) else f"{key} = {value}" for key, value in section.items()
    )
