"""The interface between the SMTP server and the receiver process: what a session needs from the queue.

Only types. Replies are values without CRLF; b"" means success, and so does a 250, which the client gets as it is.
A 421 ends the session.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from mailcore.envelope import Envelope, Recipient
from mailcore.receiver.scratch import ScratchStore

__all__ = ["CheckedIntake", "Done", "Intake", "MessageIntake", "MilterEvent", "Refusal", "Stored", "Upload"]

Done = Callable[[bytes], None]  # called once, in the loop, with the reply that refuses or b""
Stored = Callable[[bytes, Envelope], None]  # the same, with the envelope as the log gets it


class Refusal(NamedTuple):
    """A refusal at SMTP time. ``stage``: CONNECT, MAIL, RCPT, DATA, END-OF-MESSAGE."""

    stage: str
    reply: str
    client_address: str
    helo: str = ""
    sender: str | None = None
    recipient: str | None = None
    tls: str = ""
    protocol: str = "SMTP"
    queue_id: str = ""
    client_name: str = ""
    milter: str = ""  # that refused


class MilterEvent(NamedTuple):
    """Something that the log says of a milter. ``action``: what becomes of the mail; ``stage`` is as in ``Refusal``."""

    milter: str
    action: str
    stage: str
    what: str
    client_address: str
    queue_id: str = ""
    sender: str = ""
    recipients: tuple[str, ...] = ()  # those that the client named


class Upload(Protocol):
    """Writes data into a spool file. One call at a time: the next one only after ``done`` of the one before."""

    def write(self, blocks: Sequence[bytes], done: Done) -> None:
        """Takes the blocks; calls ``done`` when there is room for more, or with the reply after a failure."""

    def complete(self, blocks: Sequence[bytes], envelope: Envelope, done: Stored) -> None:
        """Takes the last blocks; calls ``done`` once the whole file is on disk."""

    def abandon(self) -> None:
        """Removes the file, also while a call is under way, whose ``done`` is then not called."""


class CheckedIntake(Protocol):
    """Takes one message after milters have seen it."""

    def upload(self, queue_id: str) -> Upload:
        """Begins a spool file, for data beyond the inline limit."""

    def store(self, envelope: Envelope, more: Sequence[Recipient], data: bytes, done: Done) -> None:
        """Appends the message and calls ``done`` once it is durable. ``more``: recipients beyond those in the envelope;
        ``data``: b"" when it was uploaded."""

    def scratch(self, queue_id: str) -> ScratchStore:
        """Returns a file for the data of a message, which is kept only while milters work."""


class MessageIntake(Protocol):
    """Takes one message."""

    def upload(self, queue_id: str) -> Upload:
        """Begins a spool file, for data beyond the inline limit."""

    def store(self, envelope: Envelope, more: Sequence[Recipient], data: bytes, done: Done) -> None:
        """Appends the message and calls ``done`` once it is durable, as ``CheckedIntake.store``."""

    def session_failed(self, client_address: str, error: BaseException) -> None:
        """Logs an exception of a session."""


class Intake(MessageIntake, Protocol):
    """Keeps messages."""

    def unavailable(self, size_bytes: int) -> bytes:
        """Returns the reply that refuses MAIL of ``size_bytes`` (0: not declared); b"" when a message can be taken."""

    def closed(self) -> bytes:
        """Returns the reply that refuses a connection when nothing can be taken at all; b"" when it can."""

    def next_id(self) -> str:
        """Returns a new queue id. Raises OSError if the disk fails."""

    def refused(self, refusal: Refusal) -> None:
        """Records a refusal, for the log and the reports."""

    def stressed(self, begun: bool, connections: int) -> None:
        """Logs that slow clients have little time from now on, because of this many ``connections``; or that this is over."""

    def scratch(self, queue_id: str) -> ScratchStore:
        """Returns a file for the data of a message, which is kept only while milters work."""

    def milter_failed(self, event: MilterEvent) -> None:
        """Logs that a milter failed."""

    def milter_acted(self, event: MilterEvent) -> None:
        """Logs that a milter decided something that the client does not hear."""

    def proxy_refused(self, balancer: str, why: str) -> None:
        """Logs a connection that was closed because its PROXY header cannot be believed."""

    def tls_failed(self, client_address: str, client_name: str, why: str) -> None:
        """Logs that TLS with a client failed, which ended its session."""

    def accept_paused(self, error: OSError, pause_s: float) -> None:
        """Logs that no connection can be accepted for ``pause_s``."""
