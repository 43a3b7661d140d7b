"""The checks of one recipient beyond the relay policy: whether the server behind us has it. None of them by default.

Laws
- A recipient that is not valid is refused at RCPT, so that we never send a bounce for it to a sender that may be forged. The
  files are for every client, as Postfix's reject_unlisted_recipient; a next hop is only asked for clients that are not trusted.
- What cannot be determined is a temporary failure; it never refuses mail for good, and accepts none.
- Postmaster of a relay domain is always valid (RFC 5321 4.5.1).

Loaded only if a check is on (``mailcore.processes``).

Keeps law: unknown-recipient-refused (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import random
import socket
import time
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from mailcore.config.live_maps import LiveMaps
from mailcore.config.recipients import STATE, domain_pattern_of
from mailcore.config.routing_of import routing_of
from mailcore.config.settings import Settings
from mailcore.config.tls import level_of
from mailcore.frames import NextHop
from mailcore.maillog import MailLog
from mailcore.receiver.check import NOT_DETERMINED, Asked
from mailcore.receiver.path import Path
from mailcore.receiver.recipient_store import RecipientStore
from mailcore.receiver.verification import Verification
from mailcore.receiver.watched_files import WatchedFiles
from mailcore.rewriting.address_map import PatternTooSlow
from mailcore.rewriting.recipient_list import RecipientList, is_rewritten, read_recipients
from mailcore.routing.address import comparable_domain
from mailcore.routing.mx import HostFinder

__all__ = ["RecipientChecks"]


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
            self._files = WatchedFiles(paths, lambda: read_recipients(paths, delimiter), self._read, loop, threads)
        self._store: RecipientStore | None = None
        self._verification: Verification | None = None
        if "next_hop" in self._ways.values():
            self._store = RecipientStore(settings.home / STATE, loop, log.recipient_store_failed)
            self._verification = _verification(settings, self._store, log, loop)

    def look(self) -> None:
        """Begins to read the files again if they have changed."""
        if self._files is not None:
            self._files.look()

    def close(self) -> None:
        """Ends what is under way, for tests."""
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
        if way == "any" or self._is_alias(recipient):
            return b""
        if way == "file":
            return self._by_file(recipient)
        if asked.trusted or self._verification is None:
            return b""
        return self._verification.refusal(recipient.address, asked.sender, asked.client_address)

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
            return maps is not None and is_rewritten(maps, recipient.address)
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

    def _read(self, faults: Sequence[str]) -> None:
        known = self._files.value if self._files is not None else None
        if faults:
            self._log.recipients_refused(faults, in_use=known is not None)
        elif known is not None:
            self._log.recipients_read(len(known))


def _verification(
    settings: Settings, store: RecipientStore, log: MailLog, loop: asyncio.AbstractEventLoop
) -> Verification:
    limits = settings.deliverer
    hostname = limits.hostname or socket.gethostname()
    chance = random.Random()  # noqa: S311  of hosts of one preference
    finder = HostFinder(
        limits.nameservers, addresses_max=limits.addresses_max, own_name=hostname, chance=chance, clock=loop.time
    )

    def level(transport: str, next_hop: NextHop) -> str:
        return level_of(settings.tls_policy, settings.transports[transport].tls, next_hop, limits.port)

    return Verification(
        settings.recipients,
        routing_of(settings),
        settings.lmtp_transports,
        level,
        finder,
        store,
        log,
        loop,
        time.time,
        hostname,
    )
