"""The check of a message's sender, as the sessions know it; ``mailcore.authenticity.policy`` does it, if it is on.

Only types, so that a receiver loads nothing of it while it is off.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

__all__ = ["Ask", "CheckedMessage", "Failed", "SenderCheck"]

# Returns the records of a name as text, how many seconds they hold, and whether the look-up failed.
Ask = Callable[[str, str], Awaitable[tuple[list[str], float, bool]]]
Failed = Callable[[str, BaseException], None]  # logs what a session's check raised, with the client's address


class _Body(Protocol):
    def blocks(self) -> AsyncIterator[bytes]:
        """Yields the body, as it is stored."""


class HeaderFields(Protocol):
    """The header section of a message, with our Received field at the top."""

    @property
    def of_client(self) -> bytes:
        """Returns the fields that the client sent, as they are stored."""

    def remove(self, name: bytes, is_unwanted: Callable[[bytes], bool]) -> int:
        """Removes fields of the client with this name that are not wanted; returns how many."""

    def insert(self, place: int, name: bytes, value: bytes, keep_space: bool) -> None:
        """Inserts a field; place 0 is above our own Received, 1 above the first field of the client."""


class CheckedMessage(Protocol):
    """A message that is complete and not stored yet."""

    sender: str
    held_because: str
    authentication: str

    @property
    def fields(self) -> HeaderFields:
        """Returns the header section."""

    @property
    def body(self) -> _Body:
        """Returns the body."""


class SenderCheck(Protocol):
    """Evaluates messages, writes the results into them, and says which are refused or held."""

    def is_for(self, purpose: str) -> bool:
        """Returns whether mail to the listeners with this purpose is evaluated; elsewhere forged results are removed."""

    async def examine(self, message: CheckedMessage, address: str, helo: str, *, is_ours: bool) -> bytes:
        """Returns the reply that refuses a message, or b"". ``is_ours``: it is not evaluated."""
