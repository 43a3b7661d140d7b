"""The answers of an election of the giver, in any form of it: by a lock on one host, by a row of the database on several.

Keeps law: shares-within-limit (docs/laws.md).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

__all__ = ["Elected", "Election"]


class Elected(NamedTuple):
    """An election of this process."""

    epoch: int  # +1 with each election, of any process
    at: float  # the giver before gave nothing later than that


class Election(Protocol):
    """Elects one process of all. Times are seconds of CLOCK_BOOTTIME of this machine."""

    def look(self) -> None:
        """Tries to be elected, or says that this process continues; called once a second. Raises OSError."""

    @property
    def elected(self) -> Elected | None:
        """Returns the election of this process; None if another one is the giver, or none."""

    def holds(self) -> bool:
        """Returns whether the election holds at this moment, so that an answer may be given."""

    def again(self, epoch: int) -> None:
        """Elects this process again with a number above ``epoch``, of which a shard has heard. Raises OSError."""

    def end(self) -> None:
        """Answers no more, and lets another be elected; this process may be elected again later."""

    def leave(self) -> None:
        """Ends for good, and tells the others so, if that is quick: the process is about to end. May take a second."""
