"""Questions to name servers, each bounded in time; what comes is a value, never an exception."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import NamedTuple

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.query
import dns.rcode
import dns.rdatatype
import dns.resolver
import dns.reversename

from mailcore.config.values import nameserver_address
from mailcore.doctor.host import Patient

__all__ = ["Answer", "ask", "ask_any", "servers"]

TRY_S = 2.0  # as the core's own look-ups: then the next server is asked
TRIES = 2
SERVERS_MAX = 4  # resolv.conf(5) has three


class Answer(NamedTuple):
    """``rcode`` "": no answer came, and ``error`` says why."""

    rcode: str
    records: tuple[str, ...]
    took_s: float
    error: str = ""

    @property
    def is_usable(self) -> bool:
        """There may be no such name; but the server did its work."""
        return self.rcode in ("NOERROR", "NXDOMAIN")


def servers(patient: Patient) -> list[tuple[str, int]]:
    """Those deliverers ask."""
    if patient.settings.deliverer.nameservers:
        return [nameserver_address(each) for each in patient.settings.deliverer.nameservers][:SERVERS_MAX]
    return _of_resolv_conf(patient.resolv_conf)[:SERVERS_MAX]


def _of_resolv_conf(path: Path) -> list[tuple[str, int]]:
    """None where it names none or can't be read."""
    with contextlib.suppress(dns.exception.DNSException, OSError):
        found = dns.resolver.Resolver(str(path)).nameservers
        return [(str(each), 53) for each in found]
    return []


def ask(server: tuple[str, int], name: str, kind: str, tries: int = TRIES) -> Answer:
    """One question. An answer too long for a datagram is asked for again over TCP."""
    began = time.monotonic()
    error = ""
    try:
        asked = dns.name.from_text(name)
        question = dns.message.make_query(asked, kind)
    except dns.exception.DNSException as fault:
        return Answer("", (), 0.0, f"{name!r} is no name: {fault}")
    for _ in range(tries):
        try:
            answer, _ = dns.query.udp_with_fallback(question, server[0], TRY_S, server[1])
        except dns.exception.Timeout:
            error = f"no answer within {TRY_S:g} s"
        except (dns.exception.DNSException, OSError, EOFError) as fault:
            error = str(fault) or type(fault).__name__
        else:
            took_s = time.monotonic() - began
            rrtype = dns.rdatatype.from_text(kind)
            records = tuple(
                str(record).lower() if kind in ("MX", "PTR") else str(record)
                for rrset in answer.answer
                if rrset.rdtype == rrtype
                for record in rrset
            )
            return Answer(dns.rcode.to_text(answer.rcode()), records, took_s)
    return Answer("", (), time.monotonic() - began, error)


def ask_any(patient: Patient, name: str, kind: str) -> Answer:
    """The first usable answer of all servers, each asked once; those that were silent before come last."""
    answer = Answer("", (), 0.0, "there is no name server")
    for server in sorted(servers(patient), key=patient.silent.__contains__):
        answer = ask(server, name, kind, tries=1)
        if answer.is_usable:
            break
        if not answer.rcode:
            patient.silent.add(server)
    return answer
