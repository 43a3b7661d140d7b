"""A message as the filters see and change it after its end: sender, recipients, header, body."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol

from mailcore.milter.fields import Fields

__all__ = ["Body", "BodyWriter", "Change", "Message"]


class Body(Protocol):
    """A stored body, dot-stuffed."""

    def blocks(self) -> AsyncGenerator[bytes, None]:
        """Yields the body in blocks."""


class BodyWriter(Body, Protocol):
    """A new body, which a filter sends."""

    async def append(self, block: bytes) -> None:
        """Takes the next bytes, dot-stuffed. Raises BadChange if there are too many."""

    def close(self) -> None:
        """Throws the body away."""


@dataclass(frozen=True)
class Change:
    """A change of the envelope. ``parameters`` are those of MAIL or RCPT."""

    kind: str  # "add", "delete", "sender"
    address: bytes
    parameters: bytes = b""


class Message(Protocol):
    """The message, to a filter. A change that cannot be made raises BadChange."""

    fields: Fields

    @property
    def body(self) -> Body:
        """Returns the body as it is now."""

    def new_body(self) -> BodyWriter:
        """Returns an empty body, to replace the one there is."""

    def replace_body(self, body: BodyWriter) -> None:
        """Puts a new body, which is whole, in place of the one there is."""

    def change(self, change: Change) -> None:
        """Changes sender or recipients."""

    def mark(self) -> object:
        """Returns the state of the message, for ``undo``."""

    def undo(self, mark: object) -> None:
        """Restores the state of ``mark``."""

    def hold(self, milter: str, reason: str) -> None:
        """Holds the message once it is stored."""
