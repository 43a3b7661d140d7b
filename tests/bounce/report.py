"""A report as a mail program of its receiver sees it, for the tests."""

from __future__ import annotations

import email
import email.policy
from email.message import EmailMessage, Message
from typing import Any

from mailcore.bounce import Bounce, bounce
from mailcore.envelope import DataPlace, Envelope, Recipient, Status, Verdict

__all__ = ["ARRIVED", "HEADERS", "NOW", "REFUSED", "Read", "envelope", "make", "unstuff"]

ARRIVED = 1_700_000_000.0
NOW = ARRIVED + 5 * 86_400
HEADERS = b"Received: from x\r\n\tby y\r\nFrom: a@a.example\r\nSubject: Hello\r\n\r\nThe body stays here\r\n"
REFUSED = Verdict(0, Status.BOUNCED, "5.1.1", "550 5.1.1 User unknown")


def envelope(**fields: Any) -> Envelope:
    values: dict[str, Any] = {
        "queue_id": "4abc",
        "generation": 0,
        "sender": "from@a.example",
        "recipients": (),
        "recipient_count": 1,
        "arrived_at": ARRIVED,
        "size_bytes": 1000,
        "data": DataPlace.INLINE,
        "message_id": "<1@a.example>",
    }
    return Envelope(**(values | fields))


def make(
    *outcomes: tuple[Recipient, Verdict],
    stored: bytes = HEADERS,
    whole: bool = False,
    retry_until: float = 0.0,
    postmaster: str = "",
    hostname: str = "mx.example.org",
    **fields: Any,
) -> Bounce:
    return bounce(
        envelope(**fields), outcomes or ((Recipient(0, "to@b.example"), REFUSED),), stored, hostname, NOW, "4abcB0",
        whole=whole, retry_until=retry_until, postmaster=postmaster,
    )  # fmt: skip


def unstuff(data: bytes) -> bytes:
    """What the next hop makes of the wire form."""
    assert data.endswith(b"\r\n")
    lines = data.split(b"\r\n")
    assert b"." not in lines
    return b"\r\n".join(line[1:] if line.startswith(b".") else line for line in lines)


class Read:
    """A report, read by Python's email package: ``data`` as on the wire."""

    def __init__(self, data: bytes, *, stuffed: bool = True) -> None:
        self.raw = unstuff(data) if stuffed else data
        message = email.message_from_bytes(self.raw, policy=email.policy.SMTP)
        assert isinstance(message, EmailMessage)
        assert message.get_content_type() == "multipart/report"
        assert message.get_param("report-type") in ("delivery-status", None)
        assert not message.defects
        self.message = message
        words, status, self.returned = message.iter_parts()
        assert not [*words.defects, *status.defects, *self.returned.defects]
        self.words: str = " ".join(words.get_content().split())
        groups: Any = status.get_payload()
        self.of_message: Message = groups[0]
        self.groups: dict[str, Message] = {
            each["Final-Recipient"].partition(";")[2].strip(): each for each in groups[1:]
        }
        assert len(self.groups) == len(groups) - 1
