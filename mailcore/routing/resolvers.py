"""The resolvers for the name servers of the settings, or of /etc/resolv.conf: one that asks all, one that asks only those here.

Law: an answer that must be validated is asked of name servers on this host alone, if there are any. When a validating server
finds an answer bogus, it says SERVFAIL, and a resolver then asks its next server: that of another host, whose denial an
attacker on the way can forge.

Keeps law: tls-level-is-kept (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import dns.asyncresolver
import dns.exception
import dns.flags
import dns.nameserver

from mailcore.routing.nameserver import is_local, parse_nameserver

__all__ = ["RESOLV_CONF_CHECK_S", "Resolvers", "local_servers_of"]

TIMEOUT_S = 2.0  # of one question to one server, before the next is asked; dnspython's default
ASK_FLAGS = dns.flags.RD | dns.flags.AD  # AD in a question asks for AD in the answer (RFC 6840 5.7)
RESOLV_CONF_CHECK_S = 10.0  # DHCP rewrites the file now and then


class Resolvers:
    """Makes the resolvers, again when /etc/resolv.conf has changed. ``nameservers`` are those of the settings, if any."""

    def __init__(self, nameservers: Sequence[str], clock: Callable[[], float], resolv_conf: Path) -> None:
        self._nameservers = tuple(nameservers)
        self._clock = clock
        self._resolv_conf = resolv_conf
        self._all: dns.asyncresolver.Resolver | None = None
        self._local: dns.asyncresolver.Resolver | None = None
        self._made_of: object = None  # the file's times and size when the resolvers were made from it
        self._checked_at = float("-inf")
        if self._nameservers:
            self._all, self._local = self._from_settings(), _on_this_host(self._from_settings())

    def all(self) -> dns.asyncresolver.Resolver | None:
        """Returns the resolver that asks every name server; None if there is none, or /etc/resolv.conf is unusable."""
        self._look()
        return self._all

    def local(self) -> dns.asyncresolver.Resolver | None:
        """Returns the resolver that asks only the name servers on this host; None if none of them is here."""
        self._look()
        return self._local

    def _look(self) -> None:
        if self._nameservers or self._clock() - self._checked_at < RESOLV_CONF_CHECK_S:
            return
        self._checked_at = self._clock()
        try:
            status = self._resolv_conf.stat()
            version = (status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size)
            if version != self._made_of:
                self._all, self._local = self._from_file(), _on_this_host(self._from_file())
                self._made_of = version
        except (OSError, dns.exception.DNSException):
            self._all, self._local, self._made_of = None, None, None

    def _from_file(self) -> dns.asyncresolver.Resolver:
        resolver = dns.asyncresolver.Resolver(str(self._resolv_conf))
        resolver.timeout = TIMEOUT_S
        resolver.set_flags(ASK_FLAGS)
        return resolver

    def _from_settings(self) -> dns.asyncresolver.Resolver:
        resolver = dns.asyncresolver.Resolver(configure=False)
        servers = [parse_nameserver(text) for text in self._nameservers]
        resolver.nameservers = [dns.nameserver.Do53Nameserver(address, port) for address, port in servers]
        resolver.timeout = TIMEOUT_S
        resolver.set_flags(ASK_FLAGS)
        return resolver


def local_servers_of(resolv_conf: Path) -> list[str]:
    """Returns the name servers on this host that a file as /etc/resolv.conf has; [] also if it cannot be read."""
    try:
        servers = dns.asyncresolver.Resolver(str(resolv_conf)).nameservers
    except (OSError, dns.exception.DNSException):
        return []
    return [address for address in map(_address_of, servers) if is_local(address)]


def _on_this_host(resolver: dns.asyncresolver.Resolver) -> dns.asyncresolver.Resolver | None:
    """Takes away the name servers of other hosts; returns None if that is all of them."""
    here = [each for each in resolver.nameservers if is_local(_address_of(each))]
    if not here:
        return None
    resolver.nameservers = here
    return resolver


def _address_of(server: str | dns.nameserver.Nameserver) -> str:
    return server if isinstance(server, str) else server.answer_nameserver()
