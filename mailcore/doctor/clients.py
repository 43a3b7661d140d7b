"""Clients of other servers: whether mail for the postmaster is accepted, and whether the lists in the DNS still work."""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Iterator

from mailcore.config.dnsbl import UNLISTED, why_not_listed
from mailcore.config.postmaster import postmaster_faults
from mailcore.doctor.finding import Finding, good, not_known, warn
from mailcore.doctor.host import Host
from mailcore.doctor.resolver import side_by_side

__all__ = ["look"]

POSTMASTER_REMEDY = "Set [clients] postmaster to an address that is read."
LIST_REMEDY = "Remove it from [dnsbl] sites if it was shut down."
RESOLVER_REMEDY = "Ask it over a resolver of your own ([deliverer] nameservers), or remove it from [dnsbl] sites."


def look(host: Host) -> Iterator[Finding]:
    """Yields findings about [clients] postmaster and each list of [dnsbl]."""
    faults = list(postmaster_faults(host.settings, host.greeting))
    yield from (warn("postmaster", fault, POSTMASTER_REMEDY) for fault in faults)
    if not faults:
        yield good("postmaster", "mail for <postmaster> has a way")
    domains = list(dict.fromkeys(each.domain for each in host.settings.dnsbl.lists))
    if not domains:
        yield good("lists in the DNS", "none is configured")
        return
    yield from side_by_side([functools.partial(_list, host, domain) for domain in domains])


def _list(host: Host, domain: str) -> Finding:
    answer = host.lookups.ask(f"{UNLISTED}.{domain}", "A")
    if not answer.rcode:
        return not_known(domain, answer.error, "Repair the name servers.")
    if not answer.is_usable:
        return warn(domain, f"answers {answer.rcode}; its clients count as not listed", LIST_REMEDY)
    for record in answer.records:
        if why := why_not_listed(ipaddress.IPv4Address(record)):
            return warn(domain, f"{why}; its clients count as not listed", RESOLVER_REMEDY)
        found = f"lists every client: it answered {record} for 127.0.0.1; its clients count as not listed"
        return warn(domain, found, LIST_REMEDY)
    return good(domain, "does not list 127.0.0.1, as it should be")
