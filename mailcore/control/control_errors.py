"""The errors of a client of the control socket (``client``), which names them, too: import them from there."""

from __future__ import annotations

from mailcore.config.waiting import Waiting
from mailcore.faults import Code, Fault, FaultError

__all__ = ["ControlError", "NotRunning", "NotUnderstood", "Refused", "TimedOut", "Waits"]


class ControlError(FaultError):
    """An operation that was not answered with a result. Without a subclass: the connection broke in the middle."""

    default = Code.OUTCOME_UNKNOWN


class NotRunning(ControlError):
    """No process listens on the socket, or this user may not use it. Nothing was done."""

    default = Code.UNAVAILABLE


class Waits(NotRunning):
    """Waypost runs on this node, and its shard is not there: the words say what it waits for, and where the shard is."""

    def __init__(self, waiting: Waiting) -> None:
        super().__init__(waiting.sentence)
        self.is_in_order = waiting.is_in_order  # as a spare is


class TimedOut(ControlError):
    """No answer came in time. If its code is OUTCOME_UNKNOWN, a change may have been made; UNAVAILABLE: it was a question."""


class NotUnderstood(ControlError):
    """The answer is not of the operation's type: client and server are of two versions. A change was made."""

    default = Code.INTERNAL


class Refused(ControlError):
    """The answer was a fault: ``code`` says which, ``argument`` where."""

    default = Code.CONFLICT

    @classmethod
    def of(cls, fault: Fault) -> Refused:
        """Returns the exception for a fault that was answered."""
        return cls(fault.message, code=fault.code, argument=fault.argument)
