"""A filter for messages, and the matcher made from it.

Laws: pure; the cheapest test comes first, because it runs on every message of the queue. A condition that is not given limits
nothing; one that is given always limits: an empty text, zero and a time that is none are refused (``refusal``).

Keeps law: empty-is-an-error (docs/laws.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from mailcore.envelope import Envelope, Recipient
from mailcore.log.index import Bounds
from mailcore.lookup.pattern import (
    PatternError,
    address_matcher,
    destination_matcher,
    fixed_part,
    matches_all,
    text_matcher,
    text_refusal,
)
from mailcore.queue.sender_mark import DOMAIN_BITS, MARK_BITS, domain_mark, sender_mark

__all__ = [
    "NULL_SENDER",
    "PATTERNS",
    "Filter",
    "Matcher",
    "message_id_matcher",
    "refusal",
    "selects_all",
    "sender_matcher",
]

NULL_SENDER = "<>"  # stands for the empty sender in a filter
TEXT_MAX = 1_000  # characters
SECONDS_MAX = 32_503_680_000.0  # as a time: the year 3000
BYTES_MAX = 1 << 62
Test = Callable[[str], bool]


class Filter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Selects messages that fulfil all given conditions; ``pattern`` has the rules of the texts.

    ``sender`` "<>" is the empty sender. ``reason`` is a part of the last reply, or of the reason for a hold or deletion; there
    case is ignored, and no character is a wildcard. Deleted messages match only if ``lane`` matches their lane.
    """

    sender: str | UnsetType = UNSET
    recipient: str | UnsetType = UNSET
    destination: str | UnsetType = UNSET
    lane: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    older_than_s: float | UnsetType = UNSET
    larger_than_bytes: int | UnsetType = UNSET
    arrived_before: float | UnsetType = UNSET  # wall clock, exclusive
    younger_than_s: float | UnsetType = UNSET
    smaller_than_bytes: int | UnsetType = UNSET

    def __bool__(self) -> bool:
        return self != _EVERYTHING


_EVERYTHING = Filter()


def sender_matcher(pattern: str) -> Test:
    """Returns a test for an envelope's sender. Raises PatternError."""
    if pattern == NULL_SENDER:
        return lambda sender: not sender
    return _address_matcher(pattern)


def _mark_of(pattern: str) -> tuple[int, int]:
    """Returns the mark that senders of this pattern have, and the bits of it that they share; (0, 0) if there are none."""
    address, domain = ("", "") if pattern == NULL_SENDER else fixed_part(pattern)
    if address is not None and (mark := sender_mark(address)):
        return mark, MARK_BITS
    if domain is not None and (mark := domain_mark(domain)):
        return mark, DOMAIN_BITS
    return 0, 0


def message_id_matcher(pattern: str) -> Test:
    """Returns a test for a Message-ID, with or without its angle brackets. Raises PatternError."""
    matches = text_matcher(_bare(pattern))
    return lambda text: matches(_bare(text))


def _address_matcher(pattern: str) -> Test:
    if pattern.startswith("<") and pattern.endswith(">"):
        raise PatternError("write the address without < and >; <> stands for the empty sender only")
    return address_matcher(pattern)


def _bare(message_id: str) -> str:
    """Removes the angle brackets, which may be left out of a query."""
    return message_id.strip().removeprefix("<").removesuffix(">")


# A condition of a filter or a search that is a pattern -> what makes its test.
PATTERNS: dict[str, Callable[[str], Test]] = {
    "sender": sender_matcher,
    "recipient": _address_matcher,
    "destination": destination_matcher,
    "lane": text_matcher,
    "message_id": message_id_matcher,
}


def refusal(field: str, value: Any) -> str:
    """Returns why a condition of a filter or a search cannot have this value; "" if it can."""
    if isinstance(value, str):
        if len(value) > TEXT_MAX:
            return f"{len(value)} characters; allowed: {TEXT_MAX} at most"
        if error := text_refusal(value):
            return f"{error}; {NULL_SENDER} is the empty sender" if field == "sender" and not value.strip() else error
        try:
            if field in PATTERNS:
                PATTERNS[field](value)
        except PatternError as error:
            return str(error)
        return ""
    if field.endswith("_bytes"):
        return "" if 0 < value <= BYTES_MAX else f"{value} is not allowed; allowed: 1 to {BYTES_MAX} bytes"
    if field == "arrived_before":
        return "" if 0 < value <= SECONDS_MAX else f"{value} is not allowed; allowed: a time, in seconds since 1970"
    return "" if 0 < value <= SECONDS_MAX else f"{value} is not allowed; allowed: more than 0 seconds"


def selects_all(given: Mapping[str, Any]) -> bool:
    """Returns True if no condition, by name, limits anything: none is given, or each is ``*``."""
    return all(name in PATTERNS and matches_all(pattern) for name, pattern in given.items())


class Matcher:
    """Tests messages against a Filter, the cheapest test first. Raises PatternError."""

    def __init__(self, filter_: Filter, now: float, route_of: Callable[[Recipient], str]) -> None:
        given: dict[str, Any] = {
            name: value for name, value in msgspec.structs.asdict(filter_).items() if value is not UNSET
        }
        tests = {name: PATTERNS[name](pattern) for name, pattern in given.items() if name in PATTERNS}
        self._sender = tests.get("sender")
        self._sender_mark = _mark_of(given["sender"]) if "sender" in given else (0, 0)
        self._recipient = tests.get("recipient")
        self._destination = tests.get("destination")
        self._reason: str | None = given["reason"].casefold() if "reason" in given else None
        self._arrived_before = now - given["older_than_s"] if "older_than_s" in given else None
        self._strictly_before: float | None = given.get("arrived_before")
        self._arrived_after = now - given["younger_than_s"] if "younger_than_s" in given else None
        self._larger_than: int | None = given.get("larger_than_bytes")
        self._smaller_than: int | None = given.get("smaller_than_bytes")
        self._route_of = route_of
        self.asks_recipients = bool(given.keys() & {"recipient", "destination", "reason"})

    @property
    def bounds(self) -> Bounds | None:
        """Returns limits outside of which no message matches; None if there are none."""
        ends = [each for each in (self._arrived_before, self._strictly_before) if each is not None]
        sender, sender_bits = self._sender_mark
        bounds = Bounds(
            after=-math.inf if self._arrived_after is None else self._arrived_after,
            until=min(ends, default=math.inf),
            larger_than=-1 if self._larger_than is None else self._larger_than,
            smaller_than=math.inf if self._smaller_than is None else self._smaller_than,
            sender=sender,
            sender_bits=sender_bits,
        )
        return None if bounds == Bounds() else bounds

    def of_envelope(self, envelope: Envelope) -> bool:
        """Returns True if the envelope itself matches; recipients are tested separately."""
        if self._arrived_before is not None and envelope.arrived_at > self._arrived_before:
            return False
        if self._strictly_before is not None and envelope.arrived_at >= self._strictly_before:
            return False
        if self._arrived_after is not None and envelope.arrived_at <= self._arrived_after:
            return False
        if self._smaller_than is not None and envelope.size_bytes >= self._smaller_than:
            return False
        if self._larger_than is not None and envelope.size_bytes <= self._larger_than:
            return False
        return self._sender is None or self._sender(envelope.sender)

    def of_recipient(self, recipient: Recipient, held_because: str) -> bool:
        """Returns True if this one recipient fulfils all conditions on recipients.

        ``held_because`` is the message's reason; it counts for a recipient that does not have its own.
        """
        if self._recipient is not None and not self._recipient(recipient.address):
            return False
        reason = self._reason
        if reason is not None:
            because = held_because if recipient.aside is None else recipient.aside.why
            if reason not in recipient.reply.casefold() and reason not in because.casefold():
                return False
        if self._destination is None:
            return True
        return self._destination(recipient.route or recipient.destination or self._route_of(recipient))
