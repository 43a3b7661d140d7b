"""Names: do the name servers answer, and how soon; do our own names and the domains we take mail for resolve."""

from __future__ import annotations

from collections.abc import Iterator

from mailcore.doctor.finding import Finding, bad, good, not_known, warn
from mailcore.doctor.host import Patient
from mailcore.doctor.resolver import ask, ask_any, servers

__all__ = ["look"]

SLOW_S = 1.0  # every new destination's mail waits so long
DOMAINS_MAX = 10  # of [relay] domains; more would take long
SERVER_REMEDY = "Mend or replace it: [deliverer] nameservers, or /etc/resolv.conf where that is empty."


def look(patient: Patient) -> Iterator[Finding]:
    asked = servers(patient)
    if not asked:
        yield bad("name servers", "there is none: no mail that goes by MX can be delivered", SERVER_REMEDY)
        return
    findings = [_server(patient, server) for server in asked]
    yield from findings
    if not any(each.figures["rcode"] for each in findings):
        yield bad("name servers", f"none of {len(asked)} answers: mail that goes by MX waits", SERVER_REMEDY)
        return
    roles: dict[str, str] = {}
    for role, name in (("HELO", patient.helo), ("greeting", patient.greeting)):
        roles[name] = f"{roles[name]} and {role}" if name in roles else role
    for name, role in roles.items():
        yield _own(patient, name, role)
    for domain in patient.settings.relay.domains[:DOMAINS_MAX]:
        yield _domain(patient, domain.removeprefix("."))


def _server(patient: Patient, server: tuple[str, int]) -> Finding:
    what = f"name server {server[0]}" + (f" port {server[1]}" if server[1] != 53 else "")
    own, kind = (".", "NS") if patient.helo.startswith("[") or "." not in patient.helo else (patient.helo, "A")
    answer = ask(server, own, kind)
    figures = {"rcode": answer.rcode, "took_s": answer.took_s}
    if not answer.rcode:
        patient.silent.add(server)
        return warn(what, f"does not answer: {answer.error}", SERVER_REMEDY, **figures)
    if not answer.is_usable:
        told = f"answers {answer.rcode} when it is asked for {own}"
        return warn(what, told, SERVER_REMEDY, **figures)
    if answer.took_s > SLOW_S:
        return warn(
            what, f"took {answer.took_s:.1f} s; each new destination waits as long",
            "Put a caching resolver on this host, or name a nearer one.", **figures,
        )  # fmt: skip
    return good(what, f"answers in {answer.took_s * 1000:.0f} ms", **figures)


def _own(patient: Patient, name: str, role: str) -> Finding:
    what = f"{name} ({role} name)"
    if name.startswith("["):
        return warn(what, "is an address, which many sites refuse", "Give this host a name: [deliverer] hostname.")
    if "." not in name:
        return warn(
            what, "is no full name: sites refuse mail from it",
            "Set hostname in [deliverer] and [receiver] to the name this host has in DNS.",
        )  # fmt: skip
    found = {kind: ask_any(patient, name, kind) for kind in ("A", "AAAA", "MX")}
    addresses = [*found["A"].records, *found["AAAA"].records]
    hosts = found["MX"].records
    figures = {"addresses": addresses, "mx": list(hosts)}
    if addresses:
        told = f"is {', '.join(addresses[:4])}; {f'MX {hosts[0]}' if hosts else 'no MX of its own'}"
        return good(what, told, **figures)
    if not found["A"].is_usable:
        return not_known(what, f"no name server can tell: {found['A'].error or found['A'].rcode}")
    return warn(
        what, "has no address in DNS: many sites refuse mail from such a name",
        "Add an A or AAAA record for it, or set another hostname in [deliverer] and [receiver].", **figures,
    )  # fmt: skip


def _domain(patient: Patient, domain: str) -> Finding:
    """Does mail for it come to somebody at all."""
    what = f"{domain} ([relay] domains)"
    mx = ask_any(patient, domain, "MX")
    if not mx.is_usable:
        return not_known(what, f"no name server can tell: {mx.error or mx.rcode}")
    hosts = [record.partition(" ")[2].rstrip(".") for record in mx.records]
    if hosts:
        ours = patient.greeting.lower() in hosts
        told = f"MX {', '.join(hosts[:4])}{'' if ours else '; none of them is this host'}"
        return good(what, told, mx=hosts, is_ours=ours)
    if ask_any(patient, domain, "A").records or ask_any(patient, domain, "AAAA").records:
        return good(what, "no MX, an address", mx=[])
    return warn(
        what, "has neither MX nor address: nobody can send mail to it",
        "Add an MX record that names this host, or take it out of [relay] domains.", mx=[],
    )  # fmt: skip
