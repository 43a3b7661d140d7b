"""Cut-through, at the receiver: offers messages to the manager, which passes them on while their clients wait.

Laws
- The client hears 250 only if the next hop has taken the message for all recipients. A message that no next hop has is
  stored, and then it is 250 as always. One that a next hop may have, without having said so, is not stored, since it could be
  delivered twice: its client gets 421, and keeps it.
- An offer ends once: with its answer, or with the connection to the manager.
- A manager that is away or does not read costs nothing: nothing is offered to it. The data is in the memory that the message
  had anyhow, and in one frame.

Keeps law: passed-on-before-250 (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from mailcore.dsn_request import wants
from mailcore.envelope import DataPlace, Envelope, Recipient, Status
from mailcore.frames import Fate, Offer, Offered
from mailcore.timed_request import BY

__all__ = ["UNCERTAIN", "CutThrough", "passed_on_reply"]

# As if the connection broke: a 451 would say that the message was not delivered (RFC 5321 4.2.1).
UNCERTAIN = (
    b"421 4.4.2 Error: the next hop was sent the message and did not answer; if you repeat it, it may come twice"
)
REPLY_OCTETS_MAX = 510  # RFC 5321 4.5.3.1.5, without CRLF

Answered = Callable[[Fate, str], None]


class Link(Protocol):
    """The part of the connection to the manager that is used here."""

    @property
    def is_open(self) -> bool:
        """Returns whether the manager reads."""

    def offer(self, frame: Offer) -> None:
        """Sends an offer; only while the link is open."""


class CutThrough:
    """Keeps the offers of one receiver that have no answer yet."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._offered: dict[int, Answered] = {}
        self._number = 0

    def takes(self, envelope: Envelope, more: Sequence[Recipient]) -> bool:
        """Returns whether a message may be offered: not one that is to wait, is in a file, or may owe its sender a report."""
        if more or envelope.data is not DataPlace.INLINE or not envelope.recipients:
            return False
        if envelope.held_because or envelope.not_before or not self._link.is_open:
            return False
        if any(keyword == BY for keyword, _ in envelope.options):
            return False
        return not any(each.options and wants(each.options, Status.DELIVERED) for each in envelope.recipients)

    def offer(self, envelope: Envelope, data: bytes, answered: Answered) -> None:
        """Offers a message to the manager; ``answered`` is called once, later."""
        self._number += 1
        self._link.offer(Offer(self._number, envelope, data))  # first: if it cannot be encoded, nothing was offered
        self._offered[self._number] = answered

    def answered(self, frame: Offered) -> None:
        """Takes an answer of the manager."""
        answered = self._offered.pop(frame.number, None)
        if answered is not None:
            answered(frame.fate, frame.reply)

    def lost(self) -> None:
        """Ends all offers: the connection to the manager is lost, and no process can say whether a next hop has them."""
        offered, self._offered = self._offered, {}
        for answered in offered.values():
            answered(Fate.UNCERTAIN, "")


def passed_on_reply(queue_id: str, reply: str) -> bytes:
    """Returns the 250 for a message that was passed on, with the words of the next hop as far as a reply may have them."""
    words = "".join(character if " " <= character <= "~" else "?" for character in reply)
    return f"250 2.0.0 Ok: passed on as {queue_id}: {words}".encode()[:REPLY_OCTETS_MAX]
