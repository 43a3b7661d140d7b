"""Which change fits which state of a message.

The manager asks before it writes a record, the control process before it counts what a change would touch. No other place
decides it. This file imports nothing of ours, so that each of them can import it.
"""

from __future__ import annotations

import enum

__all__ = ["MessageState", "command_of", "refusal"]


class MessageState(enum.StrEnum):
    """Where a message is, as far as a change to it is concerned."""

    WAITING = "waiting"  # in a receiver's lane, or in a retry lane until its time
    DUE = "due"  # in a lane of mail that is due at once
    HELD = "held"
    DELETED = "deleted"  # can be undeleted for undo_time
    ACTIVE = "active"  # the scheduler has it


def command_of(operation: str) -> str:
    """Returns what the command line calls a change; ``operation`` is its name in requests and records."""
    return "add-recipient" if operation == "add_recipients" else operation


def refusal(change: str, state: MessageState) -> str:
    """Returns why a message in this state cannot be changed so; "" if it can. ``change`` is an operation's name."""
    if change == "undelete":
        return (
            ""
            if state is MessageState.DELETED
            else _ACTIVE
            if state is MessageState.ACTIVE
            else "message is not deleted"
        )
    if state is MessageState.DELETED:
        return "message is deleted; undelete it first"
    if change == "release" and state is not MessageState.HELD:
        return _ACTIVE if state is MessageState.ACTIVE else "message is not held"
    if change == "hold" and state is MessageState.HELD:
        return "message is held already"
    if change == "retry" and state is MessageState.HELD:
        return "message is held; release it"
    if change == "retry" and state is MessageState.DUE:
        return "message is due already"
    return ""


_ACTIVE = "message is being delivered; it is neither deleted nor held"
