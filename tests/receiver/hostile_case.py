"""What a hostile client sends, step by step, and the replies that it must get."""

from __future__ import annotations

import enum
from dataclasses import dataclass

__all__ = ["DATA", "EHLO", "MAIL", "RCPT", "TO_DATA", "Case", "Do", "End", "Step", "case"]


class Do(enum.Enum):
    """A step that sends no bytes of SMTP."""

    TLS = "make a TLS handshake"
    CLOSE_WRITING = "send FIN, and read on"
    WAIT = "send nothing"


class End(enum.Enum):
    """What the server must do after the last step."""

    OPEN = "answer the next command"
    CLOSED = "have closed the connection, without another byte"
    SILENT = "have sent nothing more: it waits for the end of a line, of the data or of a chunk"


Step = tuple[bytes | Do, str]  # what is sent; the beginnings of the replies that must come then, " / " between them


@dataclass(frozen=True)
class Case:
    name: str
    steps: tuple[Step, ...]
    end: End = End.OPEN
    stored: tuple[bytes, ...] = ()  # content of the messages that got 250, without our Received field
    at: str = "mx"  # the kind of server: a key of KINDS in test_hostile.py


def case(
    name: str, *steps: Step, end: End = End.OPEN, stored: tuple[bytes, ...] = (), at: str = "mx", hello: bool = True
) -> Case:
    """A case of a client that has said EHLO first, unless ``hello`` is False."""
    return Case(name, ((EHLO,) if hello else ()) + steps, end, stored, at)


EHLO: Step = (b"EHLO client.example\r\n", "250-mx.example.net")
MAIL: Step = (b"MAIL FROM:<a@example.com>\r\n", "250 2.1.0")
RCPT: Step = (b"RCPT TO:<b@example.org>\r\n", "250 2.1.5")
DATA: Step = (b"DATA\r\n", "354 ")
TO_DATA = (MAIL, RCPT, DATA)
