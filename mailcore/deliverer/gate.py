"""The gate in front of the final dot of a message that is passed on while its client waits. Values only.

Laws
- The dot is sent once, only if the next hop accepted every recipient, and not after the time is over. So before it, nothing
  was given away, and the message can be stored as usual.
- Whether the dot was sent and not refused is known: only then may a next hop have a message that we do not know of. So an
  error of ours behind the dot does not look like a refusal.

Keeps law: passed-on-before-250 (docs/laws.md).
"""

from __future__ import annotations

__all__ = ["LATE", "NOT_ALL", "Gate"]

LATE = "there was no time left to pass the message on while its client waits"
NOT_ALL = "some recipients were refused, so the message is not passed on while its client waits"


class Gate:
    """Opens once. ``recipients``: of the message, all of which must be accepted."""

    __slots__ = ("dot_sent", "is_closed", "recipients", "refused")

    def __init__(self, recipients: int) -> None:
        self.recipients = recipients
        self.is_closed = False  # the time is over
        self.dot_sent = False
        self.refused = False  # by the reply to the dot

    def opens(self) -> bool:
        """Returns whether the dot may be sent now; then it counts as sent."""
        if self.is_closed or self.dot_sent:
            return False
        self.dot_sent = True
        return True

    @property
    def may_be_taken(self) -> bool:
        """Returns whether a next hop may have the message: it has it, or has not said so."""
        return self.dot_sent and not self.refused
