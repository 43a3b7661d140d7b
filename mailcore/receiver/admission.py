"""Decides which connections a receiver accepts: by its room, by the count of each client, by rates.

Laws
- A connection is counted for the client that it is from: the one that a PROXY header or XCLIENT names.
- Connections are bounded in all and per client network (except in our own networks, as in Postfix). A client that XCLIENT
  names is admitted as if it had connected: a proxy is a way around no bound.
- On a submission listener, a client in a network where a user has logged in lately may have a connection of the reserve of
  trusted clients before it logs in: an attack on this port does not shut out the users it is for. A network has a fifth of the
  reserve and all of them have half, so that a host in such a network cannot take all.
- Connections whose PROXY header has not come have at most half of the reserve of trusted clients, of which they may be.

Pure except for the rates. Keeps law: sessions-bounded (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Callable

from mailcore.config.clients import Clients
from mailcore.config.settings import Receiver
from mailcore.receiver.client_rates import ClientRates, network_of
from mailcore.receiver.guard import Guard
from mailcore.receiver.line_session import LineSession

__all__ = ["Admission"]

KNOWN_SHARE = 0.5  # of the reserve, for clients in networks where a user has logged in
KNOWN_NETWORK_SHARE = 0.2  # of the reserve, for those of one network; they log in within a second or so
HEADERS_SHARE = 0.5  # of the reserve: a balancer sends the header at once, so that few are waited for at a time


class Admission:
    """The connections of one server, by client. ``connections`` is how many there are without the one in question."""

    def __init__(
        self,
        settings: Receiver,
        clients: Clients,
        guard: Guard,
        rates: ClientRates | None,
        hostname: str,
        known_network: Callable[[str], str] = lambda client_address: "",
    ) -> None:
        self._settings = settings
        self._prefixes = clients.ipv4_prefix_length, clients.ipv6_prefix_length
        self._guard = guard
        self._rates = rates
        self._error = b"421 4.7.0 " + hostname.encode() + b" Error: "
        self._per_network: dict[str, int] = {}
        self._sessions: dict[LineSession, tuple[str, bool]] = {}  # network, and whether it was trusted when it came
        self._known: dict[
            LineSession, str
        ] = {}  # those in the reserve whose network is known from a login, and this network
        # Returns the network of a client if a user has logged in from it; otherwise "".
        self._known_network: Callable[[str], str] = known_network

    def may_send_header(self, *, submission: bool, connections: int, headers: int) -> bool:
        """Returns whether a connection may send a PROXY header, of which ``headers`` are waited for."""
        if connections < self._guard.room(trusted=False, submission=submission):
            return True
        room = self._guard.room(trusted=True, submission=submission)
        return connections < room and headers < HEADERS_SHARE * self._guard.reserve

    def refusal(self, address: str, *, trusted: bool, submission: bool, connections: int) -> bytes:
        """Returns the reply that refuses a connection; b"" if it is accepted, and counted in its rate."""
        if connections >= self._guard.room(trusted=trusted, submission=submission) and (
            trusted or not submission or not self._has_place(address, connections)
        ):
            return self._error + b"too many connections"
        if trusted:  # Postfix: smtpd_client_event_limit_exceptions = $mynetworks
            return b""
        if self._per_network.get(self._network(address), 0) >= self._settings.connections_per_client_max:
            return self._error + b"too many connections from " + address.encode()
        if self._rates is not None and (exceeded := self._rates.connection(address)):
            return self._error + exceeded
        return b""

    def _has_place(self, address: str, connections: int) -> bool:
        """Returns whether the reserve has a place for a client of a submission listener that has not logged in."""
        network = self._known_network(address)
        if not network or connections >= self._guard.room(trusted=True, submission=True):
            return False
        taken, reserve = list(self._known.values()), self._guard.reserve
        return len(taken) < KNOWN_SHARE * reserve and taken.count(network) < KNOWN_NETWORK_SHARE * reserve

    def began(
        self, session: LineSession, address: str, *, trusted: bool, submission: bool = False, connections: int = 0
    ) -> None:
        """Counts a session."""
        network = self._network(address)
        if not trusted and submission and connections >= self._guard.room(trusted=False, submission=True):
            self._known[session] = self._known_network(address)
        self._sessions[session] = network, trusted
        self._per_network[network] = self._per_network.get(network, 0) + 1

    def renamed(
        self, session: LineSession, address: str, *, trusted: bool, submission: bool, connections: int
    ) -> bytes:
        """Counts a session for the client that has taken its place; returns the reply that refuses this client."""
        network, was_trusted = self._sessions[session]
        refusal = b""
        self.ended(session)
        if not trusted and (was_trusted or network != self._network(address)):
            connections = (
                connections if was_trusted else 0
            )  # a client that was not trusted leaves its own room to the next
            refusal = self.refusal(address, trusted=False, submission=submission, connections=connections)
        if refusal:
            self.began(session, network, trusted=was_trusted)  # it is about to end
        else:
            self.began(session, address, trusted=trusted, submission=submission, connections=connections)
        return refusal

    def ended(self, session: LineSession) -> None:
        """Takes a session off the counts."""
        network, _ = self._sessions.pop(session)
        self._known.pop(session, None)
        count = self._per_network[network] - 1
        if count:
            self._per_network[network] = count
        else:
            del self._per_network[network]

    def _network(self, address: str) -> str:
        return network_of(address, *self._prefixes)
