"""The example on docs/bounces.md is a report as Waypost makes it."""

from __future__ import annotations

from pathlib import Path

from mailcore.envelope import Recipient, Status, Verdict
from mailcore.remote_reply import expired, said
from tests.bounce.report import ARRIVED, make, unstuff

PAGE = Path(__file__).parents[2] / "docs" / "bounces.md"
HOST = "mx1.example.org[192.0.2.10]"
MESSAGE = b"From: Ann <ann@example.com>\r\nTo: ben@example.org\r\nSubject: Minutes\r\n\r\nHello Ben\r\n"


def example() -> str:
    unknown = said(HOST, "550 5.1.1 <ben@example.org>: Recipient address rejected: User unknown", "RCPT TO")
    full = expired(said(HOST, "452 4.2.2 Mailbox full", "RCPT TO"))
    asked = (("NOTIFY", "SUCCESS,FAILURE"), ("ORCPT", "rfc822;Cleo@example.org"))
    made = make(
        (Recipient(0, "ben@example.org"), Verdict(0, Status.BOUNCED, "5.1.1", unknown, at=int(ARRIVED) + 2)),
        (Recipient(1, "cleo@example.org", options=asked), Verdict(1, Status.EXPIRED, "4.4.7", full, at=int(ARRIVED) + 431_000)),
        stored=MESSAGE, whole=True, hostname="relay.example.com", sender="ann@example.com",
        message_id="<1@example.com>", options=(("ENVID", "minutes+2B7"),),
    )  # fmt: skip
    return unstuff(made.data).decode().replace("\r\n", "\n").rstrip("\n")


def test_the_example_is_true() -> None:
    page = PAGE.read_text(encoding="utf-8")
    shown = page.partition("<!-- example: tests/bounce/test_page.py -->\n")[2].partition("<!-- end -->")[0]
    wanted = "\n".join(f"    {line}".rstrip() for line in example().split("\n"))
    assert shown.strip("\n") == wanted
