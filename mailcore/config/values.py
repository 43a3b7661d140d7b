"""Readers of the settings that have a syntax: addresses, networks, domains, directories, certificates.

Each takes a value from the file and returns it in one spelling, or raises BadValue, whose reason ("must be …") the operator
reads after the name of the setting. Names and lines of settings are added elsewhere; only the certificate check reads files.
"""

from __future__ import annotations

import grp
import ipaddress
import re
import zoneinfo
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from mailcore.bounds import DAY_S, BadValue, bad, shown
from mailcore.config.certificates import CertificateError, load_pair
from mailcore.routing.address import ascii_lower
from mailcore.routing.route import BUILT_IN, TRANSPORT_NAME, RouteError, domain_name, parse_route

__all__ = [
    "broker_url",
    "check_certificate",
    "destination_pattern",
    "directory",
    "distinct",
    "domain_pattern",
    "dropped_field",
    "endpoint",
    "field_name",
    "group",
    "host_name",
    "listen_address",
    "login_name",
    "mailbox",
    "nameserver",
    "nameserver_address",
    "network",
    "no_repeats",
    "refuse_open_relay",
    "retry_ladder",
    "route_pattern",
    "sender_pattern",
    "server_name",
    "spark_master",
    "table_days",
    "transport_name",
    "zone",
]

NAMESERVER_PORT = 53  # RFC 1035 4.2
LADDER_STEPS_MAX = 32  # each step is a lane with its own open files
LADDER_STEP_S_MAX = 7 * 86_400  # the upper bound of maximal_backoff_time

LOGIN_CHARACTERS_MAX = 255  # as mailcore.users.user has it
_LOCAL_PART = re.compile(r"[^\s\x00-\x1f\x7f]{1,64}")  # RFC 5321 4.5.3.1.1
_BROKER = re.compile(r"rediss?://[^\s/?#]+(/[0-9]{1,4})?|redis\+socket:///[^\s?#]+")
_MASTER = re.compile(
    r"local(\[([0-9]{1,4}|\*)(, ?[0-9]{1,3})?\])?|spark://[^\s/]+:[0-9]{1,5}(,[^\s/]+:[0-9]{1,5})*|yarn|k8s://\S+"
)
_TABLE_DAYS = re.compile(r"[a-z][a-z_]{0,39}:([1-9][0-9]{0,4})")
_ADDRESS = re.compile(r"(?:\[(?P<six>[^]]*)\]|(?P<four>[^:\[\]]*)):(?P<port>[0-9]{1,5})")


def listen_address(text: str) -> tuple[str, int]:
    """Reads ``127.0.0.1:25`` or ``[::1]:25``. Raises BadValue."""
    rule = 'must be "IPv4 address:port" or "[IPv6 address]:port", with a port from 1 to 65535'
    match = _ADDRESS.fullmatch(text)
    if not match or not 1 <= int(match["port"]) <= 65_535:
        raise bad(text, rule)
    try:
        if match["six"] is not None:
            return ipaddress.IPv6Address(match["six"]).compressed, int(match["port"])
        return str(ipaddress.IPv4Address(match["four"])), int(match["port"])
    except ValueError:
        raise bad(text, rule) from None


def endpoint(text: str) -> str:
    """Returns an address to listen on, in one spelling. Raises BadValue."""
    host, port = listen_address(text)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def no_repeats(values: Sequence[str]) -> None:
    """Raises BadValue at an empty list, and at one that has a value twice."""
    if not values:
        raise BadValue("", values, "must have at least one value (got [])")
    distinct(values)


def distinct(values: Sequence[str]) -> None:
    """Raises BadValue at a list that has a value twice; it may be empty."""
    for value in values:
        if values.count(value) > 1:
            raise BadValue("", value, f"must not have a value twice (got {shown(value)} twice)")


def nameserver(text: str) -> str:
    """Returns the text if ``nameserver_address`` can read it. Raises BadValue."""
    nameserver_address(text)
    return text


def nameserver_address(text: str) -> tuple[str, int]:
    """Reads ``address`` or ``address:port``; an IPv6 address with a port needs brackets. Raises BadValue."""
    try:
        return ipaddress.ip_address(text.removeprefix("[").removesuffix("]")).compressed, NAMESERVER_PORT
    except ValueError:
        pass
    try:
        return listen_address(text)
    except ValueError:
        raise bad(text, 'must be "address", "IPv4 address:port" or "[IPv6 address]:port" of a name server') from None


def network(text: str) -> str:
    """Reads a network in CIDR form, or one address. Raises BadValue, also at host bits: they hide a mistyped length."""
    try:
        return str(ipaddress.ip_network(text))
    except ValueError:
        try:
            hint = f"; did you mean {str(ipaddress.ip_network(text, strict=False))!r}?"
        except ValueError:
            hint = ""
        rule = 'must be a network such as "192.0.2.0/24" or "2001:db8::/32", or one address'
        raise BadValue("", text, f"{rule} (got {shown(text)}){hint}") from None


def refuse_open_relay(networks: Sequence[str]) -> None:
    """Raises BadValue if the networks add up to all IPv4 or all IPv6 addresses."""
    parsed = [ipaddress.ip_network(each) for each in networks]
    four = ipaddress.collapse_addresses(each for each in parsed if isinstance(each, ipaddress.IPv4Network))
    six = ipaddress.collapse_addresses(each for each in parsed if isinstance(each, ipaddress.IPv6Network))
    for network in map(str, (*four, *six)):
        if network.endswith("/0"):
            reason = f"must be your own networks only; together these are {network}, all addresses: an open relay"
            raise BadValue("", networks, reason)


def domain_pattern(text: str) -> str:
    """Reads ``example.org``, or ``.example.org`` for all its subdomains. Raises BadValue."""
    try:
        return "." + domain_name(text[1:]) if text.startswith(".") else domain_name(text)
    except RouteError:
        hint = '; "*" would be an open relay' if text == "*" else ""
        rule = 'must be a domain such as "example.org", or ".example.org" for all its subdomains'
        raise BadValue("", text, f"{rule} (got {shown(text)}){hint}") from None


def route_pattern(text: str) -> str:
    """Reads a domain pattern, one address, or ``*`` for all that no other pattern matches. Raises BadValue."""
    local, at, domain = text.rpartition("@")
    try:
        if at and _LOCAL_PART.fullmatch(local):
            return f"{ascii_lower(local)}@{domain_name(domain)}"
        return text if text == "*" else domain_pattern(text)
    except ValueError:
        raise bad(
            text,
            'must be a pattern: "example.org", ".example.org" for all its subdomains, "user@example.org", or "*" for all '
            "others",
        ) from None


def sender_pattern(text: str) -> str:
    """Reads a pattern of senders: one address, a domain, all its subdomains, or ``<>`` for bounces. Raises BadValue."""
    if text == "<>":
        return text
    try:
        if text == "*":
            raise ValueError
        return route_pattern(text)
    except ValueError:
        rule = 'must be a pattern: "user@example.org", "example.org", ".example.org" for its subdomains, or "<>" for bounces'
        raise bad(text, rule) from None


def login_name(text: str) -> str:
    """Reads the name of a user who logs in; returns it in lower case, as users have it. Raises BadValue."""
    if not text or not text.isprintable() or len(text) > LOGIN_CHARACTERS_MAX:
        raise bad(text, f"must be the name of a user, at most {LOGIN_CHARACTERS_MAX} characters")
    return ascii_lower(text)


def destination_pattern(text: str, port: int) -> str:
    """Reads destinations of a transport: a next hop as in routes, all subdomains of a domain, or one recipient.

    Returns it as destinations are named: without the port if it is ``port``, the deliverer's default. Raises BadValue.
    """
    local, at, next_hop = text.rpartition("@")
    try:
        if text.startswith("."):
            return domain_pattern(text)
        if at and not _LOCAL_PART.fullmatch(local):
            raise ValueError
        route = parse_route(f"x:{next_hop}")
        if not route.next_hop:
            raise ValueError
    except ValueError:
        raise bad(
            text,
            'must be a destination: "example.org", ".example.org" for all its subdomains, "example.org:587", '
            '"[192.0.2.1]", "[192.0.2.1]:2526", "unix:/path" or, with destination_recipient_limit = 1, "user@example.org"',
        ) from None
    named = str(replace(route, port=None if route.port == port else route.port)).partition(":")[2]
    return f"{ascii_lower(local)}@{named}" if at else named


def transport_name(text: str) -> str:
    """Returns the name of a transport. Raises BadValue."""
    if not TRANSPORT_NAME.fullmatch(text):
        raise bad(text, "must be the name of a transport: a letter, then up to 31 of a-z, 0-9, _ and -")
    if text in BUILT_IN:
        raise bad(text, f"must not be {text}: a route of this name hands mail to no deliverer")
    return text


def server_name(text: str) -> str:
    """Reads a name of a certificate: a host name, or ``*.example.org`` for all one label below it. Raises BadValue."""
    try:
        return "*." + domain_name(text[2:]) if text.startswith("*.") else domain_name(text)
    except RouteError:
        raise bad(text, 'must be a host name such as "mail.example.org", or "*.example.org"') from None


def host_name(text: str) -> str:
    """Reads our name for EHLO and greeting: a host name, or an address in brackets (RFC 5321 4.1.3). Raises BadValue."""
    literal = re.fullmatch(r"\[(?:IPv6:)?(.*)\]", text, re.IGNORECASE)
    try:
        if not literal:
            return domain_name(text)
        address = ipaddress.ip_address(literal[1])
    except ValueError:
        raise bad(text, 'must be a host name such as "mail.example.org", or an address such as "[192.0.2.1]"') from None
    return f"[IPv6:{address.compressed}]" if address.version == 6 else f"[{address}]"


def field_name(text: str) -> str:
    """Reads the name of a header field: printable ASCII without blank and colon (RFC 5322 2.2). Raises BadValue."""
    if not re.fullmatch(r"[!-9;-~]{1,76}", text):  # with its colon and a blank it fits on a line of 78 (RFC 5322 2.1.1)
        raise bad(text, 'must be the name of a header field such as "X-Campaign", without a colon')
    return text


def dropped_field(text: str) -> str:
    """Reads the name of a header field that is removed. Raises BadValue."""
    if text.startswith("."):  # has another dot in front of it while it passes by
        raise bad(text, 'must not begin with a dot; it is the name of a header field such as "Bcc"')
    return field_name(text)


def retry_ladder(steps: Sequence[int]) -> tuple[int, ...]:
    """Returns the waits of deferred mail in seconds. Raises BadValue."""
    ladder = tuple(steps)
    if not 1 <= len(ladder) <= LADDER_STEPS_MAX:
        raise BadValue("", ladder, f"must have 1 to {LADDER_STEPS_MAX} steps (got {len(ladder)})")
    if not all(earlier < later for earlier, later in pairwise(ladder)):
        raise bad(list(ladder), "must be strictly increasing")
    if ladder[0] < 1 or ladder[-1] > LADDER_STEP_S_MAX:
        raise bad(
            list(ladder),
            f"must have steps between 1 and {LADDER_STEP_S_MAX} seconds, which is {LADDER_STEP_S_MAX // DAY_S} days",
        )
    return ladder


def group(text: str) -> str:
    """Returns the name of a group of this host; a missing one would lock people out unnoticed. Raises BadValue."""
    try:
        grp.getgrnam(text)
    except (KeyError, ValueError):
        raise bad(text, "must be a group of this host; `getent group` lists them") from None
    return text


def directory(text: str, base: Path) -> Path:
    """Returns an absolute path; a relative one starts at ``base``. Keeps symbolic links. Raises BadValue."""
    if not text or "\0" in text:
        raise bad(text, "must be a path, absolute or relative to the configuration file")
    return Path(base, text)


def check_certificate(certificate: str, key: str, names: tuple[str, str] = ("tls_certificate", "tls_key")) -> None:
    """Loads both as a server would. Raises BadValue with the name of one of the two settings, ``names``."""
    try:
        load_pair(certificate, key)
    except CertificateError as error:
        if error.is_file:
            raise BadValue(names[error.is_key], key if error.is_key else certificate, str(error)) from None
        raise BadValue(
            names[0],
            certificate,
            f"and {names[1]} must be a certificate and its key, as PEM files, the key not encrypted (got {certificate} and "
            f"{key}: {error})",
        ) from None


def broker_url(text: str) -> str:
    """Returns the address of a Redis server. Raises BadValue."""
    if not _BROKER.fullmatch(text):
        raise bad(text, 'must be a Redis address: "redis://host:port/0", "rediss://…" or "redis+socket:///path"')
    return text


def spark_master(text: str) -> str:
    """Returns the address of a Spark master. Raises BadValue."""
    if not _MASTER.fullmatch(text):
        raise bad(text, 'must be a Spark master: "local[N]", "local[*]", "spark://host:port", "yarn" or "k8s://…"')
    return text


def zone(text: str) -> str:
    """Returns the name of a time zone that this host has. Raises BadValue."""
    if text not in zoneinfo.available_timezones():
        raise bad(text, 'must be a time zone such as "UTC" or "Europe/Vienna"')
    return text


def mailbox(text: str) -> str:
    """Reads one mail address; the domain in lower case. Raises BadValue."""
    local, _, domain = text.rpartition("@")
    try:
        if not _LOCAL_PART.fullmatch(local) or "<" in local or ">" in local:
            raise ValueError
        return f"{local}@{domain_name(domain)}"
    except ValueError:
        raise bad(text, 'must be a mail address such as "user@example.org"') from None


def table_days(text: str) -> str:
    """Returns a ``table:days`` pair. Raises BadValue."""
    if not _TABLE_DAYS.fullmatch(text):
        raise bad(text, 'must be "TABLE:DAYS", such as "senders:400"')
    return text
