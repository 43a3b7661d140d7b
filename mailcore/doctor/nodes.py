"""Several nodes: the database answers and may be used, this node has joined, and the node that divides the limits is reached.

A node with ``[nodes] listen`` delivers nothing before it has joined, and nothing while it does not reach that node.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator

from mailcore.config.nodes import peer_address
from mailcore.config.settings import Settings
from mailcore.doctor.finding import Finding, bad, good, warn
from mailcore.doctor.host import Host
from mailcore.nodes.joining import is_here
from mailcore.nodes.node_files import CERTIFICATE, directory_of
from mailcore.nodes.parameters import address_of, node_of, parameters_of
from mailcore.nodes.trust import SERVICE, Trust
from mailcore.replication.connection import Connection
from mailcore.replication.faults import StoreError, StoreRefused
from mailcore.replication.giver_row import read_giver
from mailcore.replication.guarantees import open_checked
from mailcore.replication.node_trust import read_trust

__all__ = ["look"]

CONNECT_S = 4.0
_DATABASE, _JOINED, _GIVER = "database", "this node", "limits of destinations"


def look(host: Host) -> Iterator[Finding]:
    """Yields what concerns the other nodes. Nothing is asked where no database keeps the queue."""
    settings = host.settings
    if not settings.nodes.is_on:
        yield good("nodes", "the queue is on this disk alone")
        return
    yield from _look_at_database(settings)


def _look_at_database(settings: Settings) -> Iterator[Finding]:
    try:
        connection, findings = open_checked(parameters_of(settings))
    except StoreRefused as error:
        for fault in error.faults:
            yield bad(_DATABASE, fault.message, "Change what the message names; mail waits until then.")
        return
    except StoreError as error:
        yield bad(
            _DATABASE,
            error.fault.message,
            "Start the servers that [nodes] database names, and let this host reach them.",
        )
        return
    try:
        for fault in findings.waits:
            yield bad(_DATABASE, fault.message, "Start the standby; no mail is taken until then.")
        if not findings.waits:
            yield good(_DATABASE, "answers, and keeps mail on two servers", standbys=findings.standbys)
        if settings.nodes.listen:
            yield from _look_at_others(settings, connection)
        else:
            yield good(_GIVER, "[nodes] listen is not set: they hold for this node alone")
    except StoreError as error:
        yield bad(_DATABASE, error.fault.message, "See the log of PostgreSQL; then run waypost doctor again.")
    finally:
        connection.close()


def _look_at_others(settings: Settings, connection: Connection) -> Iterator[Finding]:
    with contextlib.suppress(FileNotFoundError):
        (directory_of(settings) / CERTIFICATE).read_bytes()  # a user who may not read it learns that
    own, rows = node_of(settings), {row.node: row for row in read_trust(connection)}
    if not is_here(settings, rows.get(own)):
        how = (
            f"Run waypost node add {own} on {min(rows)}, and waypost node join here."
            if rows.keys() - {own}
            else "Run waypost node begin here, if this is the first node."
        )
        yield bad(_JOINED, f"[nodes] listen is set, but node {own} has not joined, and delivers nothing", how)
        return
    yield good(_JOINED, f"node {own} is one of {len(rows)} that have joined", nodes=len(rows))
    giver = read_giver(connection)
    node = "" if giver is None else giver.owner.partition("/")[0]
    if giver is None or not node:
        yield warn(
            _GIVER, "no node divides them at this moment, and no delivery begins",
            "Start Waypost on a node; if it runs, run waypost doctor again in ten seconds.",
        )  # fmt: skip
    elif node == own:
        yield good(_GIVER, "this node divides them")
    elif node not in rows:
        yield bad(_GIVER, f"node {node} divides them, and is not one that has joined", f"Stop Waypost on {node}.")
    elif why := _why_not_reached(settings, giver.address, rows[node].certificate):
        yield bad(
            _GIVER, f"node {node} divides them, and cannot be reached at {giver.address}, so no delivery begins: {why}",
            f"Let this host reach that address and port; see [nodes] listen and address on {node}, and its firewall.",
        )  # fmt: skip
    else:
        yield good(_GIVER, f"node {node} divides them, and is reached at {giver.address}")


def _why_not_reached(settings: Settings, address: str, certificate: bytes) -> str:
    """Connects as a manager does, and returns why that fails; "" if the right node answers."""
    try:
        context = Trust(settings, node_of(settings), address_of(settings)).context(server=False)
        with (
            socket.create_connection(peer_address(address), CONNECT_S) as plain,
            context.wrap_socket(plain, server_hostname=SERVICE) as there,
        ):
            if there.getpeercert(True) != certificate:
                return "the certificate there is that of another node"
    except (OSError, ssl.SSLError, ValueError) as error:
        return "no answer in time" if isinstance(error, TimeoutError) else str(error)
    return ""
