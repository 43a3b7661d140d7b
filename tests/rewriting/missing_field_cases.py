"""Messages without From, Date or Message-ID, and what Postfix stores of them: tests/software compares with Debian's."""

from __future__ import annotations

import re

__all__ = ["CASES", "SENDER", "named", "plain"]

SENDER = "a@s.example"

# What is sent, and what is stored, with <id> for the ID and <date> for the date that are added. A line that is not a field,
# and one of a mailbox, is for both the end of the header, or becomes a field.
_ID, _DATE, _FROM = b"Message-ID: <id>\r\n", b"Date: <date>\r\n", b"From: a@s.example\r\n"
_ALL = _ID + _DATE + _FROM
_RESENT = b"Resent-Message-ID: <id>\r\nResent-Date: <date>\r\nResent-From: a@s.example\r\n"
CASES = [
    (b"Subject: none\r\n\r\nbody\r\n", b"Subject: none\r\n" + _ALL + b"\r\nbody\r\n"),
    (b"From: x@b.example\r\n\r\nDate: body\r\n", b"From: x@b.example\r\n" + _ID + _DATE + b"\r\nDate: body\r\n"),
    (b"Date: x\r\nFrom: x@b.example\r\n\r\nb\r\n", b"Date: x\r\nFrom: x@b.example\r\n" + _ID + b"\r\nb\r\n"),
    (b"MESSAGE-ID:\r\n <1@b>\r\ndate: x\r\n\r\nb\r\n", b"MESSAGE-ID:\r\n <1@b>\r\ndate: x\r\n" + _FROM + b"\r\nb\r\n"),
    (
        b"Subject: x\r\n From: y\r\n\tDate: z\r\n\r\nb\r\n",
        b"Subject: x\r\n From: y\r\n\tDate: z\r\n" + _ALL + b"\r\nb\r\n",
    ),
    (b"X-From: 1\r\nFrom-X: 2\r\nDates: 3\r\n\r\n", b"X-From: 1\r\nFrom-X: 2\r\nDates: 3\r\n" + _ALL + b"\r\n"),
    (b"\r\nno header\r\n", _ALL + b"\r\nno header\r\n"),
    (b"", _ALL),
    (b"\r\n", _ALL + b"\r\n"),
    (b"Subject: only\r\n", b"Subject: only\r\n" + _ALL),
    (
        b"Subject: x\r\nno field\r\nFrom: y\r\n\r\nb\r\n",
        b"Subject: x\r\n" + _ALL + b"\r\nno field\r\nFrom: y\r\n\r\nb\r\n",
    ),
    (b"no field\r\nDate: y\r\n\r\nb\r\n", _ALL + b"\r\nno field\r\nDate: y\r\n\r\nb\r\n"),
    (b" folded\r\nDate: y\r\n\r\nb\r\n", _ALL + b"\r\n folded\r\nDate: y\r\n\r\nb\r\n"),
    (
        b"From: x@b.example\r\nDate: x\r\nno field\r\nMessage-ID: <1@b>\r\n\r\nb\r\n",
        b"From: x@b.example\r\nDate: x\r\n" + _ID + b"\r\nno field\r\nMessage-ID: <1@b>\r\n\r\nb\r\n",
    ),
    (
        b"From x@b.example Tue Nov 24 18:22:37 2026\r\nDate: y\r\n\r\nb\r\n",
        b"X-Mailbox-Line: From x@b.example Tue Nov 24 18:22:37 2026\r\nDate: y\r\n" + _ID + _FROM + b"\r\nb\r\n",
    ),
    (b">From x\r\nSubject: y\r\n\r\nb\r\n", b"X-Mailbox-Line: >From x\r\nSubject: y\r\n" + _ALL + b"\r\nb\r\n"),
    (b"Subject: y\r\nFrom x\r\n\r\nb\r\n", b"Subject: y\r\n" + _ALL + b"\r\nFrom x\r\n\r\nb\r\n"),
    (
        b"From: x@b.example\r\nDate: x\r\nMessage-ID: <1@b>\r\nResent-To: y@b.example\r\n\r\nb\r\n",
        b"From: x@b.example\r\nDate: x\r\nMessage-ID: <1@b>\r\nResent-To: y@b.example\r\n" + _RESENT + b"\r\nb\r\n",
    ),
    (
        b"From: x@b.example\r\nDate: x\r\nMessage-ID: <1@b>\r\nResent-Other: y\r\n\r\nb\r\n",
        b"From: x@b.example\r\nDate: x\r\nMessage-ID: <1@b>\r\nResent-Other: y\r\n\r\nb\r\n",
    ),
    (b"..x: 1\r\n\r\n..\r\n", b"..x: 1\r\n" + _ALL + b"\r\n..\r\n"),
    (
        b"From: x@b.example\r\nDate: x\r\nMessage-ID: <1@b>\r\n\r\nb\r\n",
        b"From: x@b.example\r\nDate: x\r\nMessage-ID: <1@b>\r\n\r\nb\r\n",
    ),
]


def plain(stored: bytes) -> bytes:
    """Returns what is stored, with <id> and <date> for those that were added, and in our writing."""
    stored = re.sub(rb"(?<=Message-I)d(?=: <\d{14}\.\w+@)", b"D", stored)
    stored = re.sub(rb"(?<=Message-ID: )<\d{14}\.\w+@[\w.]+>", b"<id>", stored)
    return re.sub(
        rb"(?<=Date: )\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}(?: \(\w+\))?\r\n", b"<date>\r\n", stored
    )


def named(case: tuple[bytes, bytes]) -> str:
    """Returns the name of a case in pytest's output."""
    return case[0][:30].decode("ascii").replace("\r\n", "|") or "empty"
