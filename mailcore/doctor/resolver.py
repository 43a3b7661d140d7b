"""Queries to name servers with a time limit; every outcome is a value, never an exception."""

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
from mailcore.doctor.host import Host

__all__ = ["Answer", "ask", "ask_any", "servers"]

TRY_S = 2.0  # as in the core's own lookups, before the next server is asked
TRIES = 2
SERVERS_MAX = 4  # resolv.conf(5) has three


class Answer(NamedTuple):
    """The answer of a name server. ``rcode`` is "" if none came; ``error`` then says why."""

    rcode: str
    records: tuple[str, ...]
    took_s: float
    error: str = ""

    @property
    def is_usable(self) -> bool:
        """Tells whether the server gave a definite answer, even if the name does not exist."""
        return self.rcode in ("NOERROR", "NXDOMAIN")


def servers(host: Host) -> list[tuple[str, int]]:
    """Returns the name servers that deliverers use, as (address, port)."""
    if host.settings.deliverer.nameservers:
        return [nameserver_address(each) for each in host.settings.deliverer.nameservers][:SERVERS_MAX]
    return _of_resolv_conf(host.resolv_conf)[:SERVERS_MAX]


def _of_resolv_conf(path: Path) -> list[tuple[str, int]]:
    """Returns the name servers in the file; empty if it names no server or cannot be read."""
    with contextlib.suppress(dns.exception.DNSException, OSError):
        found = dns.resolver.Resolver(str(path)).nameservers
        return [(str(each), 53) for each in found]
    return []


def ask(server: tuple[str, int], name: str, kind: str, tries: int = TRIES) -> Answer:
    """Sends one query over UDP, and over TCP if the answer is truncated. ``kind`` is a record type such as "MX"."""
    began = time.monotonic()
    error = ""
    try:
        asked = dns.name.from_text(name)
        question = dns.message.make_query(asked, kind)
    except dns.exception.DNSException as fault:
        return Answer("", (), 0.0, f"{name!r} is not a valid domain name: {fault}")
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


def ask_any(host: Host, name: str, kind: str) -> Answer:
    """Asks each server once and returns the first usable answer; servers that did not answer before come last."""
    answer = Answer("", (), 0.0, "no name server is configured")
    for server in sorted(servers(host), key=host.silent.__contains__):
        answer = ask(server, name, kind, tries=1)
        if answer.is_usable:
            break
        if not answer.rcode:
            host.silent.add(server)
    return answer
