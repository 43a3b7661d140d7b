"""Takes out of a list what a pass in progress has finished: the envelope still has these recipients, only the manager knows."""

from __future__ import annotations

from collections.abc import Collection

from mailcore.lookup.answers import RECIPIENTS_SHOWN
from mailcore.lookup.browse import Browser, Found
from mailcore.lookup.filter import Matcher

__all__ = ["recipients_left"]


def recipients_left(browser: Browser, found: Found, matcher: Matcher, done: Collection[int]) -> list[str] | None:
    """Returns the first recipients that are left, one that matches in front; None if none that is left matches."""
    left: list[str] = []
    matching = ""
    for batch in browser.recipients(found):
        for recipient in batch:
            if recipient.number in done:
                continue
            if not matching and matcher.of_recipient(recipient, found.envelope.held_because):
                matching = recipient.address
            if len(left) < RECIPIENTS_SHOWN:
                left.append(recipient.address)
        if matching and len(left) >= RECIPIENTS_SHOWN:
            break
    if not matcher.asks_recipients:
        return left
    if not matching:
        return None
    return [matching, *(address for address in left if address != matching)][:RECIPIENTS_SHOWN]
