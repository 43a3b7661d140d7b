"""What a session needs from the queue, and no more: the door between the SMTP server and the receiver process.

Only types. Replies cross it as values, without CRLF; b"" is "it went well".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from mailcore.envelope import Envelope, Recipient

__all__ = ["Done", "Intake", "Refusal", "Upload"]

Done = Callable[[bytes], None]  # called once, in the loop, with the reply that refuses or b""


class Refusal(NamedTuple):
    """Refused at SMTP time. ``stage``: CONNECT, MAIL, RCPT, DATA, END-OF-MESSAGE."""

    stage: str
    reply: str
    client_address: str
    helo: str = ""
    sender: str | None = None
    recipient: str | None = None
    tls: str = ""
    protocol: str = "SMTP"
    queue_id: str = ""


class Upload(Protocol):
    """Data on its way into a spool file. One call at a time: the next one only after ``done`` of the one before."""

    def write(self, blocks: Sequence[bytes], done: Done) -> None:
        """Takes the blocks; ``done`` when there is room for more, or with the reply after a failure."""

    def complete(self, blocks: Sequence[bytes], envelope: Envelope, done: Done) -> None:
        """The last blocks; ``done`` once the whole file is on disk."""

    def abandon(self) -> None:
        """Whatever was begun goes away; also while a call is under way, whose ``done`` is then not called."""


class Intake(Protocol):
    """Keeps messages."""

    def unavailable(self, size_bytes: int) -> bytes:
        """The reply for MAIL when no message, or none of ``size_bytes`` (0: not said), can be taken; b"" when it can."""

    def closed(self) -> bytes:
        """The reply that refuses a connection when nothing can be taken at all; b"" when it can."""

    def next_id(self) -> str:
        """A queue id."""

    def upload(self, queue_id: str) -> Upload:
        """For data beyond the inline limit."""

    def store(self, envelope: Envelope, more: Sequence[Recipient], data: bytes, done: Done) -> None:
        """Appends the message and calls ``done`` once it is durable. ``more``: recipients beyond those in the envelope;
        ``data``: b"" when it was uploaded."""

    def refused(self, refusal: Refusal) -> None:
        """For the log and the reports."""

    def session_failed(self, client_address: str, error: BaseException) -> None:
        """A bug or a broken world; for the log."""

    def accept_paused(self, error: OSError, pause_s: float) -> None:
        """No connection can be accepted now; for the log."""
