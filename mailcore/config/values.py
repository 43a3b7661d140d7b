"""Checks of single values of the settings: addresses, networks, domains, directories, certificates.

Each takes the value as it stands in the file and returns it in the one spelling the rest of the code sees, or raises
ValueError with what is wrong and what is allowed, for the operator as it is. Knows neither keys nor lines; the certificate
check alone reads files.
"""

from __future__ import annotations

import grp
import ipaddress
import re
import ssl
import zoneinfo
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from mailcore.routing.route import TRANSPORT_NAME, RouteError, domain_name, parse_route

__all__ = [
    "broker_url",
    "check_certificate",
    "destination_pattern",
    "directory",
    "domain_pattern",
    "endpoint",
    "group",
    "host_name",
    "listen_address",
    "mailbox",
    "nameserver",
    "nameserver_address",
    "network",
    "no_repeats",
    "refuse_open_relay",
    "retry_ladder",
    "route_pattern",
    "spark_master",
    "table_days",
    "transport_name",
    "zone",
]

NAMESERVER_PORT = 53  # RFC 1035 4.2
LADDER_STEPS_MAX = 32  # each step is a lane with its own open files
LADDER_STEP_S_MAX = 7 * 86_400  # the upper bound of maximal_backoff_time

_LOCAL_PART = re.compile(r"[^\s\x00-\x1f\x7f]{1,64}")  # RFC 5321 4.5.3.1.1
_BROKER = re.compile(r"rediss?://[^\s/?#]+(/[0-9]{1,4})?|redis\+socket:///[^\s?#]+")
_MASTER = re.compile(
    r"local(\[([0-9]{1,4}|\*)(, ?[0-9]{1,3})?\])?|spark://[^\s/]+:[0-9]{1,5}(,[^\s/]+:[0-9]{1,5})*|yarn|k8s://\S+"
)
_TABLE_DAYS = re.compile(r"[a-z][a-z_]{0,39}:([1-9][0-9]{0,4})")
_ADDRESS = re.compile(r"(?:\[(?P<six>[^]]*)\]|(?P<four>[^:\[\]]*)):(?P<port>[0-9]{1,5})")


def listen_address(text: str) -> tuple[str, int]:
    """Reads ``127.0.0.1:25`` or ``[::1]:25``."""
    allowed = 'allowed: "IPv4 address:port" or "[IPv6 address]:port", port from 1 to 65535'
    match = _ADDRESS.fullmatch(text)
    if not match or not 1 <= int(match["port"]) <= 65_535:
        raise ValueError(f"{text!r} is no address with a port; {allowed}")
    try:
        if match["six"] is not None:
            return ipaddress.IPv6Address(match["six"]).compressed, int(match["port"])
        return str(ipaddress.IPv4Address(match["four"])), int(match["port"])
    except ValueError:
        raise ValueError(f"{text!r} is no address with a port; {allowed}") from None


def endpoint(text: str) -> str:
    """An address to listen on, in its one spelling."""
    host, port = listen_address(text)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def no_repeats(values: Sequence[str]) -> None:
    if not values:
        raise ValueError("the list is empty; allowed: one or more")
    for value in values:
        if values.count(value) > 1:
            raise ValueError(f"{value!r} stands there twice; allowed: each once")


def nameserver(text: str) -> str:
    """What ``nameserver_address`` can read, as it is written."""
    nameserver_address(text)
    return text


def nameserver_address(text: str) -> tuple[str, int]:
    """Reads ``address`` or ``address:port``; an IPv6 address with a port stands in brackets."""
    try:
        return ipaddress.ip_address(text.removeprefix("[").removesuffix("]")).compressed, NAMESERVER_PORT
    except ValueError:
        pass
    try:
        return listen_address(text)
    except ValueError:
        raise ValueError(
            f'{text!r} is no name server; allowed: "address", "IPv4 address:port", "[IPv6 address]:port"'
        ) from None


def network(text: str) -> str:
    """A network in CIDR form, or one address. Bits of the host are refused: they hide a mistyped length."""
    try:
        return str(ipaddress.ip_network(text))
    except ValueError:
        try:
            meant = f"; did you mean {str(ipaddress.ip_network(text, strict=False))!r}?"
        except ValueError:
            meant = ""
        raise ValueError(
            f'{text!r} is no network{meant or ";"} allowed: "192.0.2.0/24", "2001:db8::/32", or one address'
        ) from None


def refuse_open_relay(networks: Sequence[str]) -> None:
    """Whoever may relay must be somebody: networks that add up to a whole address family are refused."""
    parsed = [ipaddress.ip_network(each) for each in networks]
    four = ipaddress.collapse_addresses(each for each in parsed if isinstance(each, ipaddress.IPv4Network))
    six = ipaddress.collapse_addresses(each for each in parsed if isinstance(each, ipaddress.IPv6Network))
    for whole in map(str, (*four, *six)):
        if whole.endswith("/0"):
            raise ValueError(f"together these are {whole}, the whole world: an open relay; allowed: your own networks")


def domain_pattern(text: str) -> str:
    """``example.org``, or ``.example.org`` for all below it."""
    try:
        return "." + domain_name(text[1:]) if text.startswith(".") else domain_name(text)
    except RouteError as error:
        everything = " (everything would be an open relay)" if text == "*" else ""
        raise ValueError(f'{error}{everything}; allowed: "example.org", or ".example.org" for all below it') from None


def route_pattern(text: str) -> str:
    """A domain pattern, one address, or ``*`` for whatever no other pattern takes."""
    local, at, domain = text.rpartition("@")
    try:
        if at and _LOCAL_PART.fullmatch(local):
            return f"{local.lower()}@{domain_name(domain)}"
        return text if text == "*" else domain_pattern(text)
    except ValueError:
        raise ValueError(
            f'{text!r} is no pattern; allowed: "example.org", ".example.org" for all below it, "user@example.org", '
            'or "*" for all others'
        ) from None


def destination_pattern(text: str, port: int) -> str:
    """Destinations of a transport: a next hop as routes have it, all below a domain, or one recipient.

    As names of destinations have them: without the port that is the deliverer's own (``port``).
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
        raise ValueError(
            f'{text!r} is no pattern of destinations; allowed: "example.org", ".example.org" for all below it, '
            '"example.org:587", "[192.0.2.1]", "[192.0.2.1]:2526" or, with destination_recipient_limit = 1, '
            '"user@example.org"'
        ) from None
    named = str(replace(route, port=None if route.port == port else route.port)).partition(":")[2]
    return f"{local.lower()}@{named}" if at else named


def transport_name(text: str) -> str:
    if not TRANSPORT_NAME.fullmatch(text):
        raise ValueError(f"{text!r} is no transport's name; allowed: a letter, then up to 31 of a-z, 0-9, _ and -")
    return text


def host_name(text: str) -> str:
    """Our own name for EHLO and greeting: a host name or, as RFC 5321 4.1.3 has it, an address in brackets."""
    literal = re.fullmatch(r"\[(?:IPv6:)?(.*)\]", text, re.IGNORECASE)
    try:
        if not literal:
            return domain_name(text)
        address = ipaddress.ip_address(literal[1])
    except ValueError:
        raise ValueError(f'{text!r} is no host name; allowed: "mail.example.org" or "[192.0.2.1]"') from None
    return f"[IPv6:{address.compressed}]" if address.version == 6 else f"[{address}]"


def retry_ladder(steps: Sequence[int]) -> tuple[int, ...]:
    ladder = tuple(steps)
    ascending = all(earlier < later for earlier, later in pairwise(ladder))
    if not 1 <= len(ladder) <= LADDER_STEPS_MAX or not ascending or ladder[0] < 1 or ladder[-1] > LADDER_STEP_S_MAX:
        raise ValueError(
            f"{list(ladder)} is no ladder; allowed: 1 to {LADDER_STEPS_MAX} whole numbers of seconds, "
            f"each greater than the one before, from 1 to {LADDER_STEP_S_MAX}"
        )
    return ladder


def group(text: str) -> str:
    """A group of this host: one that is missing would quietly lock people out."""
    try:
        grp.getgrnam(text)
    except (KeyError, ValueError):
        raise ValueError(f"{text!r} is no group of this host; allowed: a group's name, see getent group") from None
    return text


def directory(text: str, base: Path) -> Path:
    """An absolute path; a relative one is taken from ``base``. Symbolic links stay as they are."""
    if not text or "\0" in text:
        raise ValueError(f"{text!r} is no directory; allowed: a path, relative to the configuration file or absolute")
    return Path(base, text)


def check_certificate(certificate: str, key: str) -> None:
    """Loads both as a server would, and raises ValueError if that fails."""
    for what, name in (("tls_certificate", certificate), ("tls_key", key)):
        try:
            with open(name, "rb"):
                pass
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise ValueError(f"{what} {name!r} cannot be read: {reason}") from None
    try:
        # An encrypted key must fail here: a daemon has nobody to ask for the passphrase.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=lambda: "")
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        raise ValueError(
            f"{certificate!r} and {key!r} are no certificate with its key ({reason}); "
            "allowed: PEM files, the key not encrypted"
        ) from None


def broker_url(text: str) -> str:
    if not _BROKER.fullmatch(text):
        raise ValueError(f'{text!r} is no Redis; allowed: "redis://host:port/0", "rediss://…", "redis+socket:///path"')
    return text


def spark_master(text: str) -> str:
    if not _MASTER.fullmatch(text):
        raise ValueError(
            f'{text!r} is no master of Spark; allowed: "local[N]", "local[*]", "spark://host:port", "yarn", "k8s://…"'
        )
    return text


def zone(text: str) -> str:
    """A time zone this host knows."""
    if text not in zoneinfo.available_timezones():
        raise ValueError(f'{text!r} is no time zone; allowed: a name such as "UTC" or "Europe/Vienna"')
    return text


def mailbox(text: str) -> str:
    """One address; the domain in its one spelling."""
    local, _, domain = text.rpartition("@")
    try:
        if not _LOCAL_PART.fullmatch(local) or "<" in local or ">" in local:
            raise ValueError
        return f"{local}@{domain_name(domain)}"
    except ValueError:
        raise ValueError(f'{text!r} is no address; allowed: "user@example.org"') from None


def table_days(text: str) -> str:
    """``table:days``."""
    if not _TABLE_DAYS.fullmatch(text):
        raise ValueError(f'{text!r} is wrong; allowed: "TABLE:DAYS" such as "senders:400"')
    return text
