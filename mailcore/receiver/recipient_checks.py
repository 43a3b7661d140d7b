"""The checks of one recipient beyond the relay policy, of which none is on by default, in this order: whether a file has it,
whether lists in the DNS have the client, whether the mail is known to the greylist, whether the next hop has the recipient.

Laws
- A recipient that is not valid is refused at RCPT, so that we never send a bounce for it to a sender that may be forged. The
  files are for every client, as Postfix's reject_unlisted_recipient; a next hop is only asked for clients that are not trusted.
- What cannot be determined is a temporary failure; it never refuses mail for good, and accepts none.
- Postmaster of a relay domain is always valid (RFC 5321 4.5.1), from every client.

Loaded only if a check is on (``mailcore.processes``).

Keeps law: unknown-recipient-refused (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from mailcore.config.host_finder_of import host_finder_of, our_name
from mailcore.config.live_maps import LiveMaps
from mailcore.config.live_routes import LiveRoutes
from mailcore.config.recipients import STATE, domain_pattern_of
from mailcore.config.settings import Settings
from mailcore.config.watched_files import WatchedFiles
from mailcore.frames import NextHop
from mailcore.maillog import MailLog
from mailcore.receiver.check import NOT_DETERMINED, Asked
from mailcore.receiver.dns_lists import DnsLists, Listing
from mailcore.receiver.greylist import GreyStore
from mailcore.receiver.path import Path
from mailcore.receiver.recipient_store import RecipientStore
from mailcore.receiver.verification import Verification
from mailcore.rewriting.budget import Budget, PatternTooSlow
from mailcore.rewriting.recipient_list import RecipientList, is_rewritten, read_recipients
from mailcore.routing.address import comparable_domain
from mailcore.routing.resolve import Routing
from mailcore.tls.policy import Policies, Policy

__all__ = ["RecipientChecks"]
ALIAS_TIME_S = 0.05  # for the patterns of [rewriting] and one RCPT; beyond it the message's own time decides


class RecipientChecks:
    """The checks of one receiver. ``aliases`` are the maps of [rewriting], if there are any."""

    def __init__(
        self,
        settings: Settings,
        log: MailLog,
        loop: asyncio.AbstractEventLoop,
        threads: ThreadPoolExecutor,
        aliases: LiveMaps | None = None,
    ) -> None:
        self._ways = settings.recipients.ways
        self._relayed = dict.fromkeys((each.lower() for each in settings.relay.domains), "")
        self._aliases = aliases
        self._log = log
        self._files: WatchedFiles[RecipientList] | None = None
        paths = settings.recipients.relay_recipient_maps
        if "file" in self._ways.values():
            delimiter = settings.rewriting.recipient_delimiter
            self._files = WatchedFiles(paths, lambda: read_recipients(paths, delimiter), self._read, threads)
        self._store: RecipientStore | None = None
        self._verification: Verification | None = None
        self._routes: LiveRoutes | None = None
        self._greylist: GreyStore | None = None
        self._lists: DnsLists | None = None
        self._dnsbl = settings.dnsbl
        if "next_hop" in self._ways.values() or settings.greylist.enabled:
            self._store = RecipientStore(settings.home / STATE, loop, log)
            if "next_hop" in self._ways.values():
                self._routes = LiveRoutes(settings, log, threads, self._routes_changed)
                self._verification = _verification(settings, self._routes.routing, self._store, log, loop)
            if settings.greylist.enabled:
                self._greylist = GreyStore(settings.greylist, self._store, log, time.time)
        if settings.dnsbl.sites:
            self._lists = DnsLists(settings.dnsbl, host_finder_of(settings, loop.time).lookup, log, loop, loop.time)

    def look(self) -> None:
        """Begins to read the files again if they have changed."""
        if self._files is not None:
            self._files.look()
        if self._routes is not None:
            self._routes.look()

    def connected(self, address: str) -> None:
        """Begins to look a client up in the lists."""
        if self._lists is not None:
            self._lists.begin(address)

    def close(self) -> None:
        """Ends what is under way, for tests."""
        if self._lists is not None:
            self._lists.close()
        if self._verification is not None:
            self._verification.close()
        if self._store is not None:
            self._store.close()

    def refusal(self, asked: Asked) -> bytes | Coroutine[Any, Any, bytes]:
        """Returns the reply that refuses a recipient, b"" if it is accepted; or a coroutine that returns it."""
        recipient = asked.recipient
        if recipient.local_part.lower() == "postmaster":
            return b""
        way = self._way(recipient)
        if way != "any" and self._is_alias(recipient):
            way = "any"
        if way == "file" and (refusal := self._by_file(recipient)):
            return refusal
        if asked.trusted or (way != "next_hop" and self._lists is None and self._greylist is None):
            return b""
        return self._by_asking(asked, way)

    async def _by_asking(self, asked: Asked, way: str) -> bytes:
        """Returns the refusal of the checks that have to be waited for."""
        recipient, client = asked.recipient.address, asked.client_address
        refusal = b""
        is_good = False
        if self._lists is not None:
            listing = await self._lists.listing(client)
            is_good = listing.score < 0
            refusal = self._by_lists(asked, listing)
        if not refusal and self._greylist is not None and not is_good:
            refusal = await self._greylist.refusal(recipient, asked.sender, client)
        if not refusal and way == "next_hop" and self._verification is not None:
            refusal = await self._verification.refusal(recipient, asked.sender, client)
        return refusal

    def _by_lists(self, asked: Asked, listing: Listing) -> bytes:
        """Returns the refusal of a client that is on lists; b"" if it is only logged."""
        if listing.score < self._dnsbl.threshold:
            return b""
        names = ", ".join(listing.names)
        if self._dnsbl.action == "warn":
            self._log.dns_listed(asked.client_address, names, listing.score, asked.sender, asked.recipient.address)
            return b""
        text = f"; {listing.text}" if listing.text else ""
        client = asked.client_address
        return f"554 5.7.1 Service unavailable; Client host [{client}] blocked using {names}{text}".encode()

    def _way(self, recipient: Path) -> str:
        """Returns how the recipient is known; "any" outside of [relay] domains."""
        domain = comparable_domain(recipient.domain)
        if not domain_pattern_of(domain, self._relayed):
            return "any"
        return self._ways[domain_pattern_of(domain, self._ways)]

    def _is_alias(self, recipient: Path) -> bool:
        """Returns whether [rewriting] changes the address; also if it cannot say so, because then it refuses the message."""
        maps = self._aliases.maps if self._aliases is not None else None
        try:
            return maps is not None and is_rewritten(maps, recipient.address, Budget(ALIAS_TIME_S, time.monotonic))
        except PatternTooSlow:
            return True

    def _by_file(self, recipient: Path) -> bytes:
        known = self._files.value if self._files is not None else None
        if known is None:
            return NOT_DETERMINED
        if known.has(recipient.address):
            return b""
        return (
            b"550 5.1.1 <" + recipient.address.encode() + b">: Recipient address rejected: User unknown in relay domain"
        )

    def _routes_changed(self, routing: Routing) -> None:
        if self._verification is not None:
            self._verification.routing = routing

    def _read(self, faults: Sequence[str]) -> None:
        known = self._files.value if self._files is not None else None
        if faults:
            self._log.recipients_refused(faults, in_use=known is not None)
        elif known is not None:
            self._log.recipients_read(len(known))


def _verification(
    settings: Settings, routing: Routing, store: RecipientStore, log: MailLog, loop: asyncio.AbstractEventLoop
) -> Verification:
    policies = Policies(settings.tls_policy, settings.deliverer.port, settings.tls.ca_file)

    def policy(transport: str, next_hop: NextHop) -> Policy:
        return policies.of(transport, settings.transports[transport].tls, next_hop)

    return Verification(
        settings.recipients,
        routing,
        settings.lmtp_transports,
        policy,
        host_finder_of(settings, loop.time),
        store,
        log,
        loop,
        time.time,
        our_name(settings),
    )
