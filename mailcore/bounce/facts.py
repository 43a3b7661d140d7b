"""The facts of a report: the message, its recipients with their verdicts, and the time. Values only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mailcore.envelope import Envelope, Recipient, Status, Verdict

__all__ = ["FAILED", "Facts", "Outcome"]

FAILED = (Status.BOUNCED, Status.EXPIRED)
REPLY_MAX = 500  # characters of one reply; RFC 5321 allows 512 bytes for a line
REPLY_MIN = 80  # characters of each reply that are kept in any case
REPLIES_MAX = 1_000_000  # characters of all replies together, while each has REPLY_MIN

# Its status says the Action (RFC 3464 2.3.3): BOUNCED and EXPIRED failed, DEFERRED delayed, DELIVERED relayed.
Outcome = tuple[Recipient, Verdict]


class Facts(NamedTuple):
    """All that the parts of a report are made from. Times are wall-clock seconds."""

    envelope: Envelope
    outcomes: Sequence[Outcome]
    hostname: str
    origin: str  # the domain of its author
    now: float
    retry_until: float  # of delayed recipients: when the queue lifetime is over; 0.0: not said
    whole: bool  # the message is returned, not only its header section
    wide: bool  # UTF-8 is allowed (RFC 6533)
    for_postmaster: bool  # the message has no sender to tell

    @property
    def failed(self) -> bool:
        """Returns whether a recipient failed."""
        return any(verdict.status in FAILED for _, verdict in self.outcomes)

    @property
    def reply_max(self) -> int:
        """Returns how many characters of each reply are kept, so that the report's size is bounded."""
        return max(REPLY_MIN, min(REPLY_MAX, REPLIES_MAX // max(1, len(self.outcomes))))


def reply_of(outcome: Outcome) -> str:
    """Returns the text of the verdict, or the last one that deferred the recipient."""
    recipient, verdict = outcome
    return verdict.reply or recipient.reply
