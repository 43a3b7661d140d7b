"""The settings of a transport for cut-through: a message is passed on while its client waits, and is not stored here.

Values only; docs/routing.md says what they mean for mail.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from mailcore.bounds import flag, number

__all__ = ["cut_through_of_transport", "cut_through_transports", "cut_through_wait_of_transport"]


class _Transport(Protocol):
    """The part of a transport's settings that is read here."""

    @property
    def cut_through(self) -> bool:
        """Returns whether messages are passed on while their client waits."""

    @property
    def cut_through_wait_s(self) -> float:
        """Returns seconds."""


def cut_through_of_transport() -> bool:
    """Defines the field ``cut_through`` of a transport."""
    value: bool = flag(
        False,
        "pass a message on while its client waits, without storing it: the client gets its 250 when the next hop has taken the "
        "message. Any other outcome stores the message as usual",
    )
    return value


def cut_through_wait_of_transport() -> float:
    """Defines the field ``cut_through_wait_s`` of a transport."""
    seconds: float = number(
        10.0,
        0.1,
        300,  # half of the 10 minutes that clients wait for the reply to their dot (RFC 5321 4.5.3.2.6)
        "seconds",
        "how long, with cut_through, the next hop may take until it has the whole message; then the message is stored as usual",
    )
    return seconds


def cut_through_transports(transports: Mapping[str, _Transport]) -> dict[str, float]:
    """Returns ``cut_through_wait_s`` of each transport that has ``cut_through``."""
    return {name: each.cut_through_wait_s for name, each in transports.items() if each.cut_through}
