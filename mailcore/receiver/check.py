"""The types of the question that a session asks about a recipient beyond the relay policy, and of its answer."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, NamedTuple, Protocol

from mailcore.receiver.path import Path

__all__ = ["NOT_DETERMINED", "Asked", "Checks"]

NOT_DETERMINED = b"451 4.3.0 Error: the recipient cannot be determined; try again later"


class Asked(NamedTuple):
    """A RCPT command. ``trusted``: the client is in our networks or has logged in."""

    recipient: Path
    sender: str
    client_address: str
    trusted: bool


class Checks(Protocol):
    """The checks of one receiver."""

    def refusal(self, asked: Asked) -> bytes | Coroutine[Any, Any, bytes]:
        """Returns the reply that refuses a recipient, b"" if it is accepted; or a coroutine that returns it."""

    def connected(self, address: str) -> None:
        """Begins to find out about a client that is not trusted."""

    def look(self) -> None:
        """Begins to read files again if they have changed."""

    def close(self) -> None:
        """Ends what is under way, for tests."""
