"""The words on stderr and the exit status of commands that print an answer of several shards, if it lacks one.

Keeps law: silent-is-unknown (docs/laws.md).
"""

from __future__ import annotations

from typing import Protocol

from mailcore.terminal.command import DONE, NOT_DONE
from mailcore.terminal.output import complain, plain
from mailcore.terminal.times import in_local_time

__all__ = ["Noted", "say_note", "status_of"]


class Noted(Protocol):
    """An answer that says what it lacks."""

    @property
    def note(self) -> str:
        """Returns all that is to be said of it; "" if it is whole and of now."""
        ...

    @property
    def unanswered(self) -> str:
        """Returns which shards did not answer, and why."""
        ...


def say_note(answer: Noted) -> None:
    """Prints the note of an answer on stderr; without the mail of a shard, the answer is called incomplete."""
    if answer.note:
        complain(f"{'incomplete: ' if answer.unanswered else ''}{plain(in_local_time(answer.note))}")


def status_of(answer: Noted) -> int:
    """Returns the exit status of a command that printed the answer."""
    return NOT_DONE if answer.unanswered else DONE
