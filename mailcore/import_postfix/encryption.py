"""Translates the TLS of Postfix's client: the CA file, and smtp_tls_policy_maps to [tls_policy]."""

from __future__ import annotations

import re
from typing import Any

from mailcore.bounds import BadValue
from mailcore.config.tls import check_ca_file, contradiction, match_name, policy_pattern
from mailcore.import_postfix.draft import Draft
from mailcore.import_postfix.machine import Machine
from mailcore.import_postfix.tables import Table, TableFault
from mailcore.import_postfix.values import ValueFault, next_hop

__all__ = ["LEVELS", "NAMES_DIFFER", "encryption"]

NAMES_DIFFER = (
    "Postfix takes the name of the MX host from DNS, which proves nothing without DNSSEC; Waypost asks for the name of the "
    "next hop, so mail to domains whose hosts have other names waits: name these in match"
)
_UNCHECKED = "mail is sent only encrypted, but certificates are not checked"
# Postfix's level -> ours, and the difference; "" without one.
LEVELS = {
    "none": ("none", ""),
    "may": ("may", ""),
    "encrypt": ("encrypt", ""),
    "dane": ("dane", ""),
    "dane-only": ("dane-only", ""),
    "secure": ("verify", ""),
    "verify": ("verify", NAMES_DIFFER),
    "fingerprint": ("encrypt", f"Waypost knows no fingerprints; {_UNCHECKED}"),
}
_PORT = 25


def encryption(machine: Machine, draft: Draft) -> None:
    """Sets [tls] ca_file and the policies by next hop."""
    _ca_file(machine, draft)
    name = "smtp_tls_policy_maps"
    machine.seen.add(name)
    for given in machine.cf.list(name):
        try:
            table = machine.tables.table(given)
        except TableFault as fault:
            said = f"{fault}; these next hops have the level of their transport; add them to [tls_policy] manually"
            draft.left(machine.where(name), f"{name} = {given}", said)
            continue
        for line in table.faults:
            draft.left(line.partition(": ")[0], "a line", line.partition(": ")[2])
        _entries(table, draft)


def _ca_file(machine: Machine, draft: Draft) -> None:
    name = "smtp_tls_CAfile"
    if not (given := machine.look(name)):
        return
    try:
        file = str(machine.tables.path(given))
        check_ca_file(file)
    except (TableFault, BadValue) as error:
        reason = error.reason if isinstance(error, BadValue) else str(error)
        draft.left(machine.where(name), machine.what(name), f"{reason}; the CAs of the system are used")
        return
    draft.put("tls", "ca_file", file)
    draft.taken(
        machine.where(name), machine.what(name), "[tls] ca_file; the user of the deliverers must be able to read it"
    )


def _entries(table: Table, draft: Draft) -> None:
    for key, value, where in table.entries:
        what = f"{key} {' '.join(value.split())}"
        try:
            pattern, policy, notes = _entry(key, value)
        except ValueError as error:
            draft.left(where, what, f"{error}; this next hop has the level of its transport")
            continue
        if pattern in draft.tls_policies:
            draft.left(where, what, f"an earlier line has {pattern}")
            continue
        draft.tls_policies[pattern] = policy
        said = f'[tls_policy."{pattern}"] level = "{policy["level"]}"'
        if notes:
            draft.changed(where, what, f"{said}: {'; '.join(notes)}")
        else:
            draft.taken(where, what, said)


def _entry(key: str, value: str) -> tuple[str, dict[str, Any], list[str]]:
    """Returns the pattern, the policy, and in which ways it differs. Raises ValueError."""
    given, *attributes = re.split(r"[,\s]+", value.strip())
    if given not in LEVELS:
        raise ValueError(f"{given!a} is not a level that Waypost has")
    try:
        pattern = policy_pattern(key if key.startswith(".") else str(next_hop(key)[0]).partition(":")[2], _PORT)
    except (BadValue, ValueFault) as error:
        raise ValueError(error.reason if isinstance(error, BadValue) else str(error)) from None
    level, note = LEVELS[given]
    policy: dict[str, Any] = {"level": level}
    notes = []
    for attribute in filter(None, attributes):
        name, _, text = attribute.partition("=")
        if name == "match" and level == "verify":
            names, left = _names(text)
            if names:
                policy["match"] = names
            if left:
                notes.append(f"left out of match: {', '.join(left)}")
        elif name != "match" or given != "fingerprint":
            notes.append(f"without {name}")
    if note and "match" not in policy:
        notes.insert(0, note)
    wrong = contradiction(pattern, policy)
    if wrong is not None:
        raise ValueError(wrong.reason)
    return pattern, policy, notes


def _names(text: str) -> tuple[list[str], list[str]]:
    """Returns the names of a match attribute that Waypost has, and the others."""
    names, left = list[str](), list[str]()
    for each in filter(None, text.split(":")):
        try:
            name = match_name(each)
        except BadValue:
            left.append(each)
        else:
            names += [name] if name not in names else []
    return names, left
