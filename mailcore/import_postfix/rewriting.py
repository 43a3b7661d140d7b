"""Translates aliases, canonical addresses and copies to [rewriting]. The files are used where they are, if they can be read."""

from __future__ import annotations

from mailcore.bounds import BadValue, bounds_by_name
from mailcore.config.rewriting import MAPS, Rewriting
from mailcore.import_postfix.draft import Draft
from mailcore.import_postfix.machine import Machine
from mailcore.import_postfix.tables import TableFault
from mailcore.rewriting.address_map import MapFault, read_map

__all__ = ["rewriting"]

FAULTS_MAX = 20  # lines of one file that are named; the rest is counted
_RULES = ("regexp", "pcre")
_FILES = ("hash", "btree", "lmdb", "cdb", "dbm", "sdbm", "texthash")


def rewriting(machine: Machine, draft: Draft) -> None:
    """Sets [rewriting]."""
    for name in MAPS:
        if name in machine.cf:
            _files(machine, draft, name)
    for name in ("always_bcc", "recipient_delimiter"):
        if name in machine.cf and machine.look(name):
            _text(machine, draft, name)


def _files(machine: Machine, draft: Draft, name: str) -> None:
    files: list[str] = []
    where = machine.where(name)
    machine.seen.add(name)
    for given in machine.cf.list(name):
        kind, colon, rest = given.removeprefix("proxy:").partition(":")
        if not colon:
            kind, rest = "hash", kind
        try:
            if kind not in (*_RULES, *_FILES):
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
        said = f"[rewriting] {name}, for the envelope of mail over SMTP; header fields are not changed"
        (draft.taken if "bcc" in name or "virtual" in name else draft.changed)(where, machine.what(name), said)


def _text(machine: Machine, draft: Draft, name: str) -> None:
    text = machine.look(name)
    try:
        value = bounds_by_name(Rewriting)[name].read(text)
    except BadValue as error:
        draft.left(machine.where(name), machine.what(name), error.reason)
        return
    draft.put("rewriting", name, value)
    draft.taken(machine.where(name), machine.what(name), f"[rewriting] {name}")
