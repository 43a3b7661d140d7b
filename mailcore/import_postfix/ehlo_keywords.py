"""Translates the masks of ESMTP keywords: smtp(d)_discard_ehlo_keywords and their maps by address."""

from __future__ import annotations

from collections.abc import Callable

from mailcore.bounds import BadValue
from mailcore.config.ehlo_keywords import TABLES, inward_keyword, outward_keyword
from mailcore.import_postfix.draft import Draft
from mailcore.import_postfix.machine import Machine
from mailcore.import_postfix.main_cf import split_list
from mailcore.import_postfix.tables import TableFault, networks_without

__all__ = ["ehlo_keywords", "keywords_of_transport"]

_SILENT = "silent-discard"  # keeps Postfix's log short
_NEVER = frozenset(("ETRN", "VERP", "VRFY", "EXPN", "LHLO", "EHLO"))  # neither offered nor used by Waypost
_SIDES = (
    ("smtpd_discard_ehlo_keyword_address_maps", TABLES[1], inward_keyword),
    ("smtp_discard_ehlo_keyword_address_maps", TABLES[0], outward_keyword),
)


def ehlo_keywords(machine: Machine, draft: Draft) -> None:
    """Sets what receivers do not offer, and the tables by address of both sides."""
    name = "smtpd_discard_ehlo_keywords"
    if text := machine.look(name):
        kept, left = _read(text, inward_keyword)
        if kept:
            draft.put("receiver", "discard_ehlo_keywords", kept)
        _tell(draft, machine.where(name), machine.what(name), f"[receiver] discard_ehlo_keywords = {kept}", left)
    for setting, section, reader in _SIDES:
        machine.seen.add(setting)
        for given in machine.cf.list(setting):
            _table(machine, draft, setting, given, section, reader)


def keywords_of_transport(machine: Machine, draft: Draft, command: str, overrides: dict[str, str], name: str) -> None:
    """Sets what a transport does not use. ``command`` is smtp or lmtp."""
    setting = f"{command}_discard_{'lhlo' if command == 'lmtp' else 'ehlo'}_keywords"
    text = machine.cf.value(setting, overrides)
    machine.seen.add(setting)
    if not text:
        return
    kept, left = _read(text, outward_keyword)
    if kept:
        draft.transports[name]["discard_ehlo_keywords"] = kept
    what = f"{setting} = {text}"
    where = "master.cf" if setting in overrides else machine.where(setting)
    _tell(draft, where, what, f"[transports.{name}] discard_ehlo_keywords = {kept}", left)


def _table(
    machine: Machine, draft: Draft, setting: str, given: str, section: str, reader: Callable[[str], str]
) -> None:
    try:
        table = machine.tables.table(given)
    except TableFault as fault:
        said = f"{fault}; add these addresses to [{section}] manually"
        draft.left(machine.where(setting), f"{setting} = {given}", said)
        return
    for line in table.faults:
        draft.left(line.partition(": ")[0], "a line", line.partition(": ")[2])
    for key, value, where in table.entries:
        networks, faults = networks_without(iter([(True, key)]))
        if faults:
            draft.left(where, f"{key} {value}", f"{faults[0]}; left out of [{section}]")
            continue
        kept, left = _read(value, reader)
        draft.keywords.setdefault(section, {}).setdefault(str(networks[0]), kept)
        _tell(draft, where, f"{key} {value}", f'[{section}] "{networks[0]}" = {kept}', left)


def _read(text: str, reader: Callable[[str], str]) -> tuple[list[str], list[str]]:
    """Returns the keywords of a list that Waypost knows, and the others."""
    kept, left = list[str](), list[str]()
    for word in split_list(text):
        try:
            keyword = reader(word)
        except BadValue:
            if word.lower() != _SILENT and word.upper() not in _NEVER:
                left.append(word)
        else:
            kept += [keyword] if keyword not in kept else []
    return kept, left


def _tell(draft: Draft, where: str, what: str, said: str, left: list[str]) -> None:
    if left:
        draft.changed(where, what, f"{said}: without {', '.join(left)}, which Waypost does not know")
    else:
        draft.taken(where, what, said)
