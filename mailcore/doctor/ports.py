"""Ports: does somebody listen on each, is it us, does it greet; and who holds port 25."""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Iterator, Sequence

from mailcore.config.values import listen_address
from mailcore.doctor.finding import Finding, bad, good, not_known, warn
from mailcore.doctor.host import PROC, Patient, name_of
from mailcore.doctor.sockets import Listener, holders, listeners, matches

__all__ = ["look"]

SMTP = 25
CONNECT_S = 3.0
SYSTEMD = 1  # keeps the sockets of a service it activates
GREETING_BYTES = 512  # RFC 5321 4.5.3.1.5
MTAS = {"master": "Postfix", "exim4": "Exim", "exim": "Exim", "sendmail": "Sendmail", "smtpd": "OpenSMTPD"}


def look(patient: Patient) -> Iterator[Finding]:
    there = listeners()
    owners = holders({each.inode for each in there})
    ends = [listen_address(each) for each in patient.settings.receiver.listen]
    for address, port in ends:
        yield _receiver(patient, address, port, there, owners)
    if patient.settings.relay.domains and all(ipaddress.ip_address(address).is_loopback for address, _ in ends):
        yield warn(
            "reachable",
            "receivers listen on loopback addresses only, and [relay] domains expects mail from outside",
            "Add an outside address to [receiver] listen, unless a proxy on this host hands the mail on.",
        )
    yield _portal(patient, there, owners)
    if all(port != SMTP for _, port in ends):
        yield _port_25(patient, there, owners)


def _receiver(
    patient: Patient, address: str, port: int, there: Sequence[Listener], owners: dict[int, set[int]]
) -> Finding:
    what = f"{_shown(address, port)} (SMTP)"
    pids = _pids(address, port, there, owners)
    if pids is None:
        return bad(what, "nobody listens", "Start Waypost; its first lines on stderr say what keeps it from listening.")
    foreign = sorted(pids - patient.pids() - {SYSTEMD})
    if foreign:
        return bad(
            what,
            f"held by {_named(foreign)}, {'another Waypost' if all(map(_is_waypost, foreign)) else 'which is not Waypost'}",
            "Stop and disable that program, or set another port in [receiver] listen.",
            holders=foreign,
        )
    began = time.monotonic()
    try:
        with socket.create_connection((_reached(address), port), CONNECT_S) as connection:
            connection.settimeout(CONNECT_S)
            greeting = connection.recv(GREETING_BYTES)
            connection.sendall(b"QUIT\r\n")
    except OSError as error:
        return bad(
            what,
            f"somebody listens, but gives no greeting within {CONNECT_S:g} s: {error}",
            "See processes and log below: a receiver that hangs is started again when it is killed.",
        )
    took_ms = (time.monotonic() - began) * 1000
    words = greeting.split(b"\n")[0].decode("ascii", "backslashreplace").strip()
    if not words.startswith("220"):
        return warn(
            what,
            f"answers {words!r} instead of 220",
            "Look into the log below: connections, descriptors or disk are at their end.",
        )
    return good(what, f"greets in {took_ms:.0f} ms{_by(patient, pids)}", greeting_ms=took_ms, holders=sorted(pids))


def _portal(patient: Patient, there: Sequence[Listener], owners: dict[int, set[int]]) -> Finding:
    address, port = listen_address(patient.settings.portal.listen)
    what = f"{_shown(address, port)} (portal)"
    pids = _pids(address, port, there, owners)
    if pids is None:
        return warn(what, "nobody listens: there is no portal", "Start the portal; mail goes on without it.")
    foreign = sorted(pid for pid in pids - {SYSTEMD} if not _is_portal(pid))
    if foreign:
        return bad(
            what, f"held by {_named(foreign)}, which is not the portal",
            "Stop that program, or set another port in [portal] listen.", holders=foreign,
        )  # fmt: skip
    try:
        socket.create_connection((_reached(address), port), CONNECT_S).close()
    except OSError as error:
        return bad(what, f"cannot be connected to: {error}", "Restart the portal; mail goes on without it.")
    return good(what, "takes connections", holders=sorted(pids))


def _port_25(patient: Patient, there: Sequence[Listener], owners: dict[int, set[int]]) -> Finding:
    """Waypost listens elsewhere; then another mail server may stand where the world knocks."""
    held = [each for each in there if each.port == SMTP]
    ours = ", ".join(patient.settings.receiver.listen)
    if not held:
        return good("port 25", f"free; receivers listen on {ours}")
    pids = sorted({pid for each in held for pid in owners.get(each.inode, ())})
    if not pids:
        return not_known("port 25", "held by a process this user may not see", "Run it as root.")
    return warn(
        "port 25",
        f"held by {_named(pids)}; mail for this host comes to it and not to Waypost ({ours})",
        "Stop and disable that mail server and let [receiver] listen have port 25, unless it hands the mail on to Waypost.",
        holders=pids,
    )


def _pids(address: str, port: int, there: Sequence[Listener], owners: dict[int, set[int]]) -> set[int] | None:
    """None: nobody listens. Empty: somebody does whom this user may not see."""
    found = [each.inode for each in there if matches(each, address, port)]
    return {pid for inode in found for pid in owners.get(inode, ())} if found else None


def _is_waypost(pid: int) -> bool:
    """One with another home: this one's processes are known."""
    try:
        return b"mailcore." in (PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return False


def _is_portal(pid: int) -> bool:
    """It, or one of its children, which multiprocessing starts under a name of its own."""
    for _ in range(3):
        try:
            command = (PROC / str(pid) / "cmdline").read_bytes()
            parent = int((PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            return True  # it is just gone
        if any(word in command for word in (b"manage.py", b"appliance", b"django")):
            return True
        pid = parent
    return False


def _reached(address: str) -> str:
    """What to connect to, to meet who listens there."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)  # noqa: S104 - looked up, not bound


def _by(patient: Patient, pids: set[int]) -> str:
    names = sorted(each.name for each in patient.processes.values() if each.pid in pids and each.name != "supervisor")
    return f", {' and '.join(names)}" if names else ""


def _named(pids: Sequence[int]) -> str:
    """Some programs by the name people know."""
    told = [(MTAS.get(name_of(pid), name_of(pid)), pid) for pid in pids[:5]]
    return ", ".join(f"{name} (process {pid})" for name, pid in told)


def _shown(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
