"""The masks of ESMTP keywords are taken over, on both sides."""

from __future__ import annotations

from pathlib import Path

from mailcore.import_postfix.draft import Fate
from tests.import_postfix.translating import said_of, told_of

MAIN = """
smtpd_discard_ehlo_keywords = silent-discard, chunking, dsn, etrn, xyz
smtpd_discard_ehlo_keyword_address_maps = cidr:DIR/none, hash:DIR/clients
smtp_discard_ehlo_keywords = pipelining
smtp_discard_ehlo_keyword_address_maps = hash:DIR/servers
"""


def test_masks_are_taken_over(tmp_path: Path) -> None:
    draft, settings = told_of(
        tmp_path, MAIN, clients="192.0.2.1 starttls, auth\nmail.example.org dsn\n", servers="192.0.2.7 size\n"
    )
    assert settings.receiver.discard_ehlo_keywords == ("CHUNKING", "DSN")
    assert settings.smtpd_discard_ehlo_keywords == {"192.0.2.1/32": ("STARTTLS", "AUTH")}
    assert settings.smtp_discard_ehlo_keywords == {"192.0.2.7/32": ("SIZE",)}
    assert settings.transports["smtp"].discard_ehlo_keywords == ("PIPELINING",)
    assert settings.transports["slow"].discard_ehlo_keywords == ("PIPELINING",)
    (finding,) = said_of(draft, "smtpd_discard_ehlo_keywords")
    assert finding.fate is Fate.CHANGED
    assert finding.said.endswith("without xyz, which Waypost does not know")
    (table,) = said_of(draft, "smtpd_discard_ehlo_keyword_address_maps = cidr")
    assert table.fate is Fate.LEFT
    (name,) = said_of(draft, "mail.example.org")
    assert name.fate is Fate.LEFT


def test_a_postfix_that_converts_nothing_is_taken_over(tmp_path: Path) -> None:
    draft, settings = told_of(tmp_path, "disable_mime_output_conversion = yes\n")
    assert {each.mime_output_conversion for name, each in settings.transports.items() if name != "bulk"} == {"off"}
    assert {each.fate for each in said_of(draft, "disable_mime_output_conversion")} == {Fate.TAKEN}
