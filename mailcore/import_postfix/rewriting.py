"""Translates aliases, canonical addresses, copies and header checks to [rewriting], and dropped header fields to [receiver].

The files are used where they are, if they can be read.
"""

from __future__ import annotations

from mailcore.bounds import BadValue, bounds_by_name
from mailcore.config import values
from mailcore.config.map_file import INDEXED
from mailcore.config.rewriting import CLASSES, LOGINS, MAPS, NETWORKS, Rewriting
from mailcore.import_postfix.draft import Draft, Take
from mailcore.import_postfix.machine import Machine
from mailcore.import_postfix.tables import TableFault
from mailcore.rewriting.address_map import read_map
from mailcore.rewriting.header_checks import read_checks
from mailcore.rewriting.map_text import MapFault

__all__ = ["rewriting"]

FAULTS_MAX = 20  # lines of one file that are named; the rest is counted
_CLIENTS = {
    "permit_inet_interfaces": ["127.0.0.0/8", "::1/128"],
    "permit_mynetworks": [NETWORKS],
    "permit_sasl_authenticated": [LOGINS],
}
_RULES = ("regexp", "pcre")


def rewriting(machine: Machine, draft: Draft) -> None:
    """Sets [rewriting]."""
    for name in MAPS:
        if name in machine.cf:
            _files(machine, draft, name)
    for name in ("always_bcc", "recipient_delimiter"):
        if name in machine.cf and machine.look(name):
            _text(machine, draft, name)
    if "header_checks" in machine.cf and machine.look("header_checks"):
        _checks(machine, draft)
    if "canonical_classes" in machine.cf:
        _classes(machine, draft)
    if "message_drop_headers" in machine.cf:
        _dropped(machine, draft)
    if "local_header_rewrite_clients" in machine.cf:
        _clients(machine, draft)
    name = "always_add_missing_headers"
    if name in machine.cf:
        draft.measure("rewriting", name, machine.look(name), Take("flag"), machine.where(name), machine.what(name))


def _files(machine: Machine, draft: Draft, name: str) -> None:
    files: list[str] = []
    where = machine.where(name)
    machine.seen.add(name)
    for given in machine.cf.list(name):
        kind, colon, rest = given.removeprefix("proxy:").partition(":")
        if not colon:
            kind, rest = "hash", kind
        try:
            if kind not in (*_RULES, *INDEXED):
                raise TableFault(f"tables of type {kind} are not read here")
            file = ("regexp:" if kind in _RULES else "") + str(machine.tables.path(rest))
            read_map(file)
        except TableFault as fault:
            draft.left(where, f"{name} = {given}", str(fault))
            continue
        except MapFault as fault:
            lines = str(fault).splitlines()
            more = f"; and {len(lines) - FAULTS_MAX} more" if len(lines) > FAULTS_MAX else ""
            reason = "; ".join(lines[:FAULTS_MAX])
            draft.left(
                where, f"{name} = {given}", f"correct these lines and add the file to [rewriting]: {reason}{more}"
            )
            continue
        files.append(file)
    if files:
        draft.put("rewriting", name, files)
        draft.taken(where, machine.what(name), f"[rewriting] {name}")


def _checks(machine: Machine, draft: Draft) -> None:
    name = "header_checks"
    where, files = machine.where(name), list[str]()
    for given in machine.cf.list(name):
        kind, _, rest = given.removeprefix("proxy:").partition(":")
        try:
            if kind not in _RULES:
                raise TableFault(f"tables of type {kind} are not read here")
            file = str(machine.tables.path(rest))
            read_checks(file)
        except TableFault as fault:
            draft.left(where, f"{name} = {given}", str(fault))
        except MapFault as fault:
            lines = str(fault).splitlines()
            more = f"; and {len(lines) - FAULTS_MAX} more" if len(lines) > FAULTS_MAX else ""
            reason = "; ".join(lines[:FAULTS_MAX])
            draft.left(
                where, f"{name} = {given}", f"correct these lines and add the file to [rewriting]: {reason}{more}"
            )
        else:
            files.append(file)
    if files:
        draft.put("rewriting", name, files)
        draft.changed(where, machine.what(name), f"[rewriting] {name}; fields of MIME parts are not compared")


def _classes(machine: Machine, draft: Draft) -> None:
    name = "canonical_classes"
    machine.seen.add(name)
    given = machine.cf.list(name)
    known = [each for each in CLASSES if each in given]
    draft.put("rewriting", name, known)
    draft.taken(machine.where(name), machine.what(name), f"[rewriting] {name} = {', '.join(known)}")


def _clients(machine: Machine, draft: Draft) -> None:
    name = "local_header_rewrite_clients"
    machine.seen.add(name)
    where, networks = machine.where(name), list[str]()
    for given in machine.cf.list(name):
        if given in _CLIENTS:
            networks += _CLIENTS[given]
        else:
            draft.left(where, f"{name} = {given}", "header fields of mail of these clients are not changed")
    draft.put("rewriting", name, networks)
    if networks:
        draft.taken(where, machine.what(name), f"[rewriting] {name}: {', '.join(networks)}")


def _dropped(machine: Machine, draft: Draft) -> None:
    name = "message_drop_headers"
    machine.seen.add(name)
    where, known = machine.where(name), list[str]()
    for given in dict.fromkeys(each.lower() for each in machine.cf.list(name)):
        try:
            known.append(values.dropped_field(given))
        except BadValue as error:
            draft.left(where, f"{name} = {given}", error.reason)
    draft.put("receiver", name, known)
    draft.taken(where, machine.what(name), f"[receiver] {name} = {', '.join(known) or 'none'}")


def _text(machine: Machine, draft: Draft, name: str) -> None:
    text = machine.look(name)
    try:
        value = bounds_by_name(Rewriting)[name].read(text)
    except BadValue as error:
        draft.left(machine.where(name), machine.what(name), error.reason)
        return
    draft.put("rewriting", name, value)
    draft.taken(machine.where(name), machine.what(name), f"[rewriting] {name}")
