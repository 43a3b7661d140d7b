"""The first waypost.toml of a host, and which names and addresses the host has."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import socket
from dataclasses import dataclass
from pathlib import Path

from mailcore.routing.route import RouteError, domain_name

__all__ = ["Answers", "first_settings", "host_addresses", "own_name", "url_of"]

HTTPS = "443"
ADDRESSES_MAX = 8  # a host with containers may have hundreds


@dataclass(frozen=True)
class Answers:
    """The values that differ between hosts. ``smtp``, ``submission`` and ``https`` are endpoints, "address:port"."""

    hostname: str
    url: str
    smtp: tuple[str, ...]
    submission: str
    https: str


def own_name() -> str:
    """Returns the full name of this host as its resolver knows it, otherwise its short name."""
    short = socket.gethostname()
    full = socket.getfqdn(short)
    for name in (full, short):
        try:
            found = domain_name(name)
        except RouteError:
            continue
        if not found.startswith("localhost"):
            return found
    return "localhost"


def host_addresses(proc: Path = Path("/proc")) -> list[str]:
    """Returns the addresses of this host by which others may reach it, IPv4 first; at most ADDRESSES_MAX."""
    found: list[str] = []
    with contextlib.suppress(OSError):
        address = ""
        for line in (proc / "net/fib_trie").read_text().splitlines():
            words = line.split()
            if words[:1] == ["|--"]:
                address = words[1]
            elif words[-2:] == ["host", "LOCAL"]:
                found.append(address)
    with contextlib.suppress(OSError):
        for line in (proc / "net/if_inet6").read_text().splitlines():
            found.append(ipaddress.IPv6Address(bytes.fromhex(line.split()[0])).compressed)
    others = [each for each in dict.fromkeys(found) if not _is_local(each)]
    return others[:ADDRESSES_MAX]


def _is_local(address: str) -> bool:
    given = ipaddress.ip_address(address)
    return given.is_loopback or given.is_link_local


def url_of(hostname: str, https: str) -> str:
    """Returns the portal's address: without the port, if it is the one of HTTPS."""
    port = https.rpartition(":")[2]
    return f"https://{hostname}" if port == HTTPS else f"https://{hostname}:{port}"


def first_settings(answers: Answers, home: Path, run: Path, log: Path, etc: Path) -> str:
    """Returns the text of the file."""
    return f"""\
# Waypost's settings. Made once by waypost setup; it is yours: neither setup nor an upgrade writes it again. All keys with their
# defaults are in configuration.md. Check a change with waypost check-config, and bring it into force with waypost reload;
# after a change of an address to listen on, run waypost setup again.

home = {_text(home)}
run_directory = {_text(run)}
log_directory = {_text(log)}

[receiver]
hostname = {_text(answers.hostname)}   # other servers see this name, and it should be in the DNS
listen = [{", ".join(_text(each) for each in answers.smtp)}]
tls_certificate = {_text(etc / "tls/certificate.pem")}
tls_key = {_text(etc / "tls/key.pem")}

[[listener]]                    # for users who log in (waypost user add)
address = {_text(answers.submission)}
purpose = "submission"

[relay]
networks = ["127.0.0.0/8", "::1/128"]   # these clients may send to any recipient
domains = []                            # recipient domains accepted from all clients

[control]
group = "waypost-control"

[portal]
listen = {_text(answers.https)}
public_url = {_text(answers.url)}
tls_certificate = {_text(etc / "portal-tls/certificate.pem")}
tls_key = {_text(etc / "portal-tls/key.pem")}

[routes]
# "example.org" = "smtp:[192.0.2.1]:25"   # transport, next hop, port; in brackets: no MX look-up
"*" = "smtp"
"""


def _text(value: object) -> str:
    return json.dumps(str(value))
