"""Reverse DNS: what the world sees when our mail comes. The address it leaves by has a name, the name has that address, and
the name in EHLO is the same; large sites defer or refuse what has not.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator

import dns.reversename

from mailcore.doctor.finding import Finding, good, not_known, warn
from mailcore.doctor.host import Patient
from mailcore.doctor.resolver import ask_any

__all__ = ["look", "sources"]

# Addresses of nobody (RFC 5737, RFC 3849): the kernel says by which of ours it would go there, and nothing is sent.
_ELSEWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


def look(patient: Patient) -> Iterator[Finding]:
    found = sources() if patient.sources is None else patient.sources
    if not found:
        yield not_known("addresses", "this host has no route to the world; mail leaves by a next hop nearby, if at all")
    for address in found:
        given = patient.sources is not None
        if not given and not ipaddress.ip_address(address).is_global:
            yield not_known(
                address,
                "mail leaves by this private address; the world sees another one, behind which this host is",
                f"Look whether the public address has {patient.helo} as its reverse name.",
            )
        else:
            yield _address(patient, address)


def sources() -> tuple[str, ...]:
    """By which addresses mail leaves for the world."""
    found = []
    for family, elsewhere in _ELSEWHERE:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as asked:
                asked.connect((elsewhere, 9))  # of a datagram socket: no packet
                found.append(str(asked.getsockname()[0]))
        except OSError:  # no route, or no such family here
            continue
    return tuple(found)


def _address(patient: Patient, address: str) -> Finding:
    answer = ask_any(patient, dns.reversename.from_address(address).to_text(), "PTR")
    if not answer.is_usable:
        return not_known(address, f"no name server can tell its name: {answer.error or answer.rcode}")
    names = [each.rstrip(".") for each in answer.records]
    helo = patient.helo.lower()
    if not names:
        return warn(
            address, "has no reverse name (PTR): large sites refuse mail from it",
            f"Have whoever gave you the address set its PTR record to {helo}.", names=[],
        )  # fmt: skip
    kind = "AAAA" if ":" in address else "A"
    back = [name for name in names if _has(patient, name, kind, address)]
    if not back:
        return warn(
            address,
            f"is called {', '.join(names[:3])}, but that name has not this address",
            f"Add the {kind} record {address} for {names[0]}, or correct the PTR record.",
            names=names,
        )
    if helo not in back:
        return warn(
            address,
            f"is called {', '.join(back[:3])}, and Waypost calls itself {helo}",
            f'Set hostname = "{back[0]}" in [deliverer], or have the PTR record changed to {helo}.',
            names=names,
        )
    return good(address, f"is called {helo}, as Waypost calls itself, and that name has this address", names=names)


def _has(patient: Patient, name: str, kind: str, address: str) -> bool:
    wanted = ipaddress.ip_address(address)
    return any(ipaddress.ip_address(each) == wanted for each in ask_any(patient, name, kind).records)
