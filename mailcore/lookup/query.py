"""A query for messages, and the test made from it.

Law: pure, except that it reads the RECIPIENTS records of a tested envelope; the cheapest test comes first.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import UNSET, UnsetType

from mailcore.lookup.browse import Browser, Found
from mailcore.lookup.filter import PATTERNS

__all__ = ["Matches", "Query"]


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """Selects messages that fulfil all given conditions. Texts as in ``Filter``; ``queue_id`` is a complete queue id."""

    queue_id: str | UnsetType = UNSET
    message_id: str | UnsetType = UNSET  # with or without its angle brackets
    sender: str | UnsetType = UNSET
    recipient: str | UnsetType = UNSET


class Matches:
    """Tests envelopes against a query; its tests may also be called one by one, on columns. A test is None if anything matches.

    ``browser`` is None if envelopes have no batches.
    """

    def __init__(self, query: Query, browser: Browser | None) -> None:
        self._browser = browser
        self.queue_id = query.queue_id or ""  # "" here: of any message
        self.sender = _test("sender", query.sender)
        self.message_id = _test("message_id", query.message_id)
        self.recipient = _test("recipient", query.recipient)

    def __call__(self, found: Found) -> bool:
        envelope = found.envelope
        if self.sender is not None and not self.sender(envelope.sender):
            return False
        if self.message_id is not None and not self.message_id(envelope.message_id):
            return False
        return self.recipient is None or bool(self.address_in(found))

    def address_in(self, found: Found) -> str:
        """Returns the first recipient that matches; "" if none does, or if the query does not ask for one."""
        matches = self.recipient
        if matches is None:
            return ""
        for recipient in found.envelope.recipients:
            if matches(recipient.address):
                return recipient.address
        if self._browser is None or not found.envelope.batches:
            return ""
        return next((r.address for batch in self._browser.recipients(found) for r in batch if matches(r.address)), "")


def _test(field: str, pattern: str | UnsetType) -> Callable[[str], bool] | None:
    return None if pattern is UNSET else PATTERNS[field](pattern)
