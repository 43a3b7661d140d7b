"""Compares where two sets of routes send a recipient.

Pure, except that the files of [route_maps] are read when an object is made.
"""

from __future__ import annotations

from typing import NamedTuple

from mailcore.config.route_files import read_tables
from mailcore.config.settings import Settings
from mailcore.envelope import Recipient, Status
from mailcore.frames import NextHop
from mailcore.routing.resolve import Refused, Resolve, Resolved

__all__ = ["Goes", "RoutesCompared"]

MESSAGES_REMEMBERED = 1_000  # senders and logins with routes of their own


class Goes(NamedTuple):
    """Where a recipient goes. ``hop`` is None if no deliverer gets it."""

    words: str  # the destination, or what happens instead and why
    transport: str = ""
    hop: NextHop | None = None
    bounces: bool = False


_WORDS = {Status.BOUNCED: "bounced", Status.DEFERRED: "deferred", Status.DELIVERED: "discarded"}


class RoutesCompared:
    """Holds the routes of two configurations. Raises MapFault if a file of [route_maps] can't be read."""

    def __init__(self, old: Settings, new: Settings) -> None:
        before, after = read_tables(old), read_tables(new)
        self._old, self._new = before.routing(old), after.routing(new)
        self.differ = (
            before[:3] != after[:3]
            or old.transports.keys() != new.transports.keys()
            or old.deliverer.port != new.deliverer.port
            or old.lmtp_transports != new.lmtp_transports
            or old.rewriting.recipient_delimiter != new.rewriting.recipient_delimiter
        )
        self._of_message: dict[tuple[str, str], tuple[Resolve, Resolve]] = {}

    def of_message(self, sender: str, login: str) -> tuple[Resolve, Resolve]:
        """Returns the old and the new way of the recipients of a message."""
        key = sender, login
        found = self._of_message.get(key)
        if found is None:
            if len(self._of_message) >= MESSAGES_REMEMBERED:
                self._of_message.clear()
            found = self._old.of_message(sender, login), self._new.of_message(sender, login)
            self._of_message[key] = found
        return found


def goes(found: Resolved | Refused) -> Goes:
    """Returns where a recipient goes, with words for it."""
    if isinstance(found, Resolved):
        return Goes(found.destination, found.transport, found.next_hop)
    if found.released:
        return Goes(f"held: {found.reply}")
    return Goes(f"{_WORDS.get(found.status, 'deferred')}: {found.reply}", bounces=found.status is Status.BOUNCED)


def ways_of(recipient: Recipient, ways: tuple[Resolve, Resolve]) -> tuple[Resolved | Refused, Resolved | Refused]:
    """Returns where a recipient went before and goes after the change."""
    old, new = ways
    return old(recipient.address, recipient.route), new(recipient.address, recipient.route)
