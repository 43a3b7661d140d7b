"""The settings of encryption towards next hops: [tls] and [tls_policy."PATTERN"], and what contradicts itself in them.

A policy belongs to a next hop, never to a name that DNS returned for it (docs/tls.md). Values only; the two functions that
open a file are for the check at load.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mailcore.bounds import BadValue, bad, choice, number, text, texts, whole
from mailcore.config import values
from mailcore.routing.route import RouteError, domain_name

if TYPE_CHECKING:  # Ansible checks a text with Python alone, and frames need msgspec
    from mailcore.frames import NextHop

__all__ = [
    "DANE",
    "LEVELS",
    "Tls",
    "TlsPolicy",
    "check_ca_file",
    "check_nameservers",
    "contradiction",
    "level_of",
    "level_of_transport",
    "patterns_of",
    "policy_pattern",
]

LEVELS = ("none", "may", "encrypt", "verify", "dane", "dane-only", "mta-sts")
DANE = ("dane", "dane-only")  # levels that need a validating name server on this host
_BY_KEYWORD = ("nexthop", "dot-nexthop")  # as in Postfix's smtp_tls_secure_cert_match
_LEVELS_DOC = (
    "STARTTLS: never; if the server offers it; always, or the mail is deferred; always, with a certificate for the next hop's "
    "name; as TLSA records say (RFC 7672), or as may without them; only with TLSA records; "
    "as the policy says that the domain publishes (RFC 8461), or as may without one"
)


def level_of_transport() -> str:
    """Defines the field ``tls`` of a transport."""
    level: str = choice("may", LEVELS, _LEVELS_DOC)
    return level


def match_name(text: str) -> str:
    """Reads a name that a certificate may have: "nexthop", "dot-nexthop", "example.org" or ".example.org". Raises BadValue."""
    if text in _BY_KEYWORD:
        return text
    try:
        if text == "hostname":  # Postfix allows it: the name of the MX host, which an attacker can forge without DNSSEC
            raise RouteError
        return "." + domain_name(text[1:]) if text.startswith(".") else domain_name(text)
    except RouteError:
        rule = 'must be "nexthop", "dot-nexthop", a name such as "mx.example.org", or ".example.org" for all names below it'
        raise bad(text, rule) from None


def policy_pattern(text: str, port: int) -> str:
    """Reads the pattern of a policy: a next hop as in routes, or all subdomains of a domain. Raises BadValue."""
    try:
        if "@" in text:
            raise ValueError
        return values.destination_pattern(text, port)
    except ValueError:
        rule = (
            'must be a next hop such as "example.org", "example.org:587", "[192.0.2.1]:587", or ".example.org" for all its '
            "subdomains"
        )
        raise bad(text, rule) from None


@dataclass(frozen=True, kw_only=True)
class Tls:
    """[tls]: encryption of the mail that leaves. Its level is set by transport and by next hop."""

    ca_file: str = text(
        "",
        "PEM file with the certificates of the CAs that next hops are checked against",
        special={"": "the CAs of this system"},
    )
    sts_timeout_s: float = number(
        60.0, 1, 600, "seconds", "with level mta-sts, timeout for fetching the policy of a domain (RFC 8461 3.3)"
    )
    sts_policies_max: int = whole(
        10_000, 1, 1_000_000, "policies", "with level mta-sts, maximum policies kept on disk, in `mta-sts` below `home`"
    )


@dataclass(frozen=True, kw_only=True)
class TlsPolicy:
    """[tls_policy."PATTERN"]: encryption towards some next hops, instead of the transport's `tls`."""

    level: str = choice("may", LEVELS, f"as `tls` of a transport; {_LEVELS_DOC}")
    match: tuple[str, ...] = texts(
        ("nexthop", "dot-nexthop"),
        "with level verify, the names of which the certificate must have one: nexthop is the next hop's own name, dot-nexthop "
        "is any name below it",
        match_name,
        values.no_repeats,
    )
    ca_file: str = text("", "with level verify, as `ca_file` of [tls]", special={"": "that of [tls]"})


def contradiction(pattern: str, policy: dict[str, object]) -> BadValue | None:
    """Returns what is wrong in a policy whose single values are right; None if nothing is."""
    level = policy.get("level")
    if level is None:
        return BadValue("level", None, f"is missing; allowed: {', '.join(LEVELS)}")
    for name in ("match", "ca_file"):
        if name in policy and level != "verify":
            return BadValue(name, policy[name], f'is only for level = "verify" (got level = {level!r})')
    if level == "mta-sts" and pattern.startswith("["):
        return BadValue(
            "level", level, "must not be mta-sts for a host in brackets: a policy belongs to a domain (RFC 8461)"
        )
    return None


def check_nameservers(nameservers: Sequence[str], levels: Collection[object]) -> None:
    """Raises BadValue if a level asks for DANE and a name server is on another host: its answers do not count as validated."""
    if not set(DANE).intersection(levels):
        return
    for each in nameservers:
        if not ipaddress.ip_address(values.nameserver_address(each)[0]).is_loopback:
            reason = f"must be name servers on this host, such as 127.0.0.1, because a next hop has level dane (got {each!r})"
            raise BadValue("nameservers", nameservers, reason)


def check_ca_file(file: str) -> None:
    """Loads the certificates of CAs. Raises BadValue named ca_file."""
    import ssl  # each command loads the settings, and few of them such a file

    try:
        with open(file, "rb"):
            pass
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(file)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
        raise BadValue("ca_file", file, f"must be a PEM file with certificates of CAs (got {file}: {reason})") from None


def level_of(policies: Mapping[str, TlsPolicy], level: str, next_hop: NextHop, port: int) -> str:
    """Returns the level of a next hop; ``level`` is its transport's, ``port`` that of hosts found by MX."""
    if next_hop.host.startswith("/"):  # a Unix socket: nothing leaves this host
        return "none"
    return next((policies[each].level for each in patterns_of(next_hop, port) if each in policies), level)


def patterns_of(next_hop: NextHop, port: int) -> list[str]:
    """Returns the patterns of [tls_policy] that fit a next hop, the most specific first."""
    named = next_hop.host if next_hop.mx else f"[{next_hop.host}]"
    patterns = [f"{named}:{next_hop.port}", named] if next_hop.port != port else [named]
    if ":" not in next_hop.host and not next_hop.host.replace(".", "").isdigit():
        above = next_hop.host
        while above := above.partition(".")[2]:
            patterns.append("." + above)
    return patterns
