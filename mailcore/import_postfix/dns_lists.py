"""Translates postscreen_dnsbl_sites and reject_rbl_client of Postfix to [dnsbl]."""

from __future__ import annotations

import itertools

from mailcore.bounds import BadValue
from mailcore.config.dnsbl import parse_list
from mailcore.import_postfix.draft import Draft
from mailcore.import_postfix.machine import Machine
from mailcore.import_postfix.measures import COUNT

__all__ = ["dns_lists"]

_RESTRICTIONS = ("smtpd_client_restrictions", "smtpd_recipient_restrictions", "smtpd_relay_restrictions")
_REJECTS = ("enforce", "drop")  # of postscreen_dnsbl_action; its default is ignore


def dns_lists(machine: Machine, draft: Draft) -> None:
    """Sets [dnsbl]. Lists of postscreen have weights that belong together; those of smtpd are taken over only without them."""
    if "postscreen_dnsbl_sites" in machine.cf and machine.cf.list("postscreen_dnsbl_sites"):
        _of_postscreen(machine, draft)
    for name in _RESTRICTIONS:
        words = machine.cf.list(name) if name in machine.cf else []
        for keyword, site in itertools.pairwise(words):
            if keyword == "reject_rbl_client":
                _of_smtpd(machine, draft, name, site)


def _of_postscreen(machine: Machine, draft: Draft) -> None:
    name, threshold, action = "postscreen_dnsbl_sites", "postscreen_dnsbl_threshold", "postscreen_dnsbl_action"
    machine.seen |= {name, action}
    sites: list[str] = []
    for site in machine.cf.list(name):
        try:
            parse_list(site)
        except BadValue as error:
            draft.left(machine.where(name), f"{name} = {site}", error.reason)
            continue
        sites.append(site)
    if not sites:
        return
    rejects = machine.cf.value(action) in _REJECTS
    draft.put("dnsbl", "sites", list(dict.fromkeys(sites)))
    draft.put("dnsbl", "action", "reject" if rejects else "warn")
    said = "[dnsbl] sites; clients are refused at RCPT, and without postscreen's other tests"
    draft.changed(
        machine.where(name), machine.what(name), said if rejects else f'{said}; action = "warn", as {action} does'
    )
    if threshold in machine.cf:
        draft.measure(
            "dnsbl", "threshold", machine.look(threshold), COUNT, machine.where(threshold), machine.what(threshold)
        )


def _of_smtpd(machine: Machine, draft: Draft, name: str, site: str) -> None:
    where, what = machine.where(name), f"reject_rbl_client {site}"
    if "postscreen_dnsbl_sites" in machine.seen:
        draft.left(where, what, "the weights in [dnsbl] are postscreen's; add the list with a weight to its sites")
        return
    try:
        parse_list(site)
    except BadValue as error:
        draft.left(where, what, error.reason)
        return
    sites = draft.sections.setdefault("dnsbl", {}).setdefault("sites", [])
    if site not in sites:
        sites.append(site)
    draft.taken(where, what, f"[dnsbl] sites has {site}")
