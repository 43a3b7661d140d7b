"""Validation: whether the name servers give answers that count for DANE. Without such, dane is as may for all mail."""

from __future__ import annotations

from collections.abc import Iterator

from mailcore.doctor.finding import Finding, bad, good, not_known
from mailcore.doctor.host import Host
from mailcore.routing.nameserver import is_local

__all__ = ["look"]

REMEDY = 'Run a validating resolver on this host, such as unbound, and set [deliverer] nameservers = ["127.0.0.1"].'
REPAIR = "Repair this name server."


def look(host: Host) -> Iterator[Finding]:
    """Yields a finding about each name server that is asked for hosts with DANE; nothing if no level needs one."""
    tables = host.settings.dane_levels
    if not tables:
        return
    here = [server for server in host.lookups.servers if is_local(server[0])]  # if there are any, no other is asked
    effect = f"so dane is as may, and dane-only defers ({_shown(tables)})"
    if not here:
        yield bad("DNSSEC", f"no name server is on this host, {effect}", REMEDY)
        return
    answers = host.lookups.ask_each(here, ".", "SOA")
    for server in here:
        what = f"DNSSEC of {server[0]}" + (f" port {server[1]}" if server[1] != 53 else "")
        answer = answers.get(server)
        if answer is None:
            yield bad(what, f"does not answer; mail with DANE waits if no other answers ({_shown(tables)})", REPAIR)
        elif not answer.is_usable:
            yield not_known(what, f"no answer about the root zone: {answer.error or answer.rcode}", REPAIR)
        elif answer.validated:
            yield good(what, "answers are validated")
        else:
            yield bad(what, f"answers are not validated: the root zone's SOA record has no AD bit, {effect}", REMEDY)


def _shown(tables: tuple[str, ...]) -> str:
    return ", ".join(tables[:3]) + (", …" if len(tables) > 3 else "")
