"""The context that all sessions of one listener share, so that a session needs no reference to its server.

Keeps law: auth-only-under-tls (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Any

from mailcore.authenticity.sender_check import SenderCheck
from mailcore.config.clients import Clients
from mailcore.config.esmtp import Esmtp
from mailcore.config.header_completion import Headers
from mailcore.config.lenient import STRICT, Lenient
from mailcore.config.listeners import MX, Listener
from mailcore.config.milters import Milter, milters_of
from mailcore.config.settings import Receiver
from mailcore.esmtp import EXTENSIONS, Extension, Offering, without_binary
from mailcore.milter.away import Away
from mailcore.receiver.authentication import Authentication
from mailcore.receiver.check import Checks
from mailcore.receiver.client_rates import ClientRates
from mailcore.receiver.command_table import Gate
from mailcore.receiver.inline_room import InlineRoom
from mailcore.receiver.intake import Intake
from mailcore.receiver.lenient_path import lenient_path
from mailcore.receiver.path import Path
from mailcore.receiver.policy import RelayPolicy
from mailcore.receiver.postmaster import Postmaster
from mailcore.receiver.trace import TraceHeader
from mailcore.rewriting.dropped_fields import FieldNames
from mailcore.routing.networks import ByNetwork, Networks

__all__ = ["DEFAULTS", "Offer", "ServerContext"]

OFFER_S = 60.0  # how long an offer with a time in it is used; the time in it is too early by up to this
DEFAULTS = Esmtp()

NO_CLIENTS = Clients()


def _no_server(session: object) -> bytes:
    """Stands for the server in a test of one session."""
    return b""


class Offer:
    """Holds the offer to a connection: the reply to EHLO, and the parameters of MAIL and RCPT by keyword."""

    def __init__(
        self, name: bytes, extensions: Sequence[Extension], offering: Offering, discarded: frozenset[str] = frozenset()
    ) -> None:
        if "CHUNKING" in discarded:  # without BDAT there is no way to send binary data
            discarded |= {"BINARYMIME"}
        self.discarded = discarded  # keywords that are not offered, by setting
        offered = [
            (row, line)
            for row in extensions
            if row.keyword not in discarded and (line := row.offer(offering)) is not None
        ]
        lines = [name, *(line.encode("ascii") for _, line in offered)]
        self.ehlo = b"\r\n".join([b"250-" + line for line in lines[:-1]] + [b"250 " + lines[-1]])
        # Of a keyword that is offered, the parameters of its row replace those that are accepted without the offer.
        self.mail = {parameter.keyword: parameter for row in extensions for parameter in row.mail_unoffered}
        self.mail |= {parameter.keyword: parameter for row, _ in offered for parameter in row.mail}
        if "BINARYMIME" in discarded:
            self.mail = {keyword: without_binary(parameter) for keyword, parameter in self.mail.items()}
        self.rcpt = {parameter.keyword: parameter for row, _ in offered for parameter in row.rcpt}


class ServerContext:
    """Holds the settings, the doors to policy and queue, and the replies that are the same for every session.

    ``rule`` has the settings of the listener, ``milters`` those of milters. ``hostname`` is our name; data without
    ``inline_room`` goes to the spool, where it begins ``spool_data_at`` bytes into its file.
    """

    def __init__(
        self,
        settings: Receiver,
        policy: RelayPolicy,
        intake: Intake,
        loop: asyncio.AbstractEventLoop,
        *,
        hostname: str,
        inline_room: InlineRoom,
        spool_data_at: int,
        tls_context: ssl.SSLContext | None = None,
        extensions: Sequence[Extension] = EXTENSIONS,
        rule: Listener = MX,
        authentication: Authentication | None = None,
        clients: Clients = NO_CLIENTS,
        rates: ClientRates | None = None,
        esmtp: Esmtp = DEFAULTS,
        milters: Sequence[Milter] = (),
        away: Away | None = None,
        lenient: Lenient = STRICT,
        client_keywords: ByNetwork[frozenset[str]] | None = None,
        sender_check: SenderCheck | None = None,
        checks: Checks | None = None,
        headers: Headers | None = None,
    ) -> None:
        self.settings = settings
        self.policy = policy
        self.intake = intake
        self.loop = loop
        self.hostname = hostname
        self.inline_room = inline_room  # of all listeners together
        self.tag_header = settings.tag_header.lower().encode()
        self.dropped = FieldNames(settings.message_drop_headers) if settings.message_drop_headers else None
        self.spool_data_at = spool_data_at
        self.rule = rule
        self.authentication = authentication  # None: no user can log in
        self.milters = milters_of(rule.milters, milters)
        self.away = away or Away(loop.time)  # milters that sessions do not wait for
        self.sender_check = sender_check  # None: it is off
        self.evaluates = sender_check is not None and sender_check.is_for(rule.purpose)
        self.is_implicit = rule.tls == "implicit"
        self.clients = clients
        self.own_domain = lenient.own_domain(hostname)
        names = (hostname, self.own_domain)
        self.postmaster = Postmaster(clients.postmaster, names) if clients.postmaster else None
        self.checks = checks  # None: the relay policy decides alone
        self.headers = headers  # None: headers stay as they are
        self.rates = rates  # None: clients are not counted
        self.xclients = Networks(clients.xclient_networks)
        self.xforwards = Networks(clients.xforward_networks)
        self.names_clients = bool(clients.xclient_networks or clients.xforward_networks)
        # Called with the session when another client takes its place; returns the reply that refuses this client.
        self.renamed: Callable[[Any], bytes] = _no_server
        self.balancers = Networks(rule.proxy) if rule.proxy else None
        self.trace = TraceHeader(hostname)
        self.name = hostname.encode()
        self.greeting = b"220 " + self.name + b" ESMTP Waypost\r\n"
        self.is_ending = False  # the process ends as soon as no transaction is under way; it takes no other
        self.ticks = 0  # of the server's timer; a session notes the tick at which it last heard from its client
        self.stressed = (
            False  # other clients have most of the connections that they can have, and must hurry (guard.py)
        )
        self.esmtp = esmtp
        self.lenient = lenient
        self.lf_networks = Networks(lenient.bare_lf_networks) if lenient.bare_lf_networks else None
        self.hold_max_s = esmtp.hold_max_s if rule.purpose == "submission" else 0
        self._extensions = extensions
        self._discarded = frozenset(rule.discard_ehlo_keywords)
        self._client_keywords = client_keywords  # those that are not offered to some clients, instead of the listener's
        self._masked: dict[tuple[frozenset[str], bool], Offer] = {}  # by keywords, and whether it is under TLS
        self._mechanisms = ""
        self.tls_context: ssl.SSLContext | None
        self.set_tls(tls_context)

    def lenient_path(self, text: str, at: int) -> tuple[Path, str] | None:
        """Reads a path of a trusted client (``parse_path``)."""
        return lenient_path(text, at, self.lenient, self.hostname)

    def set_tls(self, tls_context: ssl.SSLContext | None) -> None:
        """Changes the certificates of the next handshakes; None: there is none that can be used."""
        self.tls_context = None if self.rule.tls == "none" else tls_context
        self._make_offers()

    def set_mechanisms(self, mechanisms: str) -> None:
        """Changes the mechanisms of AUTH that are offered, separated by spaces."""
        if mechanisms != self._mechanisms:
            self._mechanisms = mechanisms
            self._make_offers()

    def renew_offers(self) -> None:
        """Makes the offers again if the time in them is old."""
        if time.monotonic() - self._offers_made_at > OFFER_S:
            self._make_offers()

    def _make_offers(self) -> None:
        # Where TLS is required, STARTTLS is offered without a certificate, too: then it gets 454, as in Postfix.
        starttls = self.tls_context is not None or self.rule.tls == "required"
        mechanisms = self._mechanisms if self.rule.auth != "off" else ""
        offering = Offering(
            self.settings.message_size_limit,
            starttls,
            is_encrypted=False,
            mechanisms=mechanisms,
            recipient_limit=self.settings.recipient_limit,
            hold_max_s=self.hold_max_s,
            deliver_by_min_s=self.esmtp.deliver_by_min_s,
            now=time.time(),
        )
        self._offers_made_at = time.monotonic()
        self._offering = offering
        self._offer = Offer(self.name, self._extensions, offering, self._discarded)
        self._offer_tls = Offer(self.name, self._extensions, offering._replace(is_encrypted=True), self._discarded)
        self._masked.clear()

    def offer(self, client: str, is_encrypted: bool) -> Offer:
        """Returns the offer to a client, by its address."""
        mask = self._client_keywords.of(client) if self._client_keywords is not None else None
        if mask is None:
            return self._offer_tls if is_encrypted else self._offer
        key = mask, is_encrypted
        offer = self._masked.get(key)
        if offer is None:
            offering = self._offering._replace(is_encrypted=is_encrypted)
            offer = self._masked[key] = Offer(self.name, self._extensions, offering, mask)
        return offer

    def gate(self, is_encrypted: bool, is_logged_in: bool, is_trusted: bool) -> Gate:
        """Returns what a client must do before it sends mail. ``is_trusted``: it is in our networks."""
        rule = self.rule
        if rule.tls == "required" and not is_encrypted:
            return Gate.TLS_FIRST
        needs_login = rule.auth == "required" or (rule.purpose == "submission" and not is_trusted)
        if needs_login and not is_logged_in:
            return Gate.CLOSED if rule.auth == "off" else Gate.LOGIN_FIRST
        return Gate.OPEN if rule.auth == "off" else Gate.LOGIN_OFFERED
