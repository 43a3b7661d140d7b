"""Lists in the DNS of postscreen and smtpd become [dnsbl]."""

from __future__ import annotations

from pathlib import Path

from mailcore.import_postfix.draft import Fate
from tests.import_postfix.translating import said_of, told_of


def test_lists_of_postscreen_keep_their_weights(tmp_path: Path) -> None:
    main = """postscreen_dnsbl_sites = bad.example=127.0.0.[2..11]*2, good.example*-1 bad..example
postscreen_dnsbl_threshold = 2
postscreen_dnsbl_action = enforce
smtpd_recipient_restrictions = reject_unauth_destination, reject_rbl_client other.example
"""
    draft, settings = told_of(tmp_path, main)
    assert settings.dnsbl.sites == ("bad.example=127.0.0.[2..11]*2", "good.example*-1")
    assert (settings.dnsbl.threshold, settings.dnsbl.action) == (2, "reject")
    assert [each.fate for each in said_of(draft, "postscreen_dnsbl_sites = bad..example")] == [Fate.LEFT]
    assert [each.fate for each in said_of(draft, "reject_rbl_client")] == [Fate.LEFT]


def test_a_postscreen_that_only_looks_becomes_a_warning(tmp_path: Path) -> None:
    _, settings = told_of(tmp_path, "postscreen_dnsbl_sites = bad.example\n")
    assert settings.dnsbl.action == "warn"


def test_lists_of_smtpd_refuse_each_alone(tmp_path: Path) -> None:
    lists = "reject_rbl_client bad.example=127.0.0.2, reject_rbl_client b.example"
    main = f"smtpd_client_restrictions = permit_mynetworks, {lists}\n"
    draft, settings = told_of(tmp_path, main)
    assert settings.dnsbl.sites == ("bad.example=127.0.0.2", "b.example")
    assert (settings.dnsbl.threshold, settings.dnsbl.action) == (1, "reject")
    assert [each.fate for each in said_of(draft, "reject_rbl_client")] == [Fate.TAKEN, Fate.TAKEN]
