"""Reverse DNS of the addresses that send our mail.

The address needs a PTR record, its name must resolve to the address, and the name in EHLO must be the same; large sites
defer or reject other mail.
"""

from __future__ import annotations

import functools
import ipaddress
import socket
from collections.abc import Iterator

import dns.reversename

from mailcore.doctor.finding import AFTER_NAMES, Finding, good, not_known, warn
from mailcore.doctor.host import Host
from mailcore.doctor.resolver import side_by_side

__all__ = ["look", "sources"]

# Documentation addresses (RFC 5737, RFC 3849): the kernel chooses a source address for them; no packet is sent.
_ELSEWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


def look(host: Host) -> Iterator[Finding]:
    """Yields a finding for each source address of outgoing mail."""
    found = sources() if host.sources is None else host.sources
    if not found:
        yield not_known(
            "addresses", "this host has no default route; it can only deliver to next hops on the local network",
            "Add a default route if this host delivers to other networks.",
        )  # fmt: skip
    yield from side_by_side([functools.partial(_address, host, address) for address in found])


def sources() -> tuple[str, ...]:
    """Returns the source addresses that the kernel uses for the Internet, IPv4 first."""
    found = []
    for family, elsewhere in _ELSEWHERE:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as asked:
                asked.connect((elsewhere, 9))  # connecting a datagram socket sends no packet
                found.append(str(asked.getsockname()[0]))
        except OSError:  # no route, or no such family here
            continue
    return tuple(found)


def _address(host: Host, address: str) -> Finding:
    if host.sources is None and not ipaddress.ip_address(address).is_global:
        return not_known(
            address,
            f"outgoing mail leaves from private address {address} (behind NAT); cannot check the public address",
            f"Check that the PTR record of the public address is {host.helo}.",
        )
    answer = host.lookups.ask(dns.reversename.from_address(address).to_text(), "PTR")
    if not answer.is_usable:
        return not_known(address, f"PTR lookup failed: {answer.error or answer.rcode}", AFTER_NAMES)
    names = [each.rstrip(".") for each in answer.records]
    helo = host.helo.lower()
    if not names:
        return warn(
            address, "has no PTR record; large sites reject mail from it",
            f"Ask the provider of the address to set its PTR record to {helo}.", names=[],
        )  # fmt: skip
    kind = "AAAA" if ":" in address else "A"
    back = [name for name in names if _has(host, name, kind, address)]
    if not back:
        return warn(
            address,
            f"PTR record {', '.join(names[:3])}, but that name does not resolve to this address",
            f"Add the {kind} record {address} for {names[0]}, or correct the PTR record.",
            names=names,
        )
    if helo not in back:
        return warn(
            address,
            f"PTR record {', '.join(back[:3])}, but Waypost sends {helo} in EHLO",
            f'Set hostname = "{back[0]}" in [deliverer], or change the PTR record to {helo}.',
            names=names,
        )
    return good(address, f"PTR record, EHLO name and address record agree: {helo}", names=names)


def _has(host: Host, name: str, kind: str, address: str) -> bool:
    expected = ipaddress.ip_address(address)
    return any(ipaddress.ip_address(each) == expected for each in host.lookups.ask(name, kind).records)
