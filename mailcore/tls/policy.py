"""The encryption that is demanded of a next hop: from the settings alone, and found without DNS.

The most specific pattern of [tls_policy] wins: the next hop with its port, without it, then ``.example.org``, then ``.org``;
without a match it is the transport's ``tls``. The names that level "verify" asks of a certificate are made from the next hop,
which the operator or the recipient's address named: never from a name that DNS returned for it, because without DNSSEC an
attacker between us and the name server can return one.

Law: a ``Policy`` is a value and part of every key under which a connection is kept, so that no connection is used for a policy
other than the one that it was made under.

Keeps law: tls-level-is-kept (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from mailcore.config.settings import TlsPolicy
from mailcore.config.tls import patterns_of
from mailcore.frames import NextHop
from mailcore.routing.tlsa import Tlsa

__all__ = ["Policies", "Policy"]

HOPS_REMEMBERED = 10_000  # about 5 MB; when it is full it is cleared


class Policy(NamedTuple):
    """The encryption that one connection must have. ``why`` says where the level comes from, "" for "may" of a transport."""

    level: str  # one of mailcore.config.tls.LEVELS
    why: str = ""
    names: tuple[str, ...] = ()  # that the certificate must have one of: "example.org", ".example.org" for all below
    ca_file: str = ""  # "": the CAs of this system
    hosts: tuple[
        str, ...
    ] = ()  # mta-sts, also in testing mode: patterns of the MX hosts that the domain's policy allows
    tlsa: tuple[Tlsa, ...] = ()  # dane: of which the certificate must match one
    fault: str = ""  # of the policy that the domain publishes, a ``Result``; or WAIVED

    def __str__(self) -> str:
        """Returns the level and its reason, as it is recorded."""
        return f"{self.level}: {self.why}" if self.why else self.level

    @property
    def demands_tls(self) -> bool:
        """Returns whether nothing may be sent in the clear."""
        return self.level not in ("none", "may")

    @property
    def server_name(self) -> str:
        """Returns the name that the server is asked for in the handshake (RFC 7672 8.1); "": that of the host."""
        return self.names[0] if self.tlsa else ""

    def instead(self, level: str, why: str) -> Policy:
        """Returns a plain policy of another level, with the reason why it applies instead of this one."""
        return Policy(level, f"{self.level}, {why}")


class Policies:
    """The policies of the settings, in the form in which they are searched."""

    def __init__(self, policies: Mapping[str, TlsPolicy], port: int, ca_file: str = "") -> None:
        self._policies = policies
        self._port = port
        self.ca_file = ca_file
        self._known: dict[tuple[str, str, NextHop], Policy] = {}

    def of(self, transport: str, level: str, next_hop: NextHop) -> Policy:
        """Returns the policy of a next hop; ``level`` is the transport's."""
        key = (transport, level, next_hop)
        policy = self._known.get(key)
        if policy is None:
            if len(self._known) >= HOPS_REMEMBERED:
                self._known.clear()
            policy = self._known[key] = self._search(transport, level, next_hop)
        return policy

    def _search(self, transport: str, level: str, next_hop: NextHop) -> Policy:
        host = next_hop.host
        if host.startswith("/"):  # a Unix socket: nothing leaves this host
            return Policy("none")
        for pattern in patterns_of(next_hop, self._port):
            found = self._policies.get(pattern)
            if found is not None:
                return self._made(found, f"[tls_policy] {pattern}", host)
        if level == "may":  # the default; most mail has it, and its record is shorter without a reason
            return Policy("may")
        return self._made(TlsPolicy(level=level), f"[transports.{transport}]", host)

    def _made(self, policy: TlsPolicy, why: str, host: str) -> Policy:
        if policy.level != "verify":
            return Policy(policy.level, why, ca_file=self.ca_file if policy.level == "mta-sts" else "")
        names = [{"nexthop": host, "dot-nexthop": "." + host}.get(name, name) for name in policy.match]
        return Policy("verify", why, tuple(names), policy.ca_file or self.ca_file)
