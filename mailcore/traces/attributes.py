"""The attributes of spans: OpenTelemetry's names where its semantic conventions have one, else ``waypost.*``.

Bounded: lists have at most ``LISTED_MAX`` values. Addresses of people, and texts that may contain them, are in functions of
their own, which the caller uses only if the setting says so.
"""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Iterable

from mailcore.envelope import Envelope, Origin, Status
from mailcore.queue.records import Delivery, domain_of
from mailcore.traces.span import Value

__all__ = ["of_delivery", "of_envelope", "of_people", "of_replies"]

LISTED_MAX = 16
_RELAY = re.compile(r"(?P<host>.*?)\[(?P<address>[^\[\]]*)\](?::(?P<port>[0-9]{1,5}))?", re.DOTALL)
_ORIGINS = {origin: origin.name.lower() for origin in Origin}


def _listed(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each for each in values if each))[:LISTED_MAX]


def of_envelope(envelope: Envelope) -> dict[str, Value]:
    """Returns the attributes of a message that was received."""
    return {
        "waypost.origin": _ORIGINS[envelope.origin],
        "waypost.sender.domain": domain_of(envelope.sender),
        "waypost.recipients": envelope.recipient_count,
        "waypost.recipient.domains": _listed(domain_of(each.address) for each in envelope.recipients),
        "waypost.size_bytes": envelope.size_bytes,
        **_tls(envelope.tls),
    }


def of_people(envelope: Envelope) -> dict[str, Value]:
    """Returns the addresses of people in an envelope."""
    return {
        "waypost.sender": envelope.sender,
        "waypost.recipient.addresses": _listed(each.address for each in envelope.recipients),
        "waypost.login": envelope.login,
        "waypost.message_id": envelope.message_id,
        "client.address": envelope.client_address,
        "client.port": envelope.client_port,
    }


def of_delivery(delivery: Delivery) -> dict[str, Value]:
    """Returns the attributes of one transaction, or of verdicts without one."""
    transport, _, _ = delivery.destination.partition(":")
    counts = Counter(verdict.status for verdict in delivery.verdicts)
    found: dict[str, Value] = {
        "waypost.destination": delivery.destination,
        "waypost.transport": transport,
        "waypost.generation": delivery.generation,
        "waypost.sender.domain": delivery.sender_domain,
        "waypost.recipient.domains": _listed(delivery.recipient_domains),
        "waypost.recipients": len(delivery.verdicts),
        **{f"waypost.recipients.{status.name.lower()}": counts[status] for status in Status if counts[status]},
        "waypost.dsn": _listed(verdict.dsn for verdict in delivery.verdicts),
    }
    if delivery.relay != "none":
        found |= _relay(delivery.relay)
        found["network.local.address"] = delivery.source_address
        found |= _tls(delivery.tls)
        found["waypost.tls.verified"] = delivery.tls_verified
        found["waypost.tls.level"] = delivery.tls_level
    return found


def of_replies(delivery: Delivery) -> dict[str, Value]:
    """Returns the replies, in which next hops often repeat an address."""
    return {"waypost.replies": _listed(verdict.reply for verdict in delivery.verdicts)}


def _relay(relay: str) -> dict[str, Value]:
    found = _RELAY.fullmatch(relay)
    if found is None:
        return {"server.address": relay}
    address = found["address"]
    try:
        network = {"network.transport": "tcp", "network.type": f"ipv{ipaddress.ip_address(address).version}"}
    except ValueError:
        return {"server.address": address or relay, "network.transport": "unix"}
    port: dict[str, Value] = {}
    if found["port"]:
        port = {"server.port": int(found["port"]), "network.peer.port": int(found["port"])}
    return {"server.address": found["host"] or address, "network.peer.address": address, **network, **port}


def _tls(tls: str) -> dict[str, Value]:
    """Returns the attributes of an encrypted connection. ``tls``: "TLSv1.3 CIPHER"."""
    protocol, _, cipher = tls.partition(" ")
    if not protocol:
        return {}
    name, _, version = protocol.partition("v")
    return {"tls.protocol.name": name.lower(), "tls.protocol.version": version, "tls.cipher": cipher}
