"""A query for messages, and the test made from it.

Law: pure, except that it reads the RECIPIENTS records of a tested envelope; the cheapest test comes first.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from mailcore.lookup.browse import Browser, Found
from mailcore.lookup.filter import NULL_SENDER, text_matcher

__all__ = ["Matches", "Query"]


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """Selects messages that fulfil all given conditions. Texts as in ``Filter``; ``queue_id`` is a complete queue id."""

    queue_id: str = ""
    message_id: str = ""  # with or without its angle brackets
    sender: str = ""
    recipient: str = ""


class Matches:
    """Tests envelopes against a query; its tests may also be called one by one, on columns. A test is None if anything matches.

    ``browser`` is None if envelopes have no batches.
    """

    def __init__(self, query: Query, browser: Browser | None) -> None:
        self._browser = browser
        self.queue_id = query.queue_id
        self.sender: Callable[[str], bool] | None = text_matcher(query.sender)
        if query.sender == NULL_SENDER:
            self.sender = lambda sender: not sender
        message_id = text_matcher(_bare(query.message_id))
        self.message_id: Callable[[str], bool] | None = (
            None if message_id is None else lambda text: message_id(_bare(text))
        )
        self.recipient = text_matcher(query.recipient)

    def __call__(self, found: Found) -> bool:
        envelope = found.envelope
        if self.sender is not None and not self.sender(envelope.sender):
            return False
        if self.message_id is not None and not self.message_id(envelope.message_id):
            return False
        return self.recipient is None or self._has_recipient(self.recipient, found)

    def _has_recipient(self, matches: Callable[[str], bool], found: Found) -> bool:
        if any(matches(recipient.address) for recipient in found.envelope.recipients):
            return True
        if self._browser is None or not found.envelope.batches:
            return False
        return any(matches(recipient.address) for batch in self._browser.recipients(found) for recipient in batch)


def _bare(message_id: str) -> str:
    """Removes the angle brackets, which may be left out of a query."""
    return message_id.strip().removeprefix("<").removesuffix(">")
