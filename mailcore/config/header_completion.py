"""Addresses without a domain and missing fields in headers of clients, where [rewriting] has no files."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from mailcore.config.local_clients import LocalClients
from mailcore.config.rewriting import Rewriting
from mailcore.rewriting.header_addresses import HeaderAddresses, is_complete
from mailcore.rewriting.header_section import HeaderRules, HeaderSection, Note
from mailcore.rewriting.missing_fields import MissingFields, NewMessage

__all__ = ["HeaderCompletion", "HeaderLog", "Headers", "log_notes"]

TIME_S = 0.1  # of a message, a thousand times what most take; then the rest of its header stays as it is


class HeaderLog(Protocol):
    """Logs what was found in headers: ``MailLog``."""

    def header_checked(
        self, queue_id: str, action: str, field: str, text: str, *, client: str, sender: str, recipient: str
    ) -> None:
        """Logs what a header check does with a message."""

    def flush(self) -> None:
        """Writes the lines."""


class Headers(Protocol):
    """Opens the work on headers: ``LiveMaps`` with [rewriting], else ``HeaderCompletion``."""

    def header_of_client(self, address: str, trusted: bool, login: str, message: NewMessage) -> HeaderSection | None:
        """Returns what works on the header of a client's message; None if nothing does."""

    def header(self, *, is_local: bool = True) -> HeaderSection | None:
        """Returns what works on a header; None if nothing does. May run in a thread."""

    def checked(self, queue_id: str, client: str, sender: str, recipient: str, notes: Sequence[Note]) -> None:
        """Logs what was found."""


class HeaderCompletion:
    """Completes with ``domain`` and, in a Message-ID, ``hostname``; see ``Headers``."""

    def __init__(self, settings: Rewriting, domain: str, hostname: str, log: HeaderLog) -> None:
        self._missing = MissingFields(hostname, domain)
        self._adds_always = settings.always_add_missing_headers
        self._local = LocalClients(settings.local_header_rewrite_clients)
        self._log = log
        self._rules = HeaderRules(
            size_limit=settings.header_size_limit,
            time_s=TIME_S,
            passes_on_timeout=True,
            rewriter=HeaderAddresses(domain=domain).rewrite,
            is_settled=is_complete,
        )

    def header_of_client(self, address: str, trusted: bool, login: str, message: NewMessage) -> HeaderSection | None:
        """Returns what completes the header of a local client's message; None for others, unless fields are always added."""
        is_local = self._local.hold(address, trusted, login)
        if not (is_local or self._adds_always):
            return None
        rewriter = self._rules.rewriter if is_local else None
        return HeaderSection(self._rules, rewriter, time.monotonic, self._missing, message)

    def header(self, *, is_local: bool = True) -> HeaderSection | None:
        """Returns what completes a header; None if it is not local. May run in a thread."""
        return HeaderSection(self._rules, self._rules.rewriter, time.monotonic) if is_local else None

    def checked(self, queue_id: str, client: str, sender: str, recipient: str, notes: Sequence[Note]) -> None:
        """Logs that a header was not completed in time, which is rare."""
        log_notes(self._log, queue_id, client, sender, recipient, notes)
        self._log.flush()


def log_notes(log: HeaderLog, queue_id: str, client: str, sender: str, recipient: str, notes: Sequence[Note]) -> None:
    """Logs what was found in a header."""
    for note in notes:
        log.header_checked(
            queue_id, note.action, note.field, note.text, client=client, sender=sender, recipient=recipient
        )
