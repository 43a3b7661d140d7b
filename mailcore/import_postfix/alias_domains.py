"""Translates virtual_alias_domains: domains of which only the aliases are valid recipients.

Postfix gives all other recipients of such a domain the route "error". So does the draft: the domain is in [relay] domains, its
route is an error, and next_hop_domains looks at the route when a recipient is named, so that the client is refused at RCPT.
Aliases are valid before that.
"""

from __future__ import annotations

from mailcore.config import values
from mailcore.import_postfix.draft import Draft
from mailcore.import_postfix.machine import Machine

__all__ = ["alias_domains", "refuse_others"]

_NAME = "virtual_alias_domains"
_MAPS = "virtual_alias_maps"
_UNKNOWN = "error:5.1.1 User unknown in virtual alias table"  # Postfix's words
_OURS = (
    ". Clients in [relay] networks and users who have logged in get 250 for such recipients, and then a bounce with this text; "
    "in Postfix they get 550 at RCPT"
)
_NAMED_MAX = 5


def alias_domains(machine: Machine, draft: Draft) -> list[str]:
    """Returns the domains whose aliases were taken over; adds findings for all others. [rewriting] must be there."""
    machine.seen.add(_NAME)
    is_set = _NAME in machine.cf
    where, what = (
        (machine.where(_NAME), machine.what(_NAME)) if is_set else (machine.where(_MAPS), f"{_NAME} (default)")
    )
    unread: list[tuple[str, str]] = []
    words = {word.lower().rstrip(".") for true, word in machine.tables.elements(machine.cf.list(_NAME), unread) if true}
    taken = draft.sections.get("rewriting", {}).get(_MAPS, [])
    missing = len(machine.cf.list(_MAPS)) - len(taken)
    for word, why in unread:
        if is_set:
            draft.left(where, f"{_NAME} = {word}", f"{why}; add its domains to [relay] domains")
        elif taken and not missing and _is_pattern(word):
            # The file itself is taken over. A pattern may make a domain of aliases in Postfix; which ones cannot be listed.
            said = "its patterns rewrite addresses; if one of them is also there to name a domain, add it to [relay] domains"
            draft.changed(where, f"{_MAPS} = {word}", said)
    domains: list[str] = []
    for word in sorted(each for each in words if each and "@" not in each):
        try:
            name = values.domain_pattern(word)
        except ValueError as error:
            if is_set:
                draft.left(where, what, str(error))
            continue
        domains.append(name)
    if not domains:
        return []
    if not taken or missing:
        why = f"not all of {_MAPS} was taken over" if taken else f"no file of {_MAPS} was taken over"
        said = f"{why}, so mail for {_some(domains)} is refused from outside: correct these files, then add the domains"
        draft.left(where, what, f"{said} to [relay] domains")
        return []
    return domains


def refuse_others(machine: Machine, draft: Draft, domains: list[str]) -> None:
    """Sets the route and the check of recipients for the domains, after all other routes; adds their finding."""
    if not domains:
        return
    is_set = _NAME in machine.cf
    where, what = (
        (machine.where(_NAME), machine.what(_NAME)) if is_set else (machine.where(_MAPS), f"{_NAME} (default)")
    )
    routed = [each for each in domains if each in draft.routes]
    refusing = [each for each in domains if each not in draft.routes]
    said = f"[relay] domains: {_some(domains)}"
    if refusing:
        draft.put("recipients", "next_hop_domains", refusing)
        for each in refusing:
            draft.routes[each] = _UNKNOWN
        said += f'; their aliases are valid, and other recipients are refused by the route "{_UNKNOWN}" in [routes]'
        said += _OURS
    if routed:
        said += f"; transport_maps has a route for {_some(routed)}, where all recipients but the aliases go"
    (draft.changed if refusing else draft.taken)(where, what, said)


def _is_pattern(table: str) -> bool:
    return table.removeprefix("proxy:").partition(":")[0] in ("regexp", "pcre")


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return ", ".join(names[:_NAMED_MAX]) + more
