"""Translates relay_recipient_maps and reject_unverified_recipient to [recipients]. Files are used where they are."""

from __future__ import annotations

from collections.abc import Sequence

from mailcore.config.map_file import INDEXED
from mailcore.import_postfix.draft import Draft
from mailcore.import_postfix.machine import Machine
from mailcore.import_postfix.measures import TIME
from mailcore.import_postfix.tables import TableFault
from mailcore.rewriting.map_text import MapFault
from mailcore.rewriting.recipient_list import read_recipients

__all__ = ["recipients"]

_TIMES = tuple(
    f"address_verify_{answer}_{what}_time" for answer in ("positive", "negative") for what in ("expire", "refresh")
)
_RESTRICTIONS = ("smtpd_recipient_restrictions", "smtpd_relay_restrictions", "smtpd_client_restrictions")
_ASKS = "reject_unverified_recipient"
_ACCEPTED = "every recipient of [relay] domains is accepted, and bounces may go to forged senders"
_ASKED = (
    "instead of this list, the next hop is asked for recipients of [relay] domains, as by reject_unverified_recipient"
)


def recipients(machine: Machine, draft: Draft, domains: Sequence[str]) -> None:
    """Sets [recipients]. A list of which a part is missing would refuse valid recipients, so it is taken over as a whole."""
    _by_file(machine, draft, domains)
    _by_asking(machine, draft, domains)


def _by_asking(machine: Machine, draft: Draft, domains: Sequence[str]) -> None:
    name = next((each for each in _RESTRICTIONS if _ASKS in machine.cf.list(each)), "")
    if not name:
        return
    where = machine.where(name)
    if "recipients" in draft.sections:
        draft.left(where, _ASKS, "recipients of [relay] domains are known by relay_recipient_maps, and not asked for")
        return
    if not domains:
        draft.left(where, _ASKS, "there are no [relay] domains")
        return
    draft.put("recipients", "known_by", "next_hop")
    draft.changed(
        where, _ASKS, '[recipients] known_by = "next_hop", for [relay] domains and clients outside of [relay] networks'
    )
    for each in _TIMES:
        if each in machine.cf:
            key = f"{each}_s"
            draft.measure("recipients", key, machine.look(each), TIME, machine.where(each), machine.what(each))


def _by_file(machine: Machine, draft: Draft, domains: Sequence[str]) -> None:
    name = "relay_recipient_maps"
    given = machine.cf.list(name) if name in machine.cf else []
    if not given:
        return
    machine.seen.add(name)
    where, what = machine.where(name), machine.what(name)
    files: list[str] = []
    faults: list[str] = []
    for each in given:
        kind, colon, rest = each.removeprefix("proxy:").partition(":")
        try:
            if colon and kind not in INDEXED:
                raise TableFault(
                    f"tables of type {kind} are not read here: write the addresses of {each} to a file, one a line"
                )
            path = machine.tables.path(rest if colon else kind)
            if not path.exists():
                how = f"postmap -s {kind}:{rest} writes it from the index" if colon else "is its source elsewhere?"
                raise TableFault(f"{path}, the source of {each}, does not exist; {how}")
            files.append(str(path))
        except TableFault as fault:
            faults.append(str(fault))
    if not faults:
        try:
            read_recipients(files)
        except MapFault as fault:
            faults = str(fault).splitlines()
    if faults:
        asks = bool(domains) and any(_ASKS in machine.cf.list(each) for each in _RESTRICTIONS)
        then = f"{_ASKED if asks else _ACCEPTED}, until [recipients] relay_recipient_maps names a file with all of them"
        draft.left(where, what, f"{'; '.join(faults)}; {then}")
    elif not domains:
        draft.left(where, what, "there are no [relay] domains that it could be about")
    else:
        draft.put("recipients", "known_by", "file")
        draft.put("recipients", "relay_recipient_maps", files)
        draft.taken(
            where, what, f'[recipients] known_by = "file", with {", ".join(files)}; receivers must be able to read it'
        )
