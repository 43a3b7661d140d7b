"""The messages of the queue as Postfix's commands name them: its queues, and each recipient with its reason."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from mailcore.cli.pages import Pages
from mailcore.control.client import ControlClient, Refused
from mailcore.control.protocol.messages import PAGE_MAX, Item, ListPage, ShowPart
from mailcore.faults import Code
from mailcore.lookup.answers import RECIPIENTS_SHOWN
from mailcore.mail_state import MailState
from mailcore.queue.lanes import is_incoming

__all__ = ["QUEUES", "Queued", "Waiting", "queue_of", "queued"]

QUEUES = ("incoming", "active", "deferred", "hold")  # of Postfix
SENDER = "MAILER-DAEMON"  # Postfix's word for the empty sender


class Waiting(NamedTuple):
    """A recipient that is still in the queue."""

    address: str
    reason: str  # "" before its first attempt


class Queued(NamedTuple):
    """A message."""

    item: Item
    queue: str  # one of QUEUES
    recipients: list[Waiting]

    @property
    def sender(self) -> str:
        """Returns the sender as Postfix prints it."""
        return self.item.sender or SENDER


class _Notes:
    """Keeps what the list says about itself: a part that could not be read must not look like an empty queue."""

    def __init__(self) -> None:
        self.damage: list[str] = []
        self.note = ""

    def add(self, page: ListPage) -> None:
        """Adds the notes of a page."""
        self.damage += page.damage
        self.note = page.note or self.note

    def missing(self) -> bool:
        """Returns True if a part of the list could not be read."""
        return bool(self.damage)

    def texts(self) -> list[str]:
        """Returns the notes as lines."""
        return [*([self.note] if self.note else []), *self.damage]

    def keys(self) -> dict[str, Any]:
        """Returns no further keys."""
        return {}


def queue_of(item: Item) -> str:
    """Returns the queue in which Postfix would have the message."""
    if item.active:
        return "active"
    if item.state == MailState.HELD:
        return "hold"
    if item.attempts == 0 and item.state == MailState.QUEUED and (is_incoming(item.lane) or item.lane == "local"):
        return "incoming"
    return "deferred"


def queued(control: ControlClient, notes: list[str], *, with_reasons: bool = True) -> Iterator[Queued]:
    """Yields all messages, deleted ones excepted; adds to ``notes`` what could not be read. Raises ControlError.

    ``with_reasons``: each recipient gets its own reason, which takes a question for each message with several of them.
    """
    kept = _Notes()
    seen: set[str] = set()  # a message that moves while the list is read may be in two pages
    for page in Pages(control, "list", ListPage, {"filter": {}}, kept, page_max=PAGE_MAX):
        for item in page.items:
            if item.queue_id in seen or item.state == MailState.DELETED:
                continue
            seen.add(item.queue_id)
            recipients = _recipients(control, item, with_reasons)
            if recipients:
                yield Queued(item, queue_of(item), recipients)
    notes += kept.texts()


def _recipients(control: ControlClient, item: Item, with_reasons: bool) -> list[Waiting]:
    if item.recipient_count > 1 and (with_reasons or item.recipient_count > RECIPIENTS_SHOWN):
        found: list[Waiting] = []
        try:
            for part in control.ask_parts("show", ShowPart, {"queue_id": item.queue_id}):
                if part.recipients:
                    found += [
                        Waiting(each.address, each.reply or each.why) for each in part.recipients if not each.done
                    ]
        except Refused as error:
            if error.code is Code.NOT_FOUND:  # it has left the queue since the list was read
                return []
            raise
        return found
    return [Waiting(address, item.reason) for address in item.recipients]
