"""Ports: the process that listens on each, its SMTP greeting, and the process that holds port 25."""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Iterator, Sequence

from mailcore.config.listeners import Listener as Rule
from mailcore.config.values import listen_address
from mailcore.doctor.finding import Finding, bad, good, not_known, warn
from mailcore.doctor.host import PROC, Host, name_of
from mailcore.doctor.served import any_certificate
from mailcore.doctor.sockets import Listener, holders, listeners, matches
from mailcore.supervisor.start import TITLE

__all__ = ["look"]

SMTP = 25
CONNECT_S = 3.0
SYSTEMD = 1  # systemd holds the sockets of services that it activates
GREETING_BYTES = 512  # RFC 5321 4.5.3.1.5
MTAS = {"master": "Postfix", "exim4": "Exim", "exim": "Exim", "sendmail": "Sendmail", "smtpd": "OpenSMTPD"}


def look(host: Host) -> Iterator[Finding]:
    """Yields a finding for each address of the receivers, for the portal's, and for port 25. Raises OSError."""
    there = listeners()
    owners = holders({each.inode for each in there})
    rules = host.settings.all_listeners
    ends = [listen_address(each.address) for each in rules]
    for rule, (address, port) in zip(rules, ends, strict=True):
        yield _receiver(host, rule, address, port, there, owners)
    public = [address for rule, (address, _) in zip(rules, ends, strict=True) if rule.purpose == "mx"]
    if host.settings.relay.domains and all(ipaddress.ip_address(address).is_loopback for address in public):
        yield warn(
            "reachable",
            "receivers listen on loopback addresses only, but [relay] domains needs mail from other hosts",
            "Add a public address to [receiver] listen, unless a proxy on this host forwards the mail.",
        )
    yield _portal(host, there, owners)
    if all(port != SMTP for _, port in ends):
        yield _port_25(host, there, owners)


def _receiver(
    host: Host, rule: Rule, address: str, port: int, there: Sequence[Listener], owners: dict[int, set[int]]
) -> Finding:
    what = f"{_shown(address, port)} ({'SMTP' if rule.purpose == 'mx' else 'submission'})"
    pids = _pids(address, port, there, owners)
    if pids is None:
        return bad(what, "no process listens", "Start Waypost; if it cannot listen, its first lines on stderr say why.")
    supervisor = host.processes.get("supervisor")
    foreign = sorted(pids - host.pids() - {SYSTEMD})
    if supervisor is not None:  # it may have started this process since it recorded them
        foreign = [pid for pid in foreign if _parent(pid) != supervisor.pid]
    if foreign:
        return bad(
            what,
            f"held by {_named(foreign)}, {'another Waypost' if all(map(_is_waypost, foreign)) else 'which is not Waypost'}",
            "Stop and disable that program, or set another port in [receiver] listen.",
            holders=foreign,
        )
    began = time.monotonic()
    try:
        with socket.create_connection((_reached(address), port), CONNECT_S) as plain:
            plain.settimeout(CONNECT_S)
            with any_certificate().wrap_socket(plain) if rule.tls == "implicit" else plain as connection:
                greeting = connection.recv(GREETING_BYTES)
                connection.sendall(b"QUIT\r\n")
    except OSError as error:
        return bad(
            what,
            f"no SMTP greeting within {CONNECT_S:g} s: {error}",
            "See the findings on certificates: without one that can be used, nothing is spoken on this port."
            if rule.tls == "implicit"
            else "See the findings on processes and log. If a receiver hangs, kill it; it is restarted.",
        )
    took_ms = (time.monotonic() - began) * 1000
    reply = greeting.split(b"\n")[0].decode("ascii", "backslashreplace").strip()
    if not reply.startswith("220"):
        return warn(
            what,
            f"answers {reply!r} instead of 220",
            "See the findings on log: connections, file descriptors or disk space are exhausted.",
        )
    return good(what, f"greets in {took_ms:.0f} ms{_by(host, pids)}", greeting_ms=took_ms, holders=sorted(pids))


def _portal(host: Host, there: Sequence[Listener], owners: dict[int, set[int]]) -> Finding:
    address, port = listen_address(host.settings.portal.listen)
    what = f"{_shown(address, port)} (portal)"
    pids = _pids(address, port, there, owners)
    if pids is None:
        return warn(what, "no process listens", "Start the portal; mail does not need it.")
    foreign = sorted(pid for pid in pids - {SYSTEMD} if not _is_portal(pid))
    if foreign:
        return bad(
            what, f"held by {_named(foreign)}, which is not the portal",
            "Stop that program, or set another port in [portal] listen.", holders=foreign,
        )  # fmt: skip
    try:
        socket.create_connection((_reached(address), port), CONNECT_S).close()
    except OSError as error:
        return bad(what, f"cannot connect: {error}", "Restart the portal; mail does not need it.")
    return good(what, "accepts connections", holders=sorted(pids))


def _port_25(host: Host, there: Sequence[Listener], owners: dict[int, set[int]]) -> Finding:
    """Returns a finding about port 25 when Waypost listens on other ports only."""
    held = [each for each in there if each.port == SMTP]
    ours = ", ".join(each.address for each in host.settings.all_listeners)
    if not held:
        return good("port 25", f"free; receivers listen on {ours}")
    pids = sorted({pid for each in held for pid in owners.get(each.inode, ())})
    if not pids:
        return not_known("port 25", "held by a process that this user cannot see", "Run waypost doctor as root.")
    return warn(
        "port 25",
        f"held by {_named(pids)}; it receives the mail for this host, not Waypost ({ours})",
        "Stop and disable that server and set port 25 in [receiver] listen, unless it forwards the mail to Waypost.",
        holders=pids,
    )


def _pids(address: str, port: int, there: Sequence[Listener], owners: dict[int, set[int]]) -> set[int] | None:
    """Returns the listening processes. None: no process listens. Empty: this user cannot see the process."""
    found = [each.inode for each in there if matches(each, address, port)]
    return {pid for inode in found for pid in owners.get(inode, ())} if found else None


def _is_waypost(pid: int) -> bool:
    """Tells whether a process belongs to a Waypost, here one with another home."""
    try:
        return (PROC / str(pid) / "cmdline").read_bytes().startswith(TITLE.encode())
    except OSError:
        return False


def _is_portal(pid: int) -> bool:
    """Tells whether a process is the portal or its child; multiprocessing gives children another command line."""
    for _ in range(3):
        try:
            command = (PROC / str(pid) / "cmdline").read_bytes()
        except OSError:
            return True  # it has ended meanwhile
        if any(part in command for part in (b"manage.py", b"appliance", b"django")):
            return True
        pid = _parent(pid)
    return False


def _parent(pid: int) -> int:
    """Returns the parent of a process; 0 if it has ended."""
    try:
        return int((PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return 0


def _reached(address: str) -> str:
    """Returns the address to connect to: loopback for a wildcard address."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)  # noqa: S104 - looked up, not bound


def _by(host: Host, pids: set[int]) -> str:
    names = sorted(each.name for each in host.processes.values() if each.pid in pids and each.name != "supervisor")
    return f", {' and '.join(names)}" if names else ""


def _named(pids: Sequence[int]) -> str:
    """Names processes; known mail servers by their product name."""
    programs = [(MTAS.get(name_of(pid), name_of(pid)), pid) for pid in pids[:5]]
    return ", ".join(f"{name} (process {pid})" for name, pid in programs)


def _shown(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
