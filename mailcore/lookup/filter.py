"""A filter for messages, and the matcher made from it.

Law: pure; the cheapest test comes first, because it runs on every message of the queue.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable

import msgspec

from mailcore.envelope import Envelope, Recipient

__all__ = ["Filter", "Matcher", "text_matcher"]

NULL_SENDER = "<>"  # stands for the empty sender in a filter


class Filter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Selects messages that fulfil all given conditions. Case is ignored; ``*`` and ``?`` match any characters.

    ``sender`` "<>" is the empty sender. ``reason`` is a part of the last reply, or of the reason for a hold or deletion.
    Deleted messages match only if ``lane`` matches their lane.
    """

    sender: str = ""
    recipient: str = ""
    destination: str = ""
    lane: str = ""
    reason: str = ""
    older_than_s: float = 0.0
    larger_than_bytes: int = 0
    arrived_before: float = 0.0  # wall clock, exclusive
    younger_than_s: float = 0.0
    smaller_than_bytes: int = 0

    def __bool__(self) -> bool:
        return self != _EVERYTHING


_EVERYTHING = Filter()


def text_matcher(pattern: str) -> Callable[[str], bool] | None:
    """Returns a test for one text; None if any text matches. Brackets are plain characters, because next hops have them."""
    if not pattern:
        return None
    wanted = pattern.casefold()
    if "*" not in wanted and "?" not in wanted:
        return lambda text: text.casefold() == wanted
    match = re.compile(fnmatch.translate(wanted.replace("[", "[[]"))).match
    return lambda text: match(text.casefold()) is not None


class Matcher:
    """Tests messages against a Filter, the cheapest test first."""

    def __init__(self, filter_: Filter, now: float, route_of: Callable[[Recipient], str]) -> None:
        sender = filter_.sender
        self._null_sender = sender == NULL_SENDER
        self._sender = None if self._null_sender else text_matcher(sender)
        self._recipient = text_matcher(filter_.recipient)
        self._destination = text_matcher(filter_.destination)
        self._reason = filter_.reason.casefold()
        self._arrived_before = now - filter_.older_than_s if filter_.older_than_s > 0 else None
        self._strictly_before = filter_.arrived_before or None
        self._arrived_after = now - filter_.younger_than_s if filter_.younger_than_s > 0 else None
        self._larger_than = filter_.larger_than_bytes
        self._smaller_than = filter_.smaller_than_bytes
        self._route_of = route_of
        self.asks_recipients = bool(self._recipient or self._destination or self._reason)

    def of_envelope(self, envelope: Envelope) -> bool:
        """Returns True if the envelope itself matches; recipients are tested separately."""
        if self._arrived_before is not None and envelope.arrived_at > self._arrived_before:
            return False
        if self._strictly_before is not None and envelope.arrived_at >= self._strictly_before:
            return False
        if self._arrived_after is not None and envelope.arrived_at <= self._arrived_after:
            return False
        if self._smaller_than and envelope.size_bytes >= self._smaller_than:
            return False
        if self._larger_than and envelope.size_bytes <= self._larger_than:
            return False
        if self._null_sender:
            return not envelope.sender
        return self._sender is None or self._sender(envelope.sender)

    def of_recipient(self, recipient: Recipient, held_because: str) -> bool:
        """Returns True if this one recipient fulfils all conditions on recipients."""
        if self._recipient is not None and not self._recipient(recipient.address):
            return False
        if self._reason and not (self._reason in recipient.reply.casefold() or self._reason in held_because.casefold()):
            return False
        if self._destination is None:
            return True
        return self._destination(recipient.route or recipient.destination or self._route_of(recipient))
