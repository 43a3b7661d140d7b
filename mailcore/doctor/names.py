"""Names: name servers and their answer times; DNS records of our own names and of the domains we accept mail for."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

from mailcore.doctor import validation
from mailcore.doctor.finding import AFTER_NAMES, Finding, bad, good, not_known, warn
from mailcore.doctor.host import Host
from mailcore.doctor.resolver import Answer, Server, side_by_side

__all__ = ["look"]

SLOW_S = 1.0  # mail for each new destination waits this long
DOMAINS_MAX = 10  # of [relay] domains; checking all could take minutes
SERVER_REMEDY = "Repair or replace it in [deliverer] nameservers, or in /etc/resolv.conf if that setting is empty."


def look(host: Host) -> Iterator[Finding]:
    """Yields findings about name servers and their validation, our names in HELO and greeting, and [relay] domains."""
    if not host.lookups.servers:
        yield bad("name servers", "none configured; mail that needs an MX lookup cannot be delivered", SERVER_REMEDY)
        return
    answers = host.lookups.first_answers()
    yield from (_server(host, server, answer) for server, answer in answers.items())
    yield from validation.look(host)
    if not any(answer.rcode for answer in answers.values()):
        yield bad("name servers", f"none of {len(answers)} answers; mail that needs an MX lookup waits", SERVER_REMEDY)
        return
    roles: dict[str, str] = {}
    for role, name in (("HELO", host.helo), ("greeting", host.greeting)):
        roles[name] = f"{roles[name]} and {role}" if name in roles else role
    calls: list[Callable[[], Finding]] = [functools.partial(_own, host, name, role) for name, role in roles.items()]
    domains = host.settings.relay.domains[:DOMAINS_MAX]
    calls += [functools.partial(_domain, host, domain.removeprefix(".")) for domain in domains]
    yield from side_by_side(calls)


def _server(host: Host, server: Server, answer: Answer) -> Finding:
    what = f"name server {server[0]}" + (f" port {server[1]}" if server[1] != 53 else "")
    figures = {"rcode": answer.rcode, "took_s": answer.took_s}
    if not answer.rcode:
        return warn(what, f"does not answer: {answer.error}", SERVER_REMEDY, **figures)
    if not answer.is_usable:
        reply = f"answers {answer.rcode} to a query for {host.lookups.first_question[0]}"
        return warn(what, reply, SERVER_REMEDY, **figures)
    if answer.took_s > SLOW_S:
        return warn(
            what, f"took {answer.took_s:.1f} s; mail for each new destination waits as long",
            "Run a caching resolver on this host, or configure a nearer name server.", **figures,
        )  # fmt: skip
    return good(what, f"answers in {answer.took_s * 1000:.0f} ms", **figures)


def _own(host: Host, name: str, role: str) -> Finding:
    what = f"{name} ({role} name)"
    if name.startswith("["):
        return warn(
            what,
            "is an address literal; many servers reject mail from it",
            "Set [deliverer] hostname to the name of this host.",
        )
    if "." not in name:
        return warn(
            what, f"{name!r} is not a fully qualified domain name; other servers will reject our mail",
            "Set hostname in [deliverer] and [receiver] to the DNS name of this host.",
        )  # fmt: skip
    kinds = ("A", "AAAA", "MX")
    found = dict(zip(kinds, host.lookups.ask_all(name, kinds), strict=True))
    addresses = [*found["A"].records, *found["AAAA"].records]
    hosts = found["MX"].records
    figures = {"addresses": addresses, "mx": list(hosts)}
    if addresses:
        records = f"resolves to {', '.join(addresses[:4])}; {f'MX {hosts[0]}' if hosts else 'no MX record'}"
        return good(what, records, **figures)
    if not found["A"].is_usable:
        return not_known(what, f"lookup failed: {found['A'].error or found['A'].rcode}", AFTER_NAMES)
    return warn(
        what, "has no address in DNS; many servers reject mail from it",
        "Add an A or AAAA record for it, or set hostname in [deliverer] and [receiver] to another name.", **figures,
    )  # fmt: skip


def _domain(host: Host, domain: str) -> Finding:
    """Returns a finding about the MX and address records of a domain we accept mail for."""
    what = f"{domain} ([relay] domains)"
    mx = host.lookups.ask(domain, "MX")
    if not mx.is_usable:
        return not_known(what, f"lookup failed: {mx.error or mx.rcode}", AFTER_NAMES)
    hosts = [record.partition(" ")[2].rstrip(".") for record in mx.records]
    if hosts:
        ours = host.greeting.lower() in hosts
        records = f"MX {', '.join(hosts[:4])}{'' if ours else '; none of them is this host'}"
        return good(what, records, mx=hosts, is_ours=ours)
    if any(answer.records for answer in host.lookups.ask_all(domain, ("A", "AAAA"))):
        return good(what, "no MX record, but an address", mx=[])
    return warn(
        what, "has no MX and no address record; mail for it cannot reach any server",
        "Add an MX record that names this host, or remove it from [relay] domains.", mx=[],
    )  # fmt: skip
