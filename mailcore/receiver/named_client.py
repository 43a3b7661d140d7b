"""XCLIENT and XFORWARD in a session: a listed host names the client that it speaks for.

Laws
- Only a host in the setting's networks, by the address of the connection, may use them; others get 550.
- After XCLIENT the session begins again: nothing that the host said or was allowed before counts for the client.
- A client that XCLIENT names is refused like one that connects, if there is no room for it or it has too many connections.
- XFORWARD changes only the log.

Keeps law: client-address-believed (docs/laws.md).
"""

from __future__ import annotations

from mailcore.receiver.auth_session import AuthSession
from mailcore.receiver.client_attributes import UNKNOWN, XCLIENT, XFORWARD, AttributeRefused, read_attributes
from mailcore.receiver.command_table import Phase
from mailcore.routing.networks import Networks

__all__ = ["NamedClientSession"]

NO_ADDRESS = "unknown"  # of a client whose address the host does not know; it is in no network
_NOT_ALLOWED = b"550 5.7.0 Error: insufficient authorization"


class NamedClientSession(AuthSession):
    """A session whose client may be named by another program."""

    def announced(self, ehlo: bytes) -> bytes:
        """Returns the reply to EHLO with the commands that this host may use. Called only if the settings name any host."""
        context = self.context
        lines = []
        if self._may_say("XCLIENT", context.xclients):
            lines.append(b"XCLIENT " + " ".join(self._xclient_names()).encode())
        if self._may_say("XFORWARD", context.xforwards):
            lines.append(b"XFORWARD " + " ".join(XFORWARD).encode())
        if not lines:
            return ehlo
        front, at, last = ehlo.rpartition(b"\r\n")
        return (
            front
            + at
            + b"250-"
            + last[4:]
            + b"\r\n"
            + b"\r\n".join([*(b"250-" + line for line in lines[:-1]), b"250 " + lines[-1]])
        )

    def _may_say(self, verb: str, networks: Networks) -> bool:
        return self.is_named and networks.hold(self.connected_from) and verb not in self.offer.discarded

    def _xclient_names(self) -> tuple[str, ...]:
        logs_in = self.context.rule.auth != "off" and self.context.authentication is not None
        return XCLIENT if logs_in else tuple(name for name in XCLIENT if name != "LOGIN")

    def smtp_XCLIENT(self, argument: bytes) -> bytes:
        """Takes another client's place, and begins the session again."""
        if not self._may_say("XCLIENT", self.context.xclients):
            self.error(_NOT_ALLOWED)
            return b""
        try:
            given = read_attributes("XCLIENT", argument, self._xclient_names())
        except AttributeRefused as refused:
            self.error(str(refused).encode())
            return b""
        user = None
        if login := given.get("LOGIN"):
            authentication = self.context.authentication
            user = authentication.users.find(login) if authentication is not None else None
            if user is None:
                self.error(b"550 5.7.1 Error: LOGIN names no user who may log in")
                return b""
        self.forget_login()
        self._become(given)
        self.trusted = self.context.policy.trusts(self.address)
        if user is not None:
            self.take_login(user, "XCLIENT")
        self.choose_commands()
        if refusal := self.context.renamed(self):
            self.last_reply(refusal)
            return b""
        return self.context.greeting[:-2]

    def _become(self, given: dict[str, str]) -> None:
        """Sets what is given; what is not stays."""
        if (address := given.get("ADDR")) is not None:
            self.address = address or NO_ADDRESS
            self.client_name = ""
        if (name := given.get("NAME")) is not None:
            self.client_name = name
        if (port := given.get("PORT")) is not None:
            self.port = int(port or 0)
        self.end_transaction()
        self.phase = Phase.CONNECTED
        self.offer = self.context.offer(self.address, bool(self.tls))
        self.session.host_name = None
        self.session.extended_smtp = False
        if helo := given.get("HELO"):  # then the host need not repeat it, as in Postfix
            self.session.host_name = helo
            self.session.extended_smtp = given.get("PROTO", UNKNOWN) == "ESMTP"
            self.phase = Phase.GREETED

    def smtp_XFORWARD(self, argument: bytes) -> bytes:
        """Notes the original client of the next message, for the log."""
        if not self._may_say("XFORWARD", self.context.xforwards):
            self.error(_NOT_ALLOWED)
            return b""
        try:
            given = read_attributes("XFORWARD", argument, XFORWARD)
        except AttributeRefused as refused:
            self.error(str(refused).encode())
            return b""
        envelope = self.envelope
        envelope.forwarded = every = {**envelope.forwarded, **given}
        envelope.original_client = f"{every.get('NAME') or NO_ADDRESS}[{every.get('ADDR') or NO_ADDRESS}]"
        envelope.original_queue_id = every.get("IDENT", "")
        return b"250 2.0.0 Ok"
